"""The replication's room of a master."""

from torrentdist.host.process.room import Loop, Room, When
from torrentdist.master.bundles.room import BundlesRoom
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_core import MasterCore
from torrentdist.master.replication.replica_fetches import ReplicaFetches
from torrentdist.master.replication.replicator import Replicator
from torrentdist.master.swarm.swarms import Swarms


def replication_room(core: MasterCore, leadership: Leadership, swarms: Swarms, bundles: BundlesRoom) -> Room:
    fetches = ReplicaFetches(core, bundles.intake, bundles.attempts, swarms)
    replicator = Replicator(core, leadership, fetches, bundles.attempts)
    return Room(loops=[Loop("replication", replicator.run, When.MIRRORED)])
