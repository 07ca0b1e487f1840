"""This master's id, its ZooKeeper session, and its mirror of the records, for the parts that need
all three."""

import msgspec

from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.errors import required
from torrentdist.model.ids import MasterId


class MasterSession(msgspec.Struct, frozen=True):
    me: MasterId
    zookeeper: ZooKeeper
    mirror: Mirror

    def server_now(self) -> float:
        """Returns the time by ZooKeeper's clock, or raises `not_ready` while it is unknown."""
        return required(self.zookeeper.server_now(), "not_ready", detail="ZooKeeper's clock is not known yet")
