"""Steps of stories that are whole scenes: several calls of users and faults that belong together,
and what must be seen meanwhile.

Always: a scene returns what went wrong first, in the words of its step's sentence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from simulation.absent_hosts import absent_host
from simulation.cancelled_orders import cancel_order
from simulation.faults import Faults
from simulation.hidden_uploads import leave_upload, send_over_http, show_hidden, upload_twins
from simulation.hurt_waves import HURT_SIZES, hurt_wave
from simulation.kept_versions import keep_newest, keep_young, locked
from simulation.outages import masters_away, zookeeper_away
from simulation.pruned_hosts import prune_in_use
from simulation.record_history import ROOT
from simulation.silent_hosts import lose_masters, silence_host
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_runs import SimulatedRunning
from simulation.steps import Step
from simulation.undropped_content import remove_undropped
from simulation.users import Users

Scene = Callable[[SimulatedCluster, Users, Faults, Step], Awaitable[str]]
RUNS_SECS = 6.0
"""How soon the workers of a job run, also if one host cannot be told to run any."""


async def wait(cluster: SimulatedCluster, _: Users, __: Faults, step: Step) -> str:
    await asyncio.sleep(step.secs)
    return ""


async def submit_past_lock(cluster: SimulatedCluster, users: Users, _: Faults, step: Step) -> str:
    """Submits a job while the assignment of one host cannot be written: its workers run on the
    others. Returns what went wrong."""
    path = f"{ROOT}/assignments/{step.who}"
    with locked(cluster, [path] if path in cluster.zookeeper.nodes else []):
        if error := (await users.call(Step(0.0, "submit", "ann", step.what))).error:
            return f"ann is told {error}"
        if not await cluster.until(lambda: len(SimulatedRunning.all_runs.living()) == step.number, RUNS_SECS):
            return f"{len(SimulatedRunning.all_runs.living())} workers run instead of {step.number}"
    return ""


SCENES: dict[str, Scene] = {
    **dict.fromkeys(HURT_SIZES, hurt_wave),
    "wait": wait, "show hidden": show_hidden, "send over http": send_over_http, "twins": upload_twins,
    "leave upload": leave_upload, "silence": silence_host, "lose masters": lose_masters, "rule": keep_newest,
    "young rule": keep_young, "submit past lock": submit_past_lock, "masters away": masters_away,
    "zookeeper away": zookeeper_away, "cancelled": cancel_order,
    "prune in use": prune_in_use, "absent": absent_host, "undropped": remove_undropped,
}  # fmt: skip
