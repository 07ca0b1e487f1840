"""The progress of bundles on hosts: the request and the answers of `bundle distribute`, and a
supervisor's answers about its own bundles."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from torrentdist.model.access.envelope import Envelope
from torrentdist.model.ids import BundleId, Digest, SupervisorId
from torrentdist.model.wire.transfer_messages import Sources, TransferView
from torrentdist.model.wire.view import View


class DistributeBody(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The body of POST /v1/bundles/<id>/distribute. Without any key it means all supervisors."""

    supervisors: list[str] | None = None
    """The supervisors that should get the bundle. None: those with the labels."""
    labels: dict[str, str] = {}
    """Only supervisors with all of these labels get the bundle."""


class HostState(StrEnum):
    WAITING = "waiting"
    FETCHING = "fetching"
    STUCK = "stuck"
    DONE = "done"
    FAILED = "failed"
    GONE = "gone"


class HostProgress(View, frozen=True, kw_only=True):
    """The progress of a bundle on one host."""

    supervisor: SupervisorId
    state: HostState
    done: int = 0
    size: int = 0
    rate: float = 0.0
    """Bytes received per second."""
    from_peers: int = 0
    from_masters: int = 0
    from_plugin: int = 0
    local: int = 0
    """Bytes that were on the host before."""
    reason: str = ""


class FleetView(View, frozen=True, kw_only=True):
    """The answer of GET /v1/bundles/<id>/hosts."""

    id: BundleId
    digest: Digest
    size: int
    hosts: list[HostProgress]


class FailedHost(View, frozen=True, kw_only=True):
    """A host that did not get the bundle."""

    supervisor: SupervisorId
    reason: str


class DistributeView(View, frozen=True, kw_only=True):
    """The result of `bundle distribute`."""

    id: BundleId
    digest: Digest
    hosts: int
    done: int
    failed: list[FailedHost]
    seconds: float
    sources: Sources = Sources()
    """The bytes of all these hosts together."""


class HostBundleView(View, frozen=True, kw_only=True):
    """A supervisor's answer about one bundle: GET /bundles/<id>, POST
    /v1/host/bundles/<id>/fetch."""

    id: BundleId
    digest: Digest | None
    state: HostState
    path: str = ""
    """The published content, once `state` is `done`."""
    single_file: bool = False
    size: int = 0
    files: int = 0
    transfer: TransferView | None = None
    reason: str = ""
    signatures: list[Envelope] = []
    """The signatures that this host has verified, once `state` is `done`."""


class HostProblem(View, frozen=True, kw_only=True):
    """A bundle that does not arrive on this host, and the reason: GET /v1/host/problems."""

    bundle: str
    digest: Digest
    reason: str
