"""Makes the tables of the protocol's model from the product's own functions: what a host knows of a
barrier, and what its plan does next, for every combination of what they depend on.

Always: the functions that run on hosts are asked. Nothing of them is written down again here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator

from msgspec.structs import replace

from torrentdist.cluster import paths
from torrentdist.cluster.rebalance.barrier_ownership import BarrierOwnership
from torrentdist.cluster.rebalance.group_requests import Commit, Errand, RequestKind
from torrentdist.model.ids import JobId
from torrentdist.model.jobs.job import OnIsolation
from torrentdist.supervisor.exclusivity.barriers import barrier_state
from torrentdist.supervisor.worker import worker_plan
from torrentdist.supervisor.worker.worker_types import Barrier, Key, Launch, Measure, Run, RunLease, Worker

BARRIERS = ("FREE", "ASKED", "UNCLEAR", "HELD")
STEPS = ("NOTHING", "TAKE", "RELEASE", "START", "CARRY", "STOP", "KILL", "RENEW")
KEY: Key = (JobId("job"), 0)
SESSION, OTHER = 1, 2
BITS = (False, True)
StateOf = Callable[[str, BarrierOwnership, Errand | None, Collection[str], Collection[str]], Barrier]


def tables(state_of: StateOf = barrier_state) -> str:
    """Returns the text of tables.inc."""
    named = [f"#define {name} {number}" for names in (BARRIERS, STEPS) for number, name in enumerate(names)]
    rows = [("looks", list(_looks(state_of))), ("plans", list(_plans()))]
    arrays = [f"hidden byte {name}[{len(row)}] = {{ {', '.join(row)} }};" for name, row in rows]
    return "\n".join([*named, *arrays, ""])


def _looks(state_of: StateOf) -> Iterator[str]:
    """Yields what is known of a barrier, whether it is owned, unclear, wanted or in use, and for
    each request under way."""
    for owned, unclear, wanted, used in itertools.product(BITS, repeat=4):
        known = BarrierOwnership(paths.JOB_GROUP, "host", session=SESSION)
        known = replace(known, owned={"w": 1} if owned else {}, unclear=frozenset({"w"} if unclear else ()))
        for kind in (None, RequestKind.TAKE, RequestKind.RELEASE):
            errand = None if kind is None else Errand(kind, Commit(()), ("w",))
            yield state_of("w", known, errand, {"w"} if wanted else (), {"w"} if used else ()).name


def _plans() -> Iterator[str]:
    """Yields what the plan does, with each barrier, at each step of a lease, with each run."""
    for assigned, barrier, step in itertools.product(BITS, BARRIERS, range(4)):
        yield _next(assigned, Barrier[barrier], step, None, True)
        for measure, current, session in itertools.product((Measure.NONE, Measure.STOP, Measure.KILL), BITS, BITS):
            own = SESSION if current and session else OTHER
            run = Run("1", own, 1.0, OnIsolation.STOP, measure, measured_at=float(step))
            yield _next(assigned, Barrier[barrier], step, run, session)


def _next(assigned: bool, barrier: Barrier, step: int, run: Run | None, session: bool) -> str:
    launch = Launch("1", 1.0) if run is None else Launch(run.incarnation, run.grace_secs)
    worker = Worker(KEY, assigned, launch=launch, bundles_here=True, barrier=barrier, run=run)
    now, stop, kill = float(step), 0.5, 1.5
    lease = RunLease(SESSION if session else None, stop, kill)
    match worker_plan.plan([worker], lease, now):
        case [worker_plan.TakeBarrier()]:
            return "TAKE"
        case [worker_plan.ReleaseBarrier()]:
            return "RELEASE"
        case [worker_plan.StartWorker()]:
            return "START"
        case [worker_plan.CarryOver()]:
            return "CARRY"
        case [worker_plan.EndRun(_, measure, _)]:
            return "STOP" if measure is Measure.STOP else "KILL"
    return "NOTHING"
