"""Combines local state, runs and barriers into the workers that the plan and the reports see.

Always: a snapshot shows all three at the same moment. Heartbeat files are read in a thread of their
own: the lease is renewed after that, and must not wait until other work leaves a thread.
Never: change any of them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from torrentdist.bundle.store.store import StoredBundle, StoreView
from torrentdist.launcher.run.run_lease import clock
from torrentdist.model.configuration.config import SupervisorConfig
from torrentdist.model.errors import required
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobSpec, OnIsolation
from torrentdist.model.jobs.report_bounds import bounded
from torrentdist.model.wire.job_messages import WorkerReport, WorkerState
from torrentdist.model.wire.view import view_of
from torrentdist.supervisor.exclusivity.barriers import Barriers, resource_of
from torrentdist.supervisor.jobs import placement
from torrentdist.supervisor.jobs.local_state import Facts, JobFacts, LocalStateFile, WorkerPlace
from torrentdist.supervisor.process.running import Handle, Running
from torrentdist.supervisor.process.spark_applications import Application, SparkDriver
from torrentdist.supervisor.worker.heartbeat_files import HeartbeatWatch
from torrentdist.supervisor.worker.worker_types import Barrier, Key, Launch, Measure, Run, Worker

FOR_BUNDLES = "for its bundles"


class WorkerServices(msgspec.Struct, frozen=True):
    store: StoreView
    facts: Facts
    checked: Callable[[BundleId], Awaitable[StoredBundle | None]]
    """Returns a bundle if its files here are as they were published."""
    spec_of: Callable[[JobId, JobFacts, Mapping[BundleId, StoredBundle]], Awaitable[JobSpec]]
    """Returns what to run. Raises an error if this host must not run the job."""
    trouble: Callable[[BundleId], str]
    """Returns why fetching a bundle failed; empty if it has not failed."""
    lease_sent: Callable[[], None]
    """Called when a write that renews the host's lease has been sent to ZooKeeper."""
    gateway: str
    """The URL of this host's gateway."""
    settings: SupervisorConfig
    host: str
    """Address at which other hosts reach this host."""
    job_key: bytes = b""
    """The key of job tokens; empty: the cluster has no secret to make them of."""

    def content(self, bundle: BundleId) -> Path | None:
        """Returns the directory of a published bundle."""
        digest = self.store.lookup(bundle)
        stored = self.store.get(digest) if digest is not None else None
        return None if stored is None else stored.content


class WorkerTable:
    def __init__(
        self,
        local: LocalStateFile,
        running: Running,
        barriers: Barriers,
        heartbeats: HeartbeatWatch,
        services: WorkerServices,
    ) -> None:
        self.local = local
        self.running = running
        self._barriers = barriers
        self._heartbeats = heartbeats
        self._services = services
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="heartbeats")

    def keys(self) -> frozenset[Key]:
        return frozenset(place.key for place in self.local.state.places)

    def needs(self) -> frozenset[BundleId]:
        """Returns the bundles that this host's workers need."""
        return placement.needs(self.local.state)

    def workers(self) -> list[Worker]:
        return [self._worker(place) for place in self.local.state.places]

    def runs(self) -> Mapping[str, tuple[Run, bool]]:
        """Returns each run on this host by its id, and whether its worker is still assigned
        here."""
        found = [(place, self.running.get(place.key)) for place in self.local.state.places]
        return {h.run.id: (_run(h, silent=False), place.assigned) for place, h in found if h is not None}

    def drivers(self) -> list[SparkDriver]:
        """Returns the Spark drivers that are processes of this host."""
        found = []
        for place in self.local.state.places:
            facts, handle = self._facts(place), self.running.get(place.key)
            if facts is not None and handle is not None and facts.spec.drives_here:
                found.append(SparkDriver(place.key, handle.run.id, handle.pid, facts.spec.spark.ui_port))
        return found

    def report(self, place: WorkerPlace, application: Application) -> WorkerReport:
        """Returns the report of this worker for the leader."""
        facts, services = self._facts(place), self._services
        absent = [] if facts is None else [b for b in sorted(facts.needs) if services.content(b) is None]
        trouble = next(filter(None, map(services.trouble, absent)), "")
        handle = self.running.get(place.key)
        return report_of(place, self._worker(place), handle, application, trouble, time.monotonic())

    def beat(self, key: Key) -> None:
        handle = required(self.running.get(key), "not_found", what=f"a run of worker {key[1]} of {key[0]} on this host")
        self._heartbeats.beat(handle.run.id)

    async def look_at_heartbeats(self) -> None:
        """Reads the workers' heartbeat files and notes which workers are silent."""
        found: dict[str, tuple[Handle, JobSpec]] = {}
        for place in self.local.state.places:
            facts, handle = self._facts(place), self.running.get(place.key)
            if facts is not None and handle is not None and handle.pid and facts.spec.heartbeat_secs:
                found[handle.run.id] = handle, facts.spec
        if found:
            homes = {run: handle.home for run, (handle, _) in found.items()}
            stamps = await asyncio.get_running_loop().run_in_executor(self._thread, self._heartbeats.read, homes)
            for run, (_, spec) in found.items():
                self._heartbeats.note(run, stamps[run], spec, time.monotonic())

    def _worker(self, place: WorkerPlace) -> Worker:
        facts, handle = self._facts(place), self.running.get(place.key)
        return Worker(
            key=place.key,
            assigned=place.assigned,
            active=place.active,
            launch=None if facts is None else _launch(facts),
            bundles_here=facts is not None and all(map(self._services.content, facts.needs)),
            barrier=self._barriers.state_of(resource_of(place.key)),
            run=None if handle is None else _run(handle, self._heartbeats.is_silent(handle.run.id)),
            life=placement.life_of(place, clock() - time.monotonic()),
            confirmed=self.local.confirmed_in == self._barriers.session is not None,
        )

    def _facts(self, place: WorkerPlace) -> JobFacts | None:
        return self.local.state.jobs.get(place.job)


def _launch(facts: JobFacts) -> Launch:
    spec = facts.spec
    return Launch(facts.incarnation, spec.stop_grace_secs, spec.on_isolation, spec.restart)


def _run(handle: Handle, silent: bool) -> Run:
    run = handle.run
    isolation = OnIsolation.RUN if run.lenient else OnIsolation.STOP
    return Run(run.incarnation, run.session, run.grace_secs, isolation, handle.measure, handle.measured_at, silent)


def report_of(
    place: WorkerPlace, worker: Worker, handle: Handle | None, application: Application, trouble: str, now: float
) -> WorkerReport:
    """Returns the report of one worker. `trouble` says why its bundles could not be fetched."""
    state, waits = state_of(worker, now)
    if waits == FOR_BUNDLES and trouble:
        waits = f"{waits}: {trouble}"
    report = view_of(
        WorkerReport,
        place,
        state=state,
        pid=handle.pid if handle is not None else 0,
        since=handle.run.since if handle is not None else 0.0,
        detail=place.detail or waits,
        application=application.id,
        ui=application.ui if handle is not None else "",
    )
    return bounded(report)


def state_of(worker: Worker, now: float) -> tuple[WorkerState, str]:
    """Returns the state of a worker, and what it is waiting for."""
    if worker.run is not None:
        return (WorkerState.RUNNING if worker.run.measure is Measure.NONE else WorkerState.STOPPING), ""
    if worker.life.ended:
        return WorkerState.ENDED, ""
    if not worker.assigned or not worker.active:
        return WorkerState.INACTIVE, ""
    if worker.launch is None:
        return WorkerState.WAITING, "for the job's record"
    if not worker.bundles_here:
        return WorkerState.WAITING, FOR_BUNDLES
    if not worker.confirmed:
        return WorkerState.WAITING, "for this host's assignment"
    if now < worker.life.not_before:
        return WorkerState.BACKOFF, ""
    return WorkerState.WAITING, "" if worker.barrier is Barrier.HELD else "for its barrier"
