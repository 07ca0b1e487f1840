"""What every room of a master is built from: the configuration, the host, ZooKeeper, the records.

Always: opening it binds the port and locks the store, and connects to nothing.
Never: know a room.
"""

from __future__ import annotations

import random
import socket
import time
from pathlib import Path

import msgspec

from torrentdist import __version__
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.registration import Registration
from torrentdist.host.process.host_daemon import DaemonRole, HostDaemon, HostIdentity
from torrentdist.host.process.listening_sockets import bind_socket
from torrentdist.host.telemetry.metrics import Metrics
from torrentdist.master.master_session import MasterSession
from torrentdist.master.reads.saved_records import Records, SavingPace
from torrentdist.model import ids
from torrentdist.model.configuration.config import Config
from torrentdist.model.ids import MasterId
from torrentdist.model.records import SCHEMA, MasterRecord
from torrentdist.model.wire.swarm_messages import PeerRole


def id_of(config: Config) -> MasterId:
    if config.master.id:
        return ids.master_id(config.master.id)
    return ids.master_id(f"master-{socket.gethostname()}-{config.api.port}")


class MasterCore(msgspec.Struct, frozen=True):
    config: Config
    host: HostDaemon
    session: MasterSession
    records: Records
    """The records that answers are made from. Changes are decided on the mirror alone."""
    registration: Registration
    metrics: Metrics
    address: str
    """The name or address at which other hosts reach this master."""
    url: str

    @classmethod
    async def open(cls, config: Config, role: DaemonRole) -> MasterCore:
        """Opens the host. Its closing, `core.host.close()`, closes everything."""
        me, address, data_dir = id_of(config), config.master.host or config.api.listen, Path(config.master.data_dir)
        identity = HostIdentity(PeerRole.MASTER, me, address, data_dir)
        api = config.api
        host = await HostDaemon.open(
            config, identity, role, lambda: [bind_socket(api.listen, api.port, what="the API")]
        )
        port = int(host.sockets[0].getsockname()[1])
        session = MasterSession(me, host.zookeeper, Mirror(host.zookeeper))
        pace = SavingPace(config.master.snapshot_changes, config.master.snapshot_secs, random.random())
        record = MasterRecord(
            id=me,
            host=address,
            port=port,
            url=host.guard.url(address, port),
            swarm_port=host.swarm_port,
            store=host.runtime.store.id,
            version=__version__,
            started_at=time.time(),
            speaks=SCHEMA,
            certificate=host.guard.certificate(),
        )
        return cls(
            config=config,
            host=host,
            session=session,
            records=Records(me, data_dir, host.zookeeper, session.mirror, host.http, pace),
            registration=Registration(host.zookeeper, record),
            metrics=role.metrics,
            address=address,
            url=record.url,
        )

    def now(self) -> float:
        """Returns the time by ZooKeeper's clock, because hosts' clocks differ; by this host's clock
        while ZooKeeper's is unknown."""
        return self.session.zookeeper.server_now() or time.time()
