"""What users are told while no master answers, and while ZooKeeper is away, and how soon a master
leads after that.

Always: compared with the faults of the story, and not with what daemons say.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from simulation.faults import Faults
from simulation.simulated_cluster import SimulatedCluster, leads
from simulation.steps import Step
from simulation.users import Users

AWAY_SECS = 45.0
"""Longer than users wait."""
KNOWN_SECS = 4.0
"""Masters know by then that ZooKeeper is away."""
CLOSE_SECS = 2.0
"""How far the told age of an answer may be from its age."""
BACK_SECS = 12.0


@dataclass(frozen=True)
class Told:
    """What a user must be told by a call: the code of an error, or nothing, after so long."""

    kind: str
    error: str
    least_secs: float
    most_secs: float


NO_MASTER = (Told("read", "unreachable", 0.5, 2.5), Told("pin", "unreachable", 1.0, 7.0))
"""All of them refuse connections, so no user waits long."""
NO_ZOOKEEPER = (Told("read", "", 0.0, 0.5), Told("pin", "leader_not_found", 25.0, 33.0))


async def masters_away(cluster: SimulatedCluster, users: Users, faults: Faults, step: Step) -> str:
    """Kills all masters for longer than users wait. Returns what went wrong."""
    for master in cluster.masters:
        faults.happen(Step(0.0, "kill", master.name, secs=AWAY_SECS))
    began = cluster.loop.now
    wrong = await _wrong_calls(cluster, users, step, NO_MASTER)
    return wrong or await _wrong_return(cluster, began)


async def zookeeper_away(cluster: SimulatedCluster, users: Users, faults: Faults, step: Step) -> str:
    """Takes ZooKeeper away for longer than users wait. Returns what went wrong."""
    faults.happen(Step(0.0, "zookeeper down", "", secs=AWAY_SECS))
    began = cluster.loop.now
    await asyncio.sleep(KNOWN_SECS)
    wrong = await _wrong_calls(cluster, users, step, NO_ZOOKEEPER) or await _wrong_age(cluster, users, step, began)
    return wrong or await _wrong_return(cluster, began)


async def _wrong_calls(cluster: SimulatedCluster, users: Users, step: Step, told: tuple[Told, ...]) -> str:
    for right in told:
        began = cluster.loop.now
        call = await users.call(Step(0.0, right.kind, step.who, step.what))
        took = cluster.loop.now - began
        if call.error != right.error or not right.least_secs <= took <= right.most_secs:
            return f"{right.kind} is told {call.error or 'that all is well'} after {took:.1f} s"
    return ""


async def _wrong_age(cluster: SimulatedCluster, users: Users, step: Step, since: float) -> str:
    call = await users.call(Step(0.0, "look", step.who))
    away = cluster.loop.now - since
    if not call.succeeded:
        return f"look is told {call.error}"
    told = call.told[0].stale_secs
    return (
        "" if told is not None and abs(told - away) < CLOSE_SECS else f"{away:.1f} s old records count as {told} s old"
    )


async def _wrong_return(cluster: SimulatedCluster, began: float) -> str:
    await asyncio.sleep(max(0.0, began + AWAY_SECS - cluster.loop.now))
    back = await cluster.until(lambda: any(map(leads, cluster.masters)), BACK_SECS)
    return "" if back else f"nobody leads {BACK_SECS:.0f} s after that"
