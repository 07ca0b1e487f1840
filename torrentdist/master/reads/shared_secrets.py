"""Makes passes for supervisors, and the keys in tracker URLs, from secrets that all masters know.

Always: if hosts have identities in ZooKeeper, no host can make these passes and keys.
"""

import time
from collections.abc import Callable

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.swarm.stock_announces import TrackerSecrets, tracker_secrets
from torrentdist.model.access.zookeeper_identity import derived
from torrentdist.model.errors import required
from torrentdist.model.ids import SupervisorId
from torrentdist.model.records import ClusterRecord
from torrentdist.security.passes import AT_ONCE_SECS, host_key, new_pass


class SharedSecrets:
    def __init__(self, zookeeper: ZooKeeper, snapshot: Callable[[], ClusterSnapshot]) -> None:
        self._zookeeper = zookeeper
        self._snapshot = snapshot

    def new_pass(self, host: SupervisorId, prefix: str, secs: float = AT_ONCE_SECS) -> str:
        """Returns a pass for all paths of a supervisor that begin with `prefix`, for `secs`."""
        return new_pass(self.host_key(host) or self._cluster().announce_key, prefix, self._now(), secs)

    def host_key(self, host: SupervisorId) -> str:
        """Returns the key that only this supervisor and the masters know; empty if the supervisor
        has no identity of its own in ZooKeeper."""
        user, password = self._snapshot().places.get(host), self._zookeeper.identity.table.secret
        return host_key(derived(password, user).password) if user and password else ""

    def tracker_secrets(self) -> TrackerSecrets:
        """Returns the secrets from which the keys in tracker URLs are made."""
        hosts = self._snapshot().hosts
        revoked = {id_: e.record.revoked_until for id_, e in hosts.items() if e.record.revoked_until}
        return tracker_secrets(self.text(), revoked, self._now())

    def text(self) -> str:
        """Returns the masters' password in ZooKeeper, if other identities are derived from it, and
        the cluster's random number."""
        password: str = self._zookeeper.identity.table.secret
        return password + self._cluster().announce_key

    def _cluster(self) -> ClusterRecord:
        return required(self._snapshot().cluster, "not_ready", detail="the cluster's record is not known yet")

    def _now(self) -> float:
        return self._zookeeper.server_now() or time.time()
