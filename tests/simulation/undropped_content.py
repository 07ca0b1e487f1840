"""Bundles that are removed while a daemon cannot delete anything: the cluster knows that they are
removed for as long as the daemon has them, and it drops them as soon as it can.

Always: compared with the disks and the records, and not with what daemons say.
"""

from __future__ import annotations

import asyncio
import json

from simulation.faults import Faults
from simulation.invariants import published
from simulation.record_history import ROOT
from simulation.simulated_cluster import SimulatedCluster
from simulation.steps import Step
from simulation.users import Users

DISKS = ("read-only disk", "broken disk")
LOCKED_SECS = 55.0
"""Longer than a removed bundle is remembered in these stories, and a leader's next looks."""
DROPPED_SECS = 15.0


async def remove_undropped(cluster: SimulatedCluster, users: Users, faults: Faults, step: Step) -> str:
    """Removes a bundle while the disk of a daemon takes no change. Returns what went
    wrong. `number`: which of those that have it, and why."""
    path = f"{ROOT}/code-distributor/{step.what}"
    digest = json.loads(cluster.zookeeper.nodes[path].data)["digest"]
    having = [host for host in cluster.hosts if digest in published(host.data_dir)]
    host = having[step.number // len(DISKS) % len(having)] if having else cluster.hosts[0]
    faults.happen(Step(0.0, DISKS[step.number % len(DISKS)], host.name, secs=LOCKED_SECS))
    began = cluster.loop.now
    if error := (await users.call(Step(0.0, "remove", step.who, step.what))).error:
        return f"the removal is told {error}"
    if not having or _is_named(cluster, digest):
        await asyncio.sleep(LOCKED_SECS + DROPPED_SECS)  # Its content stays, or is lost.
        return ""
    while cluster.loop.now - began < LOCKED_SECS - 1.0:
        if digest not in published(host.data_dir):
            return f"{host.name} drops it from a disk that takes no change"
        if path not in cluster.zookeeper.nodes:
            return f"it is forgotten after {cluster.loop.now - began:.0f} s, and {host.name} still has it"
        await asyncio.sleep(1.0)
    dropped = await cluster.until(lambda: digest not in published(host.data_dir), DROPPED_SECS)
    return "" if dropped else f"{host.name} still has it {DROPPED_SECS:.0f} s after it can drop it"


def _is_named(cluster: SimulatedCluster, digest: str) -> bool:
    """Whether a bundle has this content that is not removed."""
    nodes, top = cluster.zookeeper.nodes, f"{ROOT}/code-distributor"
    records = [json.loads(nodes[f"{top}/{name}"].data) for name in nodes[top].children]
    return any(record["digest"] == digest and record["state"] != "removed" for record in records)
