"""Retention rules: which bundles they remove, and when, also while the record of one of them cannot
be written.

Always: what must go is reckoned from the records, and not by the product's rules.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.security import make_acl
from simulation.faults import Faults
from simulation.record_history import ROOT
from simulation.simulated_cluster import SimulatedCluster
from simulation.steps import Step
from simulation.users import Users

GONE_SECS = 4.5
"""How soon a bundle goes that a rule lets go: the leader judges two seconds after a change."""
TURN_SECS = 14.0
"""How soon after its record can be written again."""
ROUND_SECS = 30.0
"""Rules look so often whether a bundle has grown old."""
LOOK_SECS = 0.25
MOST_YOUNG_SECS = 15.0


async def keep_newest(cluster: SimulatedCluster, users: Users, _: Faults, step: Step) -> str:
    """Uploads two bundles, and keeps the newest two of all by a rule. Then uploads a third. Returns
    what went wrong. `number`: 1 if the record of one of the others cannot be written meanwhile."""
    names = step.what.split("+")
    for number, name in enumerate(names[:2], 1):
        if error := (await users.call(Step(0.0, "upload", step.who, name, number=number))).error:
            return f"the upload of {name} is told {error}"
    doomed = _doomed(cluster, keep=2)
    stubborn = {doomed[0]} if step.number and len(doomed) > 1 else set[str]()
    with locked(cluster, [f"{ROOT}/code-distributor/{name}" for name in stubborn]):
        call = await users.call(Step(0.0, "retain", step.who, number=2))
        if not call.succeeded or sorted(call.told.goes) != doomed:
            return f"is told {call.error or sorted(call.told.goes)}, and {doomed} must go"
        if wrong := await _wrong_removals(cluster, {*doomed} - stubborn, GONE_SECS):
            return wrong
        if error := (await users.call(Step(0.0, "upload", step.who, names[2], number=3))).error:
            return f"the upload of {names[2]} is told {error}"
        if wrong := await _wrong_removals(cluster, {names[0]}, GONE_SECS):
            return wrong
    if wrong := await _wrong_removals(cluster, stubborn, TURN_SECS):
        return wrong
    error = (await users.call(Step(0.0, "unretain", step.who))).error
    return f"the end of the rule is told {error}" if error else ""


async def keep_young(cluster: SimulatedCluster, users: Users, _: Faults, step: Step) -> str:
    """Uploads a bundle, and keeps it and those of the last seconds by a rule. Returns what went
    wrong."""
    if error := (await users.call(Step(0.0, "upload", step.who, step.what, number=1))).error:
        return f"the upload of {step.what} is told {error}"
    await asyncio.sleep(MOST_YOUNG_SECS - step.secs)
    changed = {name: cluster.zookeeper.nodes[f"{ROOT}/code-distributor/{name}"].mtime for name in _available(cluster)}
    doomed = _doomed(cluster, keep=1)
    old = [name for name in doomed if cluster.zookeeper.wall() - changed[name] >= step.secs]
    call = await users.call(Step(0.0, "retain", step.who, number=1, secs=step.secs))
    if not call.succeeded or not {*old} <= {*call.told.goes} <= {*doomed}:
        return f"is told {call.error or sorted(call.told.goes)}, and {old} must go"
    before, latest, left = {*_available(cluster)}, cluster.loop.now + step.secs + ROUND_SECS + GONE_SECS, {*doomed}
    while left:
        await asyncio.sleep(LOOK_SECS)
        there = {*_available(cluster)}
        young = {name for name in doomed if cluster.zookeeper.wall() - changed[name] < step.secs}
        if early := sorted((left & young | before - {*doomed}) - there):
            return f"{early[0]} went too early"
        left &= there
        if left and cluster.loop.now > latest:
            return f"{min(left)} is {cluster.zookeeper.wall() - changed[min(left)]:.0f} s old, and still there"
    error = (await users.call(Step(0.0, "unretain", step.who))).error
    return f"the end of the rule is told {error}" if error else ""


async def _wrong_removals(cluster: SimulatedCluster, gone: set[str], secs: float) -> str:
    """Waits until these bundles are gone. Returns what is left, or gone beside them."""
    before = {*_available(cluster)}
    await cluster.until(lambda: not gone & {*_available(cluster)}, secs)
    after = {*_available(cluster)}
    if left := sorted(after & gone):
        return f"a rule lets {left[0]} go, and it is still there"
    return f"{sorted(before - gone - after)} went, which nobody removed" if before - gone - after else ""


def _available(cluster: SimulatedCluster) -> dict[str, dict[str, Any]]:
    """Returns the records of the users' bundles that are available."""
    found = {}
    for name in cluster.zookeeper.nodes[f"{ROOT}/code-distributor"].children:
        record = json.loads(cluster.zookeeper.nodes[f"{ROOT}/code-distributor/{name}"].data)
        if name.startswith("b") and name[1:].isdigit() and record["state"] == "available":
            found[name] = record
    return found


def _doomed(cluster: SimulatedCluster, keep: int) -> list[str]:
    """Returns the bundles that a rule lets go which keeps so many: the older ones, but for those
    that are pinned, or that hosts wait for or have promised to keep for a time."""
    found = _available(cluster)
    older = sorted(found, key=lambda name: found[name]["created_at"], reverse=True)[keep:]
    return sorted(name for name in older if not found[name].get("pinned") and not _is_claimed(cluster, name))


def _is_claimed(cluster: SimulatedCluster, bundle: str) -> bool:
    node = cluster.zookeeper.nodes.get(f"{ROOT}/distributions/{bundle}")
    order = {} if node is None else json.loads(node.data)
    # What a record leaves out is what it says by default.
    return bool(order) and (
        order.get("state", "running") in ("running", "standing")
        or bool(order.get("ends_at") or order.get("other_ends"))
    )


@contextmanager
def locked(cluster: SimulatedCluster, paths: list[str]) -> Iterator[None]:
    """Lets nobody write these records, as a foreign ACL does."""
    nodes = [cluster.zookeeper.nodes[path] for path in paths]
    before = [node.acl for node in nodes]
    for node in nodes:
        node.acl = [make_acl("world", "anyone", read=True)]
    try:
        yield
    finally:
        for node, acl in zip(nodes, before, strict=True):
            node.acl = acl
