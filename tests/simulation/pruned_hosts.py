"""What an operator is told who prunes a host while a program there uses a bundle, and what stays.

Always: reckoned from the records, the disk and the story, and not by the product's reasons.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from simulation.faults import Faults
from simulation.invariants import published
from simulation.record_history import ROOT
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_host import Host
from simulation.steps import Step
from simulation.users import Users

USES = {"mount": "mounted", "lease": "in_use"}
"""The reason to keep what a program uses, by the way in which it does."""
USED_SECS = 4.0
BEGUN_SECS = 2.5
"""The program has the bundle by then."""
MAYBE = {"in_use", "assigned", "pinned"}
"""Reasons that may also be there: a while after a program has asked, of what is mounted, and until
a host hears of a change."""


async def prune_in_use(cluster: SimulatedCluster, users: Users, _: Faults, step: Step) -> str:
    """Prunes a host while a program uses a bundle there, and after that. Returns what went wrong.
    `number`: the content of the bundle."""
    host = next(host for host in cluster.supervisors if host.name == step.who)
    kind = cluster.rng.choice(sorted(USES))
    use = asyncio.create_task(users.call(replace(step, kind=kind, secs=USED_SECS)))
    await asyncio.sleep(BEGUN_SECS)
    digest = _digests(cluster)[step.what]
    wrong = await _wrong_prune(cluster, users, host, {digest: {USES[kind]}})
    call = await use
    wrong = wrong or (f"a program that uses it by {kind} is told {call.error}" if call.error else "")
    return wrong or await _wrong_prune(cluster, users, host, {})


async def _wrong_prune(cluster: SimulatedCluster, users: Users, host: Host, used: dict[str, set[str]]) -> str:
    before = set(published(host.data_dir))
    call = await users.call(Step(0.0, "prune", host.name))
    if not call.succeeded:
        return f"the prune is told {call.error}"
    needed = {digest: used.get(digest, set()) | _reasons(cluster, host, digest) for digest in before}
    stays = {str(one.digest): {str(reason) for reason in one.reasons} for one in call.told.stays}
    if stays.keys() != before - set(call.told.removed):
        return f"{len(before)} bundles are there, {len(stays)} stay, and {len(call.told.removed)} are removed"
    if (left := set(published(host.data_dir))) != stays.keys():
        return f"{len(stays)} bundles should stay, and {len(left)} are there"
    for digest, reasons in needed.items():
        told = stays.get(digest, set())
        if not reasons <= told <= reasons | MAYBE:
            return f"{digest[:8]} is kept for {sorted(told)}, and must be for {sorted(reasons)}"
    return ""


def _digests(cluster: SimulatedCluster) -> dict[str, str]:
    nodes, top = cluster.zookeeper.nodes, f"{ROOT}/code-distributor"
    return {name: json.loads(nodes[f"{top}/{name}"].data)["digest"] for name in nodes[top].children}


def _reasons(cluster: SimulatedCluster, host: Host, digest: str) -> set[str]:
    """Returns why a host must keep this content, as the records say."""
    nodes = cluster.zookeeper.nodes
    told = nodes.get(f"{ROOT}/assignments/{host.name}")
    assigned = [] if told is None else json.loads(told.data)["bundles"]
    names = [name for name, found in _digests(cluster).items() if found == digest]
    return {"assigned"} if any(name in assigned for name in names) else set()
