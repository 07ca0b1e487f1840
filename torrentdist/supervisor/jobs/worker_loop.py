"""Carries out the worker plan: makes the processes on this host match the local state.

Always: every action comes from worker_plan.py.
Never: fetch bundles (the keeper does), or use ZooKeeper except through `Barriers`.
"""

import asyncio
import contextlib
import time

from torrentdist.log import get_logger
from torrentdist.supervisor.exclusivity.barriers import resource_of
from torrentdist.supervisor.exclusivity.lease_keeper import LeaseKeeper
from torrentdist.supervisor.jobs import placement
from torrentdist.supervisor.jobs.worker_starts import WorkerEnds, WorkerStarts
from torrentdist.supervisor.jobs.worker_table import WorkerTable
from torrentdist.supervisor.worker import worker_plan
from torrentdist.supervisor.worker.worker_plan import (
    CarryOver,
    EndRun,
    Forget,
    ReleaseBarrier,
    StartWorker,
    TakeBarrier,
)
from torrentdist.supervisor.worker.worker_types import Key, Measure, Worker

log = get_logger()

LOOK_SECS = 10.0
"""Longest pause between two rounds while no worker runs."""
BUSY_LOOK_SECS = 1.0
"""Longest pause between two rounds while a worker runs."""
WAITING_LOOK_SECS = 0.2
"""Longest pause between two rounds while a worker waits for its bundles."""


class WorkerLoop:
    def __init__(
        self, table: WorkerTable, leases: LeaseKeeper, starts: WorkerStarts, ends: WorkerEnds, wake: asyncio.Event
    ) -> None:
        """`wake` is set when something has changed and the next round should start at once."""
        self._table = table
        self._leases = leases
        self._starts = starts
        self._ends = ends
        self._wake = wake

    async def run(self) -> None:
        while True:
            self._wake.clear()
            await self._table.look_at_heartbeats()
            now = time.monotonic()
            found, lease = self._table.workers(), self._leases.lease()
            await self._note_arrivals(found)
            for action in (actions := worker_plan.plan(found, lease, now)):
                if not self._ends.is_forgetting(action.key):
                    self._carry_out(action)
            self._starts.hold_barriers()
            await self._leases.renew()
            await self._note_carried({a.key: a.session for a in actions if isinstance(a, CarryOver)})
            pause = min(worker_plan.due_at(found, lease, now) - now, self._longest_pause(found))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.005, pause)):
                    await self._wake.wait()

    async def _note_arrivals(self, found: list[Worker]) -> None:
        """Records when all of a worker's bundles first were here. The job's story shows it."""
        for worker in found:
            place = placement.place_of(self._table.local.state, worker.key)
            if worker.bundles_here and place is not None and not place.fetched_at:
                key, at = worker.key, time.time()
                await self._table.local.note(lambda state, key=key, at=at: placement.fetched(state, key, at))  # type: ignore[misc]

    async def _note_carried(self, sessions: dict[Key, int]) -> None:
        """Records the new session of runs that were carried over, after their guardians know it.

        If the supervisor restarts before this is on disk, those runs end.
        """
        if sessions:
            log.info("workers run on in a new session", workers=len(sessions))
            await self._table.local.note(lambda state: placement.carried(state, sessions))

    def _longest_pause(self, found: list[Worker]) -> float:
        if any(w.assigned and w.launch is not None and not w.bundles_here for w in found):
            return WAITING_LOOK_SECS
        return BUSY_LOOK_SECS if self._table.running.keys() else LOOK_SECS

    def _carry_out(self, action: worker_plan.Action) -> None:
        barriers, running = self._leases.barriers, self._table.running
        match action:
            case TakeBarrier(key):
                barriers.take(resource_of(key))
            case ReleaseBarrier(key):
                barriers.release(resource_of(key))
            case StartWorker(key):
                self._starts.begin(key)
            case CarryOver(key, session):
                running.carry_over(key, session)
            case EndRun(key, measure, reason):
                if running.end(key, measure):
                    say = log.warning if measure is Measure.DESTROY else log.info
                    say("ending a worker", job=key[0], worker=key[1], how=measure, reason=reason)
            case Forget(key):
                self._ends.begin_forgetting(key)
