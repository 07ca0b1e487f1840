"""Which bundles a supervisor gets from this master: checked wherever a bundle's content, or what
leads to it, is handed out.

Always: a supervisor that proves itself by a certificate gets what is assigned to it and what its
pattern allows, and nothing of other bundles. Masters, people and jobs have rules of their own.
Never: decide by what the sender says about itself; its certificate and the records say everything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, SupervisorId
from torrentdist.model.wire.swarm_messages import SwarmAnnounce
from torrentdist.security.authorization import ALL_BUNDLES, may_have
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.principal import Principal

Handler = Callable[[Request], Awaitable[Response]]


class HostBundles:
    """`names` returns all bundles that have this content."""

    def __init__(self, snapshot: Callable[[], ClusterSnapshot], names: Callable[[Digest], Iterable[BundleId]]) -> None:
        self._snapshot = snapshot
        self._names = names

    def checked(self, operation: Operation) -> Handler:
        """Returns the operation's handler, which now refuses a host what it may not have."""
        target = operation.hands_out
        if target is None:
            return operation.handler

        async def handle(request: Request) -> Response:
            principal = principal_of(request)
            if _supervisor(principal) is not None:
                self._check(principal, await target(request))
            return await operation.handler(request)

        return handle

    def may_have(self, principal: Principal, digest: Digest) -> bool:
        """Whether the sender may have this content, as far as it is a host."""
        return self._allows(principal, lambda: self._names(digest))

    def allowed(self, principal: Principal, announce: SwarmAnnounce) -> SwarmAnnounce:
        """Returns the announce without the swarms from which its sender may fetch nothing."""
        if _supervisor(principal) is None:
            return announce
        kept = [entry for entry in announce.swarms if entry.complete or self.may_have(principal, entry.digest)]
        return replace(announce, swarms=kept)

    def _check(self, principal: Principal, asked: Iterable[BundleId]) -> None:
        bundles = self._snapshot().bundles
        digests = {bundles[name].record.digest for name in asked if name in bundles}
        names = sorted({*asked}.union(*map(self._names, digests)))
        if not self._allows(principal, lambda: names):
            named = ", ".join(sorted(asked) or names) or "of an unknown name"
            raise TorrentdistError("not_for_host", name=principal.name, id=named)

    def _allows(self, principal: Principal, names: Callable[[], Iterable[BundleId]]) -> bool:
        host = _supervisor(principal)
        if host is None:
            return True
        snapshot = self._snapshot()
        pattern = pattern_of(snapshot, host)
        return pattern == ALL_BUNDLES or may_have(pattern, assigned_to(snapshot, host), names())


def _supervisor(principal: Principal) -> SupervisorId | None:
    """Returns the supervisor whose certificate is the sender's proof; None: it has another one."""
    certificate = principal.certificate
    if certificate is None or certificate.role is not CertificateRole.SUPERVISOR:
        return None
    return SupervisorId(certificate.id)


def pattern_of(snapshot: ClusterSnapshot, host: SupervisorId) -> str:
    """Returns the pattern of the bundles that a supervisor may have besides its own."""
    entry = snapshot.hosts.get(host)
    return ALL_BUNDLES if entry is None else entry.record.bundles


def assigned_to(snapshot: ClusterSnapshot, host: SupervisorId) -> frozenset[BundleId]:
    """Returns the bundles that a supervisor is told to keep, or that its workers need."""
    entry = snapshot.assignments.get(host)
    if entry is None:
        return frozenset()
    jobs = (snapshot.jobs.get(worker.job) for worker in entry.record.workers)
    return frozenset(entry.record.bundles).union(*(job.record.needs for job in jobs if job is not None))
