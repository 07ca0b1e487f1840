"""What a host must still be told to do when it returns after a long absence.

Always: compared with what users had asked for before it went away.
"""

from __future__ import annotations

import asyncio
import json

from simulation.faults import Faults
from simulation.record_history import ROOT
from simulation.simulated_cluster import SimulatedCluster
from simulation.steps import Step
from simulation.users import Users

AWAY_SECS = 45.0
"""Longer than the records of these stories are kept that nobody needs any more."""
BACK_SECS = 5.0


async def absent_host(cluster: SimulatedCluster, users: Users, faults: Faults, step: Step) -> str:
    """A host that keeps a bundle and is drained goes away, and returns. Returns what went wrong.
    `number`: of the host."""
    for kind, what in (("send", step.what), ("drain", step.who)):
        if error := (await users.call(Step(0.0, kind, "ann", what, number=step.number))).error:
            return f"{kind} is told {error}"
    faults.happen(Step(0.0, "kill", step.who, secs=AWAY_SECS))
    await asyncio.sleep(AWAY_SECS + BACK_SECS)
    told = _told(cluster, step)
    if error := (await users.call(Step(0.0, "undrain", "ann", step.who))).error:
        return f"undrain is told {error}"
    return "" if told == (True, True) else f"it is told to keep it and counts as drained: {told}"


def _told(cluster: SimulatedCluster, step: Step) -> tuple[bool, bool]:
    """Returns whether the host must keep the bundle, and whether it is drained. It may have been
    told to keep others for a time."""
    node = cluster.zookeeper.nodes.get(f"{ROOT}/assignments/{step.who}")
    record = {} if node is None else json.loads(node.data)
    return step.what in record.get("bundles", ()), bool(record.get("draining"))
