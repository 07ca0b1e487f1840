"""Distributions that are cancelled while a host has a part of the bundle: what it has is dropped,
and nobody is told to fetch it any more.

Always: compared with the disks and the records, and not with what daemons say.
"""

from __future__ import annotations

import asyncio
import json

from simulation.faults import Faults
from simulation.invariants import published
from simulation.record_history import ROOT
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_host import Host
from simulation.steps import Step
from simulation.users import Users

from torrentdist.bundle.metafile_maker import make_metafile

BEGUN_SECS = 3.0
"""Some host has begun to fetch by then."""
SHORT_SECS = 0.005
DROPPED_SECS = 3.0


async def cancel_order(cluster: SimulatedCluster, users: Users, _: Faults, step: Step) -> str:
    """Uploads a bundle, distributes it, and cuts a host off from all daemons once it has a part.
    Then cancels the distribution. Returns what went wrong. `number`: the content, which no host
    has."""
    digest = str(make_metafile(users.desk.sources[step.number]).digest)
    for kind in ("upload", "hurt pairs"):
        if error := (await users.call(Step(0.0, kind, step.who, step.what, number=step.number))).error:
            return f"{kind} is told {error}"
    host = await _one_with_a_part(cluster, digest)
    if host is None:
        return ""
    others = [one.address for one in cluster.hosts if one is not host]
    links = {link for other in others for link in ((other, host.address), (host.address, other))}
    cluster.loop.network.cut(links)
    try:
        if error := (await users.call(Step(0.0, "cancel", step.who, step.what))).error:
            return f"the cancellation is told {error}"
        dropped = await cluster.until(lambda: not _has_part(host, digest), DROPPED_SECS)
    finally:
        cluster.loop.network.uncut(links)
    if not dropped and digest not in published(host.data_dir):
        return f"{DROPPED_SECS:.0f} s later {host.name} still has a part of it"
    return _wrong_records(cluster, step.what, digest)


async def _one_with_a_part(cluster: SimulatedCluster, digest: str) -> Host | None:
    """Returns the first host that has begun to fetch. None: the bundle came in one go."""
    for _ in range(round(BEGUN_SECS / SHORT_SECS)):
        for host in cluster.supervisors:
            if _has_part(host, digest):
                return host
        await asyncio.sleep(SHORT_SECS)
    return None


def _has_part(host: Host, digest: str) -> bool:
    return (host.data_dir / "objects" / digest).is_dir() and digest not in published(host.data_dir)


def _wrong_records(cluster: SimulatedCluster, bundle: str, digest: str) -> str:
    nodes = cluster.zookeeper.nodes
    record = json.loads(nodes[f"{ROOT}/distributions/{bundle}"].data)
    if record["state"] != "cancelled":
        return f"the distribution is {record['state']}"
    for host in cluster.supervisors:
        node = nodes.get(f"{ROOT}/assignments/{host.name}")
        told = node is not None and bundle in json.loads(node.data)["bundles"]
        if told and digest not in published(host.data_dir):
            return f"{host.name} does not have {bundle}, and is told to keep it"
    return ""
