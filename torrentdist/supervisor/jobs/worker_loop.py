"""The workers of jobs on this host: the loop that makes processes match local state (assigning.py has the other one).

Always holds: what the plan of workers.py says is done, and nothing else; local state is on disk before a worker starts
and after it is gone. Must not do: fetch bundles (the keeper's), or talk to ZooKeeper but through barriers.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import structlog

from torrentdist.bundle.store.store import Store, StoredBundle
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.launcher.launcher_client import starter
from torrentdist.launcher.run.run_lease import clock
from torrentdist.model.configuration.config import SupervisorConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.jobs.job import JobKind, OnIsolation
from torrentdist.model.wire.doctor_views import IsolationView
from torrentdist.model.wire.job_messages import WorkerReport
from torrentdist.supervisor.exclusivity.barriers import Barriers, Seat, resource_of
from torrentdist.supervisor.exclusivity.isolation import Isolation
from torrentdist.supervisor.exclusivity.lease_file import Inherited, LeaseFile
from torrentdist.supervisor.jobs import local_state, placement
from torrentdist.supervisor.jobs.assignment_loop import Assigning, Facts
from torrentdist.supervisor.jobs.local_ledger import Ledger
from torrentdist.supervisor.jobs.local_state import JobFacts, Left, RunRecord, WorkerPlace
from torrentdist.supervisor.process import last_words, launching
from torrentdist.supervisor.process.guardian_processes import GuardianStatus
from torrentdist.supervisor.process.launching import Homes
from torrentdist.supervisor.process.running import Handle, Running
from torrentdist.supervisor.process.spark_applications import Applications, SparkDriver
from torrentdist.supervisor.worker import worker_plan
from torrentdist.supervisor.worker.heartbeat_files import Pulse
from torrentdist.supervisor.worker.worker_plan import (
    CarryOver,
    Destroy,
    Forget,
    Key,
    KillWorker,
    Launch,
    ReleaseBarrier,
    Run,
    RunLease,
    StartWorker,
    StopWorker,
    TakeBarrier,
    Worker,
)
from torrentdist.supervisor.worker.worker_reports import report_of

log = structlog.get_logger(__name__)

LOOK_SECS = 10.0
WAITING_LOOK_SECS = 0.2
"""How often it looks whether bundles have arrived."""
MARK_SECS = 5.0
PROLONG_SECS = 1.0
FAILED_START_SECS = 1.0
SILENT_CODE = 1
"""What the end of a silent worker counts as, whatever it says itself."""
OUTPUT_LOOK_SECS = 3600.0


class WorkerLoop:
    def __init__(
        self,
        zk: ZooKeeper,
        store: Store,
        left: Left,
        facts: Facts,
        isolation: Isolation,
        on_needs: Callable[[], None],
        on_lease: Callable[[], None],
        applications: Callable[[Callable[[], None]], Applications],
        settings: SupervisorConfig,
        trouble: Callable[[BundleId], str],
    ) -> None:
        """`trouble`: why a bundle could not be fetched; empty if it may yet come. `on_lease`: see Barriers."""
        self._trouble = trouble
        self._log_keep_secs = settings.log_keep_secs
        self.launcher = settings.launcher
        self.starter = starter(settings.launcher)
        self._store = store
        self._isolation = isolation
        self._on_needs = on_needs
        self.homes = Homes(store.data_dir.absolute())
        self._boot = left.boot
        self._ledger = Ledger(store.data_dir, left.state, self._changed)
        self.assigning = Assigning(self._ledger, facts, on_needs)
        self._pulse = Pulse()
        self._starts: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self.on_report: Callable[[], None] = lambda: None
        """Something has changed that the leader should hear of."""
        self.applications = applications(self._changed)
        self.checked: Callable[[BundleId], Awaitable[StoredBundle | None]]
        """A bundle, if it is here as it was published; the keeper knows."""
        self.gateway = ""
        """The URL of this host's."""
        self.running = Running(self.starter, self._ended, self._changed)
        self.barriers = Barriers(zk, self._save_seat, self._changed, on_lease)
        self.lease_file = LeaseFile(self.homes.lease)
        self._inherited: tuple[int, Inherited] | None = None
        """The session of the process before us, and what it allowed."""

        if left.seat is not None:
            session, inherited = left.seat.session.id, self.lease_file.read(left.seat.session.id)
            # Also of workers that never ran: their barriers may be there.
            resources = [resource_of(place.key) for place in left.state.places]
            self.barriers.take_up(left.seat, resources, inherited.to_prove.timeout)
            self._inherited = session, inherited
            isolation.take_up(inherited)

    def loops(self) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        """What has to run, once; first of all, what the process before us has started is found."""
        self._adopt()
        return [
            ("workers", self.run()),
            ("barriers", self.barriers.run()),
            ("assigning", self.assigning.run()),
            ("isolation", self._isolation.watch(self.barriers, self)),
            ("output", self.watch_output()),
            ("applications", self.applications.run(self.drivers)),
        ]

    def _adopt(self) -> None:
        for place in self._ledger.state.places:
            if place.run is not None:
                self.running.adopt(place.key, place.run, self.homes.guard(place.key))

    # what others want to know

    @property
    def generation(self) -> int:
        return self._ledger.state.generation

    @property
    def busy(self) -> bool:
        return bool(self.running.keys())

    def needs(self) -> frozenset[BundleId]:
        return placement.needs(self._ledger.state)

    def placed(self) -> frozenset[Key]:
        return frozenset(place.key for place in self._ledger.state.places)

    def reports(self) -> list[WorkerReport]:
        now = time.monotonic()
        return [self._report(place, now) for place in self._ledger.state.places]

    def _report(self, place: WorkerPlace, now: float) -> WorkerReport:
        handle, facts = self.running.get(place.key), self._ledger.state.jobs.get(place.job)
        worker, application = self._worker(place), self.applications.of(place.key)
        missing = [] if facts is None else [self._trouble(b) for b in sorted(facts.needs) if self._content(b) is None]
        return report_of(place, worker, handle, application, next(filter(None, missing), ""), now)

    def drivers(self) -> list[SparkDriver]:
        """Of the Spark jobs that run here."""
        found = []
        for place in self._ledger.state.places:
            facts, handle = self._ledger.state.jobs.get(place.job), self.running.get(place.key)
            if facts is not None and handle is not None and facts.spec.kind is JobKind.SPARK:
                found.append(SparkDriver(place.key, handle.run.id, handle.pid, facts.spec.spark.ui_port))
        return found

    def isolation(self) -> IsolationView:
        """Blocks: it asks the launcher."""
        try:
            found = self.starter.isolation()
        except OSError as error:
            return IsolationView(namespaces=False, launcher=self.launcher, error=str(error))
        return IsolationView(namespaces=found.namespaces, why_not=found.why_not, launcher=self.launcher)

    # the second loop: processes follow local state

    async def run(self) -> None:
        while True:
            self._wake.clear()
            now = time.monotonic()
            found, lease = self._workers(), self._lease()
            await self._note_arrivals(found)
            for action in (actions := worker_plan.plan(found, lease, now)):
                await self._carry_out(action)
            self._use_barriers()
            self._renew_lease()
            await self._note_carried({a.key: a.session for a in actions if isinstance(a, CarryOver)})
            pause = min(worker_plan.due_at(found, lease, now) - now, self._patience(found))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.005, pause)):
                    await self._wake.wait()

    async def _note_arrivals(self, found: list[Worker]) -> None:
        """For the job's story."""
        for worker in found:
            place = placement.place_of(self._ledger.state, worker.key)
            if worker.bundles_here and place is not None and not place.fetched_at:
                key, at = worker.key, time.time()
                await self._ledger.note(lambda state, key=key, at=at: placement.fetched(state, key, at))  # type: ignore[misc]

    async def _note_carried(self, sessions: dict[Key, int]) -> None:
        """After their guardians know: until this is on disk, a restart of ours ends them."""
        if sessions:
            log.info("workers run on in a new session", workers=len(sessions))
            await self._ledger.note(lambda state: placement.carried(state, sessions))

    def _patience(self, found: list[Worker]) -> float:
        if any(w.assigned and w.launch is not None and not w.bundles_here for w in found):
            return WAITING_LOOK_SECS
        return 1.0 if self.busy else LOOK_SECS

    def prolonged(self) -> None:
        self._wake.set()

    def _changed(self) -> None:
        self._wake.set()
        self.on_report()

    def _workers(self) -> list[Worker]:
        return [self._worker(place) for place in self._ledger.state.places]

    def _worker(self, place: WorkerPlace) -> Worker:
        facts = self._ledger.state.jobs.get(place.job)
        handle = self.running.get(place.key)
        return Worker(
            key=place.key,
            assigned=place.assigned,
            active=place.active,
            launch=None if facts is None else _launch(facts),
            bundles_here=facts is not None and all(map(self._content, facts.needs)),
            barrier=self.barriers.state_of(resource_of(place.key)),
            run=None if handle is None else _run(handle, self._is_silent(handle, facts)),
            life=placement.life_of(place, clock() - time.monotonic()),
        )

    def _is_silent(self, handle: Handle, facts: JobFacts | None) -> bool:
        if facts is None or not handle.pid:
            return False
        return self._pulse.is_silent(handle.run.id, handle.home, facts.spec, time.monotonic())

    def _content(self, bundle: BundleId) -> Path | None:
        digest = self._store.lookup(bundle)
        stored = self._store.get(digest) if digest is not None else None
        return None if stored is None else stored.content

    def _lease(self) -> RunLease:
        """On the monotonic clock."""
        session, stop, kill = self.barriers.session, self.barriers.lease.stop, self.barriers.kill_at
        ahead = clock() - time.monotonic()
        if self._inherited is not None and self._inherited[0] == session and not self.barriers.leased:
            stop, kill = self._inherited[1].stop - ahead, self._inherited[1].kill - ahead
        return RunLease(session, stop, kill, self._isolation.proven - ahead, self.barriers.ending_secs)

    def _write_lease(self) -> None:
        proven, barriers = self._isolation.proven, self.barriers
        if self.busy and (barriers.leased or clock() < proven):
            host = barriers.host_lease()
            lease = RunLease(host.session, host.stop, host.kill, proven, barriers.ending_secs)
            self.lease_file.write(lease, host.extent, self._runs(), self._isolation.to_leave(barriers))

    def _renew_lease(self) -> None:
        """When that fails, the guardians end their workers in time."""
        try:
            self._write_lease()
        except OSError as error:
            log.error("the workers' lease cannot be written", reason=str(error))

    def _runs(self) -> dict[str, tuple[Run, bool]]:
        """Each with whether it is assigned here."""
        found = [(place, self.running.get(place.key)) for place in self._ledger.state.places]
        return {h.run.id: (_run(h, silent=False), place.assigned) for place, h in found if h is not None}

    async def _carry_out(self, action: worker_plan.Action) -> None:
        match action:
            case TakeBarrier(key):
                self.barriers.take(resource_of(key))
            case ReleaseBarrier(key):
                self.barriers.release(resource_of(key))
            case StartWorker(key):
                self._begin(key)
            case CarryOver(key, session):
                self.running.carry_over(key, session)
            case StopWorker(key, reason):
                log.info("stopping a worker", job=key[0], worker=key[1], reason=reason)
                self.running.stop(key)
            case KillWorker(key, reason):
                log.info("killing a worker", job=key[0], worker=key[1], reason=reason)
                self.running.kill(key)
            case Destroy(key):
                log.warning("a guardian does not end its worker", job=key[0], worker=key[1])
                self.running.destroy(key)
            case Forget(key):
                await asyncio.to_thread(launching.clean_up, self.homes, key)
                await self._ledger.note(lambda state: placement.forgotten(state, key))
                self._on_needs()

    # starting

    def _begin(self, key: Key) -> None:
        place = placement.place_of(self._ledger.state, key)
        session = self.barriers.session
        assert place is not None
        assert session is not None
        facts = self._ledger.state.jobs[place.job]
        run = launching.new_run(facts, session)
        self.running.begin(key, run, self.homes.guard(key))
        self._use_barriers()
        task = asyncio.create_task(self._start(key, facts, run), name=f"start {key}")
        self._starts.add(task)
        task.add_done_callback(self._starts.discard)

    async def _start(self, key: Key, facts: JobFacts, run: RunRecord) -> None:
        try:
            async with asyncio.timeout(MARK_SECS):
                fencing = await self.barriers.fencing()
            stderr_from = await asyncio.to_thread(last_words.end_of_stderr, self.homes.guard(key))
            run = msgspec.structs.replace(run, fencing=fencing, stderr_from=stderr_from)
            place = placement.place_of(self._ledger.state, key)
            found = {bundle: await self.checked(bundle) for bundle in facts.needs}
            here = {bundle: stored.content for bundle, stored in found.items() if stored is not None}
            if place is None or self.barriers.session != run.session or len(here) < len(facts.needs):
                raise TorrentdistError("closing", what=f"worker {key[1]} of {key[0]}")
            program = launching.program_of(place, facts, here, self.gateway)
            await asyncio.to_thread(launching.prepare, self.homes, program, run)
            await self._ledger.commit(lambda state: placement.started(state, key, run))
            self.running.begin(key, run, self.homes.guard(key))
            self._write_lease()
            await self.running.launch(key)
            log.info("worker started", job=key[0], worker=key[1], slot=place.slot, fencing=fencing)
        except (TorrentdistError, TimeoutError, OSError) as error:
            log.warning("worker not started", job=key[0], worker=key[1], reason=str(error))
            reason, not_before = str(error) or "ZooKeeper does not answer", clock() + FAILED_START_SECS
            await self._ledger.note(lambda state: placement.not_started(state, key, reason, not_before))
            self.running.abort(key)

    def _use_barriers(self) -> None:
        self.barriers.use(frozenset(map(resource_of, self.running.keys())))

    # ending

    async def _ended(self, key: Key, run: RunRecord, status: GuardianStatus | None) -> None:
        place = placement.place_of(self._ledger.state, key)
        if place is not None:
            life, detail = self._life_after(place, run, status)
            if life.exit_code and not detail:
                spark = key in {driver.key for driver in self.drivers()}
                detail = await asyncio.to_thread(
                    last_words.why_failed, self.homes.guard(key), run.stderr_from, spark=spark
                )
            told = last_words.printable_line(detail)
            await self._ledger.note(lambda state: placement.lived(state, key, life, told, time.time()))

    def _life_after(
        self, place: WorkerPlace, run: RunRecord, status: GuardianStatus | None
    ) -> tuple[worker_plan.Life, str]:
        """By the host's clock."""
        before = placement.life_of(place)
        facts = self._ledger.state.jobs.get(place.job)
        code = status.exit_code if status is not None else None
        reason = "its guardian was lost" if status is None else status.reason
        log.info("worker ended", job=place.job, worker=place.worker, exit_code=code, reason=reason or "by itself")
        if self._pulse.forget(run.id) and facts is not None and status is not None:
            ran = status.at - run.started_at
            return worker_plan.after_exit(
                before, facts.spec.restart, code or SILENT_CODE, ran, status.at
            ), "it was silent"
        if status is None or status.reason or code is None or facts is None or facts.incarnation != run.incarnation:
            return worker_plan.after_end(before, code), reason
        ran = status.at - run.started_at
        return worker_plan.after_exit(before, facts.spec.restart, code, ran, status.at), status.detail

    async def watch_output(self) -> None:
        while True:
            await asyncio.to_thread(launching.drop_orphans, self.homes, self.placed())
            await asyncio.to_thread(launching.drop_old_output, self.homes, self.placed(), self._log_keep_secs)
            await asyncio.sleep(OUTPUT_LOOK_SECS)

    # its end

    async def prolong(self) -> None:
        """Before the end: leave the next process as much time as there can be."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROLONG_SECS):
                await self.barriers.mark()
        await self._isolation.prolong(self.barriers, self)
        self._renew_lease()

    async def close(self) -> None:
        """Let go of the workers: whoever comes next finds them, or their guardians end them."""
        for task in list(self._starts):
            task.cancel()
        await asyncio.gather(*self._starts, return_exceptions=True)
        await self.running.close()

    async def _save_seat(self, seat: Seat) -> None:
        try:
            await asyncio.to_thread(local_state.save_seat, self.homes.data_dir, self._boot, seat)
        except OSError as error:  # the next process won't find it, and the workers end with the lease
            log.error("the session cannot be written down", reason=str(error))


def _launch(facts: JobFacts) -> Launch:
    spec = facts.spec
    return Launch(facts.incarnation, spec.stop_grace_secs, spec.on_isolation, spec.restart)


def _run(handle: Handle, silent: bool) -> Run:
    run = handle.run
    isolation = OnIsolation.RUN if run.lenient else OnIsolation.STOP
    return Run(run.incarnation, run.session, run.grace_secs, isolation, handle.measure, handle.measured_at, silent)
