"""The replication's room of a master."""

from __future__ import annotations

from torrentdist.host.process.room import Loop, Room, When
from torrentdist.master.bundles.room import BundlesRoom
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_core import MasterCore
from torrentdist.master.replication.replica_fetches import FetchRules, ReplicaFetches
from torrentdist.master.replication.replica_records import ReplicaRecords
from torrentdist.master.replication.replicator import Replicas, Replicator
from torrentdist.master.swarm.swarms import Swarms


def replication_room(core: MasterCore, leadership: Leadership, swarms: Swarms, bundles: BundlesRoom) -> Room:
    config, host, session = core.config.replication, core.host, core.session
    rules = FetchRules(joins_uploads=host.joins_uploads, catch_up_limit=config.catch_up_limit)
    intake, attempts = bundles.intake, bundles.attempts
    fetches = ReplicaFetches(host.runtime, host.links, intake, attempts, rules, swarms.want_metafile)
    records = ReplicaRecords(session.me, host.runtime.store.id, session.zookeeper)
    replicas = Replicas(fetches, attempts, records)
    replicator = Replicator(host.runtime, session.mirror, leadership, replicas, config)
    return Room(loops=[Loop("replication", replicator.run, When.MIRRORED)])
