"""Distributions in waves while one host cannot write: whether they stop or go on, when, and what
their record says of the host.

Always: compared with what a wave is told to do, and not with the plan of the leader.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from simulation.faults import Faults
from simulation.record_history import ROOT
from simulation.simulated_cluster import SimulatedCluster
from simulation.steps import Step
from simulation.users import Users

HURT_SIZES = {"hurt wave": 1, "hurt pairs": 2}
"""The number of hosts of a wave, by the kind of step."""
HURT_SECS = 50.0
"""How long the disk of the host is full."""
PATIENCE_SECS = 30.0
"""A host that fails for so long counts as broken."""
WAVE_SECS = 1.5
"""Longest time of a wave whose hosts are well."""
LATE_SECS = 5.0
LOOK_SECS = 0.1


async def hurt_wave(cluster: SimulatedCluster, users: Users, faults: Faults, step: Step) -> str:
    """Lets a host's disk be full, and distributes a bundle that no host has. Returns what went
    wrong. The host is not one of the last wave, which waits much longer."""
    hosts, size = [host.name for host in cluster.supervisors], HURT_SIZES[step.kind]
    hurt, began = hosts[step.number - 1], cluster.loop.now
    faults.happen(Step(0.0, "full", hurt, secs=HURT_SECS))
    if error := (await users.call(step)).error:
        return f"is told {error}"
    most = PATIENCE_SECS + LATE_SECS + WAVE_SECS * len(hosts)
    while (record := _record(cluster, step.what))["state"] == "running":
        if cluster.loop.now - began > most:
            return f"{cluster.loop.now - began:.1f} s later it is still running"
        await asyncio.sleep(LOOK_SECS)
    took = cluster.loop.now - began
    if took < PATIENCE_SECS:
        return f"it ended after {took:.1f} s: {record}"
    stops = size == 1
    told = hosts[: step.number] if stops else hosts
    return _wrong_end(record, "stopped" if stops else "complete", hurt, hosts) or _wrong_orders(cluster, step, told)


def _record(cluster: SimulatedCluster, bundle: str) -> dict[str, Any]:
    return dict(json.loads(cluster.zookeeper.nodes[f"{ROOT}/distributions/{bundle}"].data))


def _wrong_end(record: dict[str, Any], state: str, hurt: str, hosts: list[str]) -> str:
    named = [host for host in hosts if host in record["reason"]]
    right = record["state"] == state and named == [hurt]
    return "" if right else f"it is {record['state']} and not {state}: {record['reason']}"


def _wrong_orders(cluster: SimulatedCluster, step: Step, hosts: list[str]) -> str:
    nodes = {host.name: cluster.zookeeper.nodes.get(f"{ROOT}/assignments/{host.name}") for host in cluster.supervisors}
    told = [name for name, node in nodes.items() if node is not None and step.what in json.loads(node.data)["bundles"]]
    return "" if told == hosts else f"{told} were told to fetch it, and not {hosts}"
