"""Begins and ends the runs of a worker: obtains its fencing number, creates its directory,
records the run on disk and starts its guardian; records its end, and cleans up after a worker
that leaves this host.

Always: the run is in the local state on disk and in the lease file before its guardian starts. A
failed start, whatever the error, is recorded with its reason and retried after a pause. An end is
in the local state before the worker can start again. An end that the supervisor caused does not
count as the worker's failure.
Never: decide which worker starts.
"""

import asyncio
import time
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from torrentdist.bundle.store.store import StoredBundle
from torrentdist.launcher.job_users import barred_users
from torrentdist.launcher.privileges import own_user
from torrentdist.launcher.run.run_lease import clock
from torrentdist.log import get_logger
from torrentdist.model.errors import EXIT_NOT_ALLOWED, TorrentdistError, required
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobKind
from torrentdist.security.job_token import token_of_job
from torrentdist.supervisor.exclusivity.barriers import resource_of
from torrentdist.supervisor.exclusivity.lease_keeper import LeaseKeeper
from torrentdist.supervisor.jobs import placement
from torrentdist.supervisor.jobs.local_state import JobFacts, LocalStateFile, RunRecord, WorkerPlace
from torrentdist.supervisor.jobs.worker_table import WorkerServices, WorkerTable
from torrentdist.supervisor.process import last_words, launching, worker_homes
from torrentdist.supervisor.process.guardian_processes import GuardianStatus
from torrentdist.supervisor.process.job_isolation import IsolationCheck
from torrentdist.supervisor.process.launching import Surroundings
from torrentdist.supervisor.process.spark_applications import Applications
from torrentdist.supervisor.process.worker_homes import Homes
from torrentdist.supervisor.worker.heartbeat_files import HeartbeatWatch
from torrentdist.supervisor.worker.worker_life import after_end, after_exit
from torrentdist.supervisor.worker.worker_types import Barrier, Key, Life
from torrentdist.supervisor.yarn.cluster_drivers import ClusterDrivers

log = get_logger()

MARK_SECS = 5.0
"""Timeout for ZooKeeper to provide a fencing number."""
FAILED_START_SECS = 1.0
"""Pause after a failed start."""
REFUSED_START_SECS = 10.0
"""Pause after a start that a signature does not allow."""
WAITS_FOR_YARN = ("earlier_application", "yarn_unavailable")
YARN_START_SECS = 3.0
"""Pause after a start that YARN holds up."""


class KnownApplications(NamedTuple):
    """What this host knows of the applications of Spark jobs."""

    here: Applications
    """Applications with a driver that is a process of this host."""
    in_yarn: ClusterDrivers


class WorkerStarts:
    def __init__(
        self,
        table: WorkerTable,
        leases: LeaseKeeper,
        homes: Homes,
        services: WorkerServices,
        check: IsolationCheck,
        applications: KnownApplications,
    ) -> None:
        self._applications, self._drivers = applications
        self._check = check
        self._table = table
        self._leases = leases
        self._homes = homes
        self._services = services
        self._starts: set[asyncio.Task[None]] = set()

    def begin(self, key: Key) -> None:
        """Starts the worker in a new task. The worker counts as running immediately. Does nothing
        if its barrier or its place was lost since the plan was made."""
        place = placement.place_of(self._table.local.state, key)
        session = self._leases.barriers.session
        if place is None or session is None or self._leases.barriers.state_of(resource_of(key)) is not Barrier.HELD:
            return
        facts = self._table.local.state.jobs[place.job]
        run = launching.new_run(facts, session)
        self._applications.forget(key)
        self._table.running.begin(key, run, self._homes.guard(key))
        self.hold_barriers()
        task = asyncio.create_task(self._start(key, facts, run), name=f"start {key}")
        self._starts.add(task)
        task.add_done_callback(self._starts.discard)

    def hold_barriers(self) -> None:
        """Tells `Barriers` which barriers to keep: those of all workers that run or are
        starting."""
        self._leases.barriers.use(frozenset(map(resource_of, self._table.running.keys())))

    async def close(self) -> None:
        """Cancels the starts that are in progress."""
        for task in list(self._starts):
            task.cancel()
        await asyncio.gather(*self._starts, return_exceptions=True)

    async def _start(self, key: Key, facts: JobFacts, run: RunRecord) -> None:
        local, running = self._table.local, self._table.running
        try:
            async with asyncio.timeout(MARK_SECS):
                fencing = await self._leases.barriers.fencing()
            stderr_from = await asyncio.to_thread(last_words.end_of_stderr, self._homes.guard(key))
            run = msgspec.structs.replace(run, fencing=fencing, stderr_from=stderr_from)
            run = await self._prepare(key, facts, run)
            if run.yarn is not None:
                await self._drivers.hold_back(key, run)
            await local.commit(lambda state: placement.started(state, key, run))
            running.begin(key, run, self._homes.guard(key))
            await self._leases.write()
            await running.launch(key)
            log.info("worker started", job=key[0], worker=key[1], fencing=fencing)
        except Exception as error:  # whatever it is, the worker must not count as running
            bug = None if isinstance(error, TorrentdistError | OSError) else error
            log.warning("worker not started", job=key[0], worker=key[1], reason=str(error), exc_info=bug)
            reason = last_words.printable_line(str(error)) or "ZooKeeper does not answer"
            not_before = clock() + _pause_after(error)
            try:
                await local.note(lambda state: placement.not_started(state, key, reason, not_before))
            finally:
                running.abort(key)

    async def _prepare(self, key: Key, facts: JobFacts, run: RunRecord) -> RunRecord:
        """Creates the worker's directory and its guardian's orders. Returns the run, and where its
        application is found. Raises an error if the worker's place, its session or one of its
        bundles is gone meanwhile."""
        place = placement.place_of(self._table.local.state, key)
        stored = await self._stored(facts)
        if place is None or self._leases.barriers.session != run.session or len(stored) < len(facts.needs):
            raise TorrentdistError("closing", what=f"worker {key[1]} of {key[0]}")
        facts = msgspec.structs.replace(facts, spec=await self._services.spec_of(key[0], facts, stored))
        contents = {bundle: held.content for bundle, held in stored.items()}
        program = launching.program_of(place, facts, contents, self._services.gateway)
        program = replace(program, surroundings=await self._surroundings(key[0]))
        if facts.spec.drives_in_yarn:
            cluster = self._table.local.state.cluster
            run = await asyncio.to_thread(launching.with_yarn, self._homes, program, run, cluster)
        await asyncio.to_thread(launching.prepare, self._homes, program, run)
        return run

    async def _surroundings(self, job: JobId) -> Surroundings:
        """Chooses the job's user. Raises an error if there is none, or if jobs are refused here."""
        policy, local = self._check.policy, self._table.local
        users = await asyncio.to_thread(self._check.users)
        token = token_of_job(self._services.job_key, job) if self._services.job_key else ""
        log_bytes, log_files = self._services.settings.log_bytes, self._services.settings.log_files
        shared = Surroundings(policy.pass_env, policy.hidden, None, token, log_bytes, log_files)
        if not users.size:
            return shared
        seed = str(self._homes.data_dir)
        if local.state.users.get(job) is None or not users.has(local.state.users[job]):
            barred = await asyncio.to_thread(barred_users, users, own_user())
            await local.commit(lambda state: placement.with_user(state, job, users, seed, barred))
        uid = required(local.state.users.get(job), "jobs_not_isolated", detail=f"each user of {users} has a job here")
        return replace(shared, uid=uid)

    async def _stored(self, facts: JobFacts) -> dict[BundleId, StoredBundle]:
        """Returns the needed bundles whose files are as they were published."""
        found = {bundle: await self._services.checked(bundle) for bundle in facts.needs}
        return {bundle: stored for bundle, stored in found.items() if stored is not None}


def _pause_after(error: Exception) -> float:
    """Returns the seconds until a start is tried again."""
    if not isinstance(error, TorrentdistError):
        return FAILED_START_SECS
    if error.code in WAITS_FOR_YARN:
        return YARN_START_SECS
    return REFUSED_START_SECS if error.exit_code == EXIT_NOT_ALLOWED else FAILED_START_SECS


SILENT_CODE = 1
"""Exit code recorded for a silent worker that exits with 0."""


class WorkerEnds:
    def __init__(self, local: LocalStateFile, homes: Homes, heartbeats: HeartbeatWatch) -> None:
        self._local = local
        self._homes = homes
        self._heartbeats = heartbeats
        self._forgetting: dict[Key, asyncio.Task[None]] = {}

    async def ended(self, key: Key, run: RunRecord, status: GuardianStatus | None) -> None:
        """Records the end of a run. `status` is its guardian's last status, or None if the guardian
        was lost."""
        place = placement.place_of(self._local.state, key)
        if place is None:
            return
        life, detail = self._life_after(place, run, status)
        if life.exit_code and not detail:
            facts = self._local.state.jobs.get(place.job)
            spark = facts is not None and facts.spec.kind is JobKind.SPARK
            detail = await asyncio.to_thread(
                last_words.why_failed, self._homes.guard(key), run.stderr_from, spark=spark
            )
        told = last_words.printable_line(detail)
        await self._local.note(lambda state: placement.lived(state, key, life, told, time.time()))

    def is_forgetting(self, key: Key) -> bool:
        """Whether the files of a worker are being removed. It may not start meanwhile."""
        return key in self._forgetting

    def begin_forgetting(self, key: Key) -> None:
        """Begins `_forget`, which may take minutes: nothing waits for it."""
        task = self._forgetting[key] = asyncio.create_task(self._forget(key), name=f"forget {key[0]}/{key[1]}")
        task.add_done_callback(lambda _: self._forgetting.pop(key))

    async def close(self) -> None:
        """Leaves the rest of the files to the next process."""
        for task in (tasks := list(self._forgetting.values())):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forget(self, key: Key) -> None:
        """Removes everything that an unassigned worker left here, except its output. If that fails,
        the worker keeps its place, so that the next round tries again."""
        try:
            await asyncio.to_thread(worker_homes.clean_up, self._homes, key)
        except Exception:
            log.exception("cannot remove what a worker left", job=key[0], worker=key[1])
            return
        await self._local.note(lambda state: placement.forgotten(state, key))

    def _life_after(self, place: WorkerPlace, run: RunRecord, status: GuardianStatus | None) -> tuple[Life, str]:
        """Returns the worker's life on the host's clock, and why the run ended."""
        before = placement.life_of(place)
        facts = self._local.state.jobs.get(place.job)
        code = status.exit_code if status is not None else None
        reason = "its guardian was lost" if status is None else status.reason
        log.info("worker ended", job=place.job, worker=place.worker, exit_code=code, reason=reason or "by itself")
        silent = self._heartbeats.forget(run.id)
        if status is None:  # It may have been refused its start, and would be again.
            return replace(after_end(before, code), not_before=clock() + FAILED_START_SECS), reason
        if facts is None:
            return after_end(before, code), reason
        ran = status.at - run.started_at
        if silent:
            return after_exit(before, facts.spec.restart, code or SILENT_CODE, ran, status.at), "it was silent"
        if status.reason or code is None or facts.incarnation != run.incarnation:
            return after_end(before, code), reason
        return after_exit(before, facts.spec.restart, code, ran, status.at), status.detail
