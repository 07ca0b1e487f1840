"""The master daemon: builds its rooms, starts them in order, and stops them.

Always: the API answers before ZooKeeper does, and `/readyz` says what is missing. A master
registers only after it has looked through its store.
Never: decide anything about bundles, jobs or elections, or know what a room serves.
"""

import gc
import os
from collections.abc import Iterable

from torrentdist import __version__
from torrentdist.cluster.session import acl
from torrentdist.cluster.session.arrival import CONNECT_SECS, answered, enter, until_founded
from torrentdist.host.http.operation import Router, operations_of
from torrentdist.host.process.daemon_process import run_daemon
from torrentdist.host.process.logs import configure_logs
from torrentdist.host.process.room import Room, When, start_loops
from torrentdist.host.telemetry.metrics import Sample
from torrentdist.log import get_logger
from torrentdist.master.access.room import access_room
from torrentdist.master.bundles.room import bundles_room
from torrentdist.master.console.room import Shown, console_room
from torrentdist.master.history.room import history_room
from torrentdist.master.host_answers import HostAnswers
from torrentdist.master.http.master_app import Senders, master_app
from torrentdist.master.jobs.room import JobsRoom, jobs_room
from torrentdist.master.leading.room import LeadingRoom, leading_room
from torrentdist.master.master_core import MasterCore, id_of
from torrentdist.master.master_metrics import master_samples
from torrentdist.master.places.room import places_room
from torrentdist.master.policies.room import policies_room
from torrentdist.master.presence.room import PresenceRoom, presence_room
from torrentdist.master.reads.room import reads_room
from torrentdist.master.replication.room import replication_room
from torrentdist.master.swarm.room import swarm_room
from torrentdist.model.configuration.config import Config

log = get_logger()


class Master:
    """Attributes are set by start(), in the order in which they stand there."""

    core: MasterCore
    leading: LeadingRoom
    jobs: JobsRoom
    presence: PresenceRoom
    rooms: list[Room]

    def __init__(self, config: Config, *, repair_acls: bool) -> None:
        self._config = config
        self._repair_acls = repair_acls
        self._answers = HostAnswers(self._samples)
        self._is_open = self._is_joining = False

    async def start(self) -> None:
        answers = self._answers
        core = self.core = answers.core = await MasterCore.open(self._config, answers)
        self._is_open = True
        host = core.host
        await core.records.load()
        swarm = answers.swarm = swarm_room(core)
        leading = self.leading = leading_room(core, swarm.swarms)
        history = await history_room(core, leading.leadership, swarm.swarms)
        bundles = answers.bundles = bundles_room(core, leading, swarm.swarms)
        replication = replication_room(core, leading.leadership, swarm.swarms, bundles)
        jobs = self.jobs = jobs_room(core, leading)
        policies = policies_room(core, leading, swarm.swarms)
        places = places_room(core, leading)
        await host.runtime.start()
        access = await access_room(core, leading, swarm.swarms)
        presence = self.presence = presence_room(core, leading, jobs.heartbeats, swarm.swarms)
        reads = reads_room(core, presence.sight)
        # Paths are tried in this order, so what hosts and uploads ask all the time comes first.
        api: list[Room] = [swarm, bundles, jobs, reads, leading, replication, policies, access, history, places]
        api.append(presence)
        shown = Shown(leading, swarm, bundles, jobs, access, history, presence)
        console = await console_room(core, shown, operations_of(*_routers(api)))
        self.rooms = [*api, console]
        senders = Senders(access.trail.log, console.sessions, swarm.host_bundles, access.job_keys)
        app = master_app(core, self.routers, leading.leadership.is_leader, senders)
        await host.serve(app, host.sockets[0], access.trail.log, host.guard.tls)
        host.announce(core.url)
        start_loops(self.rooms, When.STARTED, host.background)
        host.background.spawn("zookeeper", self._join_cluster())
        log.info("master started", url=core.url, swarm_port=host.swarm_port)

    async def _join_cluster(self) -> None:
        """Connects, checks the ACLs, mirrors the records, waits for a cluster, registers and queues
        for leadership, in this order."""
        background, session = self.core.host.background, self.core.session
        zookeeper, mirror = session.zookeeper, session.mirror
        await enter(zookeeper)
        if self._repair_acls:
            mended = await answered(zookeeper, lambda: acl.repair_tree(zookeeper))
            log.info("ACLs repaired", znodes=mended)
        else:
            await answered(zookeeper, lambda: acl.check_tree(zookeeper))
        await answered(zookeeper, lambda: mirror.start(CONNECT_SECS))
        gc.freeze()  # Most bundles and records stay, so the collector need not scan them with every change.
        start_loops(self.rooms, When.MIRRORED, background)
        await until_founded(mirror)
        self._is_joining = True
        await self.core.registration.start()
        start_loops(self.rooms, When.REGISTERED, background)
        await self.leading.leadership.run()

    async def failed(self) -> None:
        await self.core.host.background.failed()

    async def stop(self) -> None:
        if not self._is_open:
            return
        host = self.core.host
        if self._is_joining:
            await self.leading.hand_over()
        if not host.background.has_failed:  # one that fails is missed, like one that dies
            await host.agent.leave()
        await host.background.stop()
        if self._is_joining:
            await self.leading.say_goodbye()
        await self.core.session.mirror.close()
        await host.close()
        log.info("master stopped")

    @property
    def routers(self) -> list[Router]:
        return _routers(self.rooms)

    def _samples(self) -> Iterable[Sample]:
        return master_samples(self.core, self.presence.sight, self.jobs.heartbeats, self._answers.swarm.swarms)


def _routers(rooms: Iterable[Room]) -> list[Router]:
    return [router for room in rooms for router in room.routers]


def run(config: Config, *, repair_acls: bool = False) -> None:
    configure_logs(config.log, role="master", id=id_of(config))
    log.info("starting", pid=os.getpid(), version=__version__)
    run_daemon(lambda: Master(config, repair_acls=repair_acls), shutdown_secs=config.api.shutdown_secs)
