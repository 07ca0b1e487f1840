"""All workers of this host: the interface for the daemon, the gateway and the reports.

It builds the parts, starts their loops, and takes over what the previous process left.
Always: everything that the previous process started is found before anything new starts.
Never: fetch a bundle, or send anything to a master.
"""

import asyncio
import os
from collections.abc import Callable, Collection

import msgspec

from torrentdist.bundle.store.store_readers import readers_of
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.host.process.room import Loop
from torrentdist.launcher.job_users import NOBODY, job_users
from torrentdist.launcher.launcher_client import starter
from torrentdist.log import get_logger
from torrentdist.model.configuration.config import SupervisorConfig
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.report_bounds import bounded
from torrentdist.model.wire.doctor_views import IsolationView
from torrentdist.model.wire.job_messages import WorkerReport
from torrentdist.security.job_token import job_of
from torrentdist.supervisor.exclusivity.barriers import Barriers, Seat, resource_of
from torrentdist.supervisor.exclusivity.isolation import Isolation
from torrentdist.supervisor.exclusivity.lease_keeper import LeaseKeeper
from torrentdist.supervisor.jobs import local_state, placement
from torrentdist.supervisor.jobs.assignment_loop import AssignmentLoop
from torrentdist.supervisor.jobs.local_state import LeftBehind, LocalStateFile, RunRecord, WorkerPlace
from torrentdist.supervisor.jobs.worker_loop import WorkerLoop
from torrentdist.supervisor.jobs.worker_starts import KnownApplications, WorkerEnds, WorkerStarts
from torrentdist.supervisor.jobs.worker_table import WorkerServices, WorkerTable
from torrentdist.supervisor.process import worker_homes
from torrentdist.supervisor.process.guardian_processes import GuardianStatus
from torrentdist.supervisor.process.job_isolation import IsolationCheck, IsolationPolicy, isolation_of, own_users
from torrentdist.supervisor.process.running import Running
from torrentdist.supervisor.process.spark_applications import Applications
from torrentdist.supervisor.process.worker_homes import Homes
from torrentdist.supervisor.worker.heartbeat_files import HeartbeatWatch
from torrentdist.supervisor.worker.worker_types import Key
from torrentdist.supervisor.yarn.cluster_drivers import ClusterDrivers

log = get_logger()

OUTPUT_LOOK_SECS = 3600.0
"""Interval between checks for worker output that has expired."""


class HostWorkers:
    def __init__(
        self,
        zk: ZooKeeper,
        settings: SupervisorConfig,
        policy: IsolationPolicy,
        left: LeftBehind,
        isolation: Isolation,
        services: WorkerServices,
    ) -> None:
        self._settings = settings
        self._boot = left.boot
        self._wake = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        launcher = starter(settings.launcher, own_users(policy))
        self._check = IsolationCheck(policy, launcher)
        self._job_users = job_users(named) if (named := own_users(policy)) else NOBODY
        self._job_key = services.job_key
        self.homes = Homes(services.store.data_dir.absolute(), launcher.remove)
        self._local = LocalStateFile(services.store.data_dir, left.state, self._changed)
        self.assigning = AssignmentLoop(self._local, services.facts)
        heartbeats = HeartbeatWatch()
        self._ends = WorkerEnds(self._local, self.homes, heartbeats)
        self._drivers = ClusterDrivers(lambda key: self._running.get(key), self._changed)
        self._running = Running(launcher, self._ended, self._changed)
        self._barriers = Barriers(zk, self._save_seat, self._changed, services.lease_sent)
        self._table = WorkerTable(self._local, self._running, self._barriers, heartbeats, services)
        self._leases = LeaseKeeper(self._barriers, isolation, self.homes.lease, self._table.runs)
        self._applications = Applications(services.host, self._changed)
        known = KnownApplications(self._applications, self._drivers)
        self._starts = WorkerStarts(self._table, self._leases, self.homes, services, self._check, known)
        if left.seat is not None:
            # Include workers that never ran: we may still own their barriers.
            self._leases.resume(left.seat, [resource_of(place.key) for place in left.state.places])

    def loops(self) -> tuple[Loop, ...]:
        """After a failure of the first two, only the next process can tell what runs here."""
        return (
            Loop("workers", self._run, ends_daemon=True),
            Loop("barriers", self._barriers.run, ends_daemon=True),
            Loop("assigning", self.assigning.run),
            Loop("isolation", lambda: self._leases.watch_isolation(self)),
            Loop("output", lambda: keep_tidy(self.homes, self.placed, self._settings.log_keep_secs)),
            Loop("applications", lambda: self._applications.run(self._table.drivers)),
        )

    async def _run(self) -> None:
        """Takes over the runs of the previous process, and then looks after all workers."""
        for place in self._local.state.places:
            if place.run is not None:
                self._running.adopt(place.key, place.run, self.homes.guard(place.key))
        await WorkerLoop(self._table, self._leases, self._starts, self._ends, self._wake).run()

    # queries

    @property
    def generation(self) -> int:
        """Generation of the assignment that this host has adopted."""
        return self._local.state.generation

    @property
    def busy(self) -> bool:
        """Whether any worker runs here."""
        return bool(self._running.keys())

    def needs(self) -> frozenset[BundleId]:
        """Returns the bundles that this host's workers need."""
        return self._table.needs()

    def placed(self) -> frozenset[Key]:
        """Returns the workers that have a place on this host."""
        return self._table.keys()

    def beat(self, key: Key) -> None:
        """Called when a worker says that it lives."""
        self._table.beat(key)

    # the callers of the gateway

    @property
    def isolated(self) -> bool:
        return self._job_users.size > 0

    def jobs_of(self, user: int) -> frozenset[JobId] | None:
        found = frozenset(job for job, uid in self._local.state.users.items() if uid == user)
        return found if found or self._job_users.has(user) else None

    def bundles_of(self, jobs: Collection[JobId]) -> frozenset[BundleId]:
        return placement.needs_of(self._local.state, jobs)

    def job_of_token(self, token: str) -> JobId | None:
        job = job_of(self._job_key, token)
        return job if job in {place.job for place in self._local.state.places} else None

    def reports(self) -> list[WorkerReport]:
        """Returns the report of each worker for the leader."""
        return [self._report(place) for place in self._local.state.places]

    def _report(self, place: WorkerPlace) -> WorkerReport:
        if place.run is None or place.run.yarn is None:
            return self._table.report(place, self._applications.of(place.key))
        report = self._table.report(place, self._drivers.of(place.key))
        return bounded(msgspec.structs.replace(report, detail=report.detail or self._drivers.trouble(place.key)))

    def isolation(self) -> IsolationView:
        """Returns whether runs get their own namespaces here, and who reads bundles. Blocks: it
        asks the launcher."""
        launcher, readers = self._settings.launcher, readers_of(self.homes.data_dir)
        try:
            found = self._check.host()
        except OSError as error:
            return IsolationView(namespaces=False, launcher=launcher, error=str(error), readers=readers)
        jobs = isolation_of(self._check.policy, found)
        return IsolationView(
            namespaces=found.namespaces,
            why_not=found.why_not,
            launcher=launcher,
            users=str(jobs.users) if jobs.users.size else "",
            why_own_user=jobs.why_not,
            readers=readers,
            refuses_jobs=jobs.refused,
            exposed=self._check.policy.exposed,
            is_root=os.geteuid() == 0,
            own_user=os.geteuid(),
        )

    def on_change(self, listener: Callable[[], None]) -> None:
        """Registers a listener for changes that the leader should hear of."""
        self._listeners.append(listener)

    # events

    def prolonged(self) -> None:
        """Called when the lease or a proof has been extended."""
        self._wake.set()

    async def _ended(self, key: Key, run: RunRecord, status: GuardianStatus | None) -> None:
        """Called when no process of a run remains here."""
        if run.yarn is not None:
            status = await self._drivers.outlived(key, run, status)
        await self._ends.ended(key, run, status)

    def _changed(self) -> None:
        self._wake.set()
        for listener in self._listeners:
            listener()

    async def _save_seat(self, seat: Seat) -> None:
        try:
            await asyncio.to_thread(local_state.save_seat, self.homes.data_dir, self._boot, seat)
        except OSError as error:
            # Without the record, the next process cannot resume the session, and the workers end
            # with the lease.
            log.error("cannot save the session", reason=str(error))

    # shutdown

    async def prolong(self) -> None:
        """Renews the lease and the proof before this process ends, to give the next process the
        most time."""
        await self._leases.prolong(self)

    async def close(self) -> None:
        """Stops following the workers, which go on running. The next process finds them, or their
        guardians end them with the lease."""
        await self._starts.close()
        await self._ends.close()
        await self._running.close()
        self._leases.close()


async def keep_tidy(homes: Homes, placed: Callable[[], Collection[Key]], keep_secs: float) -> None:
    """Removes what workers have left, again and again. A disk that refuses is for the next time."""
    while True:
        try:
            await asyncio.to_thread(worker_homes.close_to_others, homes)
            await asyncio.to_thread(worker_homes.drop_orphans, homes, placed())
            await asyncio.to_thread(worker_homes.drop_old_output, homes, placed(), keep_secs)
        except OSError as error:
            log.warning("cannot tidy the directories of workers", reason=str(error))
        await asyncio.sleep(OUTPUT_LOOK_SECS)
