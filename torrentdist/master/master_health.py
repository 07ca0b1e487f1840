"""What a master still lacks to do its work, as `/readyz` and its role tell it."""

from __future__ import annotations

from collections.abc import Callable

from torrentdist.cluster.session.znode_operations import SessionState
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.reads.saved_records import Records
from torrentdist.model.errors import NO_CLUSTER


class MasterHealth:
    """`is_registered` says whether this master's znode is in ZooKeeper."""

    def __init__(self, zookeeper: ZooKeeper, records: Records, is_registered: Callable[[], bool]) -> None:
        self._zookeeper = zookeeper
        self._records = records
        self._is_registered = is_registered

    def failing(self) -> dict[str, str]:
        """Returns the checks that fail now, each with its reason."""
        failing = {}
        if self._zookeeper.state is not SessionState.CONNECTED:
            failing["zookeeper"] = f"the session is {self._zookeeper.state}"
        if self._records.lacks_cluster():
            return failing | {"cluster": NO_CLUSTER}
        if not self._is_registered():
            failing["registration"] = "not registered yet"
        if not self._records.snapshot().present:
            failing["records"] = "the cluster's records are not known yet"
        return failing

    def session_secs(self) -> tuple[float, float | None]:
        """Returns the session timeout that the configuration asks for, and the one granted (None:
        no session).
        """
        zookeeper = self._zookeeper
        granted = zookeeper.negotiated_timeout if zookeeper.session_id is not None else None
        return zookeeper.asked_timeout, granted

    def write_secs(self) -> float | None:
        """Returns how long ZooKeeper took for this master's last write; None: there was none."""
        return self._zookeeper.write_secs
