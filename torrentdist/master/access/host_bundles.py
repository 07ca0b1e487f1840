"""Which bundles a supervisor gets from this master: checked wherever a bundle's content, or what
leads to it, is handed out.

Always: a supervisor that proves itself by a certificate gets what is assigned to it and what its
pattern allows, and nothing of other bundles. Masters, people and jobs have rules of their own.
Never: decide by what the sender says about itself; its certificate and the records say everything.
"""

from collections.abc import Awaitable, Callable, Iterable

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation
from torrentdist.host.http.web import PRINCIPAL
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, SupervisorId
from torrentdist.model.wire.swarm_messages import SwarmAnnounce
from torrentdist.security.authorization import ALL_BUNDLES, Principal, may_read_content, reads_everything
from torrentdist.security.certificate_identity import CertificateRole

Handler = Callable[[Request], Awaitable[Response]]


class HostBundles:
    """`names` returns all bundles that have this content."""

    def __init__(self, snapshot: Callable[[], ClusterSnapshot], names: Callable[[Digest], Iterable[BundleId]]) -> None:
        self._snapshot = snapshot
        self._names = names

    def checked(self, operation: Operation) -> Handler:
        """Returns the operation's handler, which now refuses a host what it may not have."""

        async def handle(request: Request) -> Response:
            principal = request.scope[PRINCIPAL] = self.with_rights(principal_of(request))
            if operation.hands_out is not None and _supervisor(principal) is not None:
                _check(principal, await operation.hands_out(request), _named(request))
            return await operation.handler(request)

        return handle

    def with_rights(self, principal: Principal) -> Principal:
        """Returns the sender with what it may read by the records, if it is a supervisor."""
        host = _supervisor(principal)
        if host is None:
            return principal
        snapshot = self._snapshot()
        pattern = pattern_of(snapshot, host)
        own = frozenset() if pattern == ALL_BUNDLES else assigned_to(snapshot, host)
        return replace(principal, reads=(pattern,) if pattern else (), own_bundles=own)

    def allowed(self, principal: Principal, announce: SwarmAnnounce) -> SwarmAnnounce:
        """Returns the announce without what its sender may not have, whatever it claims to have. A
        person may bring new content, which no bundle has yet."""
        if reads_everything(principal):
            return announce
        kept = [entry for entry in announce.swarms if self.may_join(principal, entry.digest)]
        stored = [digest for digest in announce.stored if self.may_join(principal, digest)]
        return msgspec.structs.replace(announce, swarms=kept, stored=stored)

    def may_join(self, principal: Principal, digest: Digest) -> bool:
        """Whether the sender may exchange this content with others."""
        names = [*self._names(digest)]
        return may_read_content(principal, names) or (not names and _supervisor(principal) is None)


def _check(principal: Principal, asked: Iterable[BundleId], named: str) -> None:
    if not may_read_content(principal, asked):
        raise TorrentdistError("not_for_host", name=principal.name, id=named)


def _named(request: Request) -> str:
    """Returns what a refusal names: the id of the path, and no other that the content has."""
    return str(request.path_params.get("id", "of this content"))


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
