"""Which job a token proves at a master.

Always: a token that a host has made counts for jobs whose workers are assigned to this host, and
ends with its revocation. Never: tell what is wrong with a token.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.security.authorization import Principal
from torrentdist.security.job_token import job_of, job_principal, key_of_host, named_job


class JobKeys(msgspec.Struct, frozen=True):
    snapshot: Callable[[], ClusterSnapshot]
    running: Callable[[JobId], Iterable[SupervisorId]]
    """Returns the hosts to which a job's workers are assigned."""
    host_key: Callable[[SupervisorId], str]
    """Returns what a host and the masters alone know."""
    shared_key: bytes
    """The key of the token that daemons share; empty: they share none."""

    def principal(self, token: str) -> Principal | None:
        """Returns the job that this token proves; None if it proves none."""
        snapshot, job = self.snapshot(), named_job(token)
        entry = snapshot.jobs.get(job)
        if entry is None or not any(job_of(key, token) == job for key in self._keys(snapshot, job)):
            return None
        return job_principal(job, frozenset(entry.record.needs))

    def _keys(self, snapshot: ClusterSnapshot, job: JobId) -> Iterator[bytes]:
        yield self.shared_key
        for host in self.running(job):
            known = snapshot.hosts.get(host)
            if known is None or not known.record.is_revoked:
                yield key_of_host(self.host_key(host))
