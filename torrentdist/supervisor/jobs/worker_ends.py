"""Records the end of a worker's run, and cleans up after a worker that leaves this host.

Always: an end is in the local state before the worker can start again. An end that the supervisor
caused does not count as the worker's failure.
"""

import asyncio
import time

from torrentdist.log import get_logger
from torrentdist.model.jobs.job import JobKind
from torrentdist.supervisor.jobs import placement
from torrentdist.supervisor.jobs.local_state import LocalStateFile, RunRecord, WorkerPlace
from torrentdist.supervisor.process import last_words, worker_homes
from torrentdist.supervisor.process.guardian_processes import GuardianStatus
from torrentdist.supervisor.process.worker_homes import Homes
from torrentdist.supervisor.worker.heartbeat_files import HeartbeatWatch
from torrentdist.supervisor.worker.worker_life import after_end, after_exit
from torrentdist.supervisor.worker.worker_types import Key, Life

log = get_logger()

SILENT_CODE = 1
"""Exit code recorded for a silent worker that exits with 0."""


class WorkerEnds:
    def __init__(self, local: LocalStateFile, homes: Homes, heartbeats: HeartbeatWatch) -> None:
        self._local = local
        self._homes = homes
        self._heartbeats = heartbeats

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

    async def forget(self, key: Key) -> None:
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
        if status is None or facts is None:
            return after_end(before, code), reason
        ran = status.at - run.started_at
        if silent:
            return after_exit(before, facts.spec.restart, code or SILENT_CODE, ran, status.at), "it was silent"
        if status.reason or code is None or facts.incarnation != run.incarnation:
            return after_end(before, code), reason
        return after_exit(before, facts.spec.restart, code, ran, status.at), status.detail
