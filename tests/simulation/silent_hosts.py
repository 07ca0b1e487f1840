"""What becomes of workers and bundles while a host is not heard by the masters, and after all
masters have lost their disks.

Always: compared with the runs and the disks of the story, and not with what daemons say.
"""

from __future__ import annotations

import asyncio
import json

from simulation.faults import Faults
from simulation.invariants import published
from simulation.record_history import ROOT
from simulation.simulated_cluster import LOST_SECS, SILENT_SECS, SimulatedCluster, leads
from simulation.simulated_host import Host
from simulation.simulated_runs import SimulatedRunning
from simulation.steps import Step
from simulation.users import Users

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.ids import Digest

HEARTBEAT_SECS = 6.0
"""The leader last heard from a host at most so long before it was cut off."""
MOVED_SECS = 8.0
"""How long after a host counts as silent its workers run elsewhere: they have two seconds to
stop."""
HEARD_SECS = 7.0
"""How soon after it is heard again a host does not count as silent any more."""
ELECTION_SECS = 9.0
"""Time until the masters that have lost their disks are back, and one leads."""
TOLD_LOST_SECS = 8.0


async def silence_host(cluster: SimulatedCluster, users: Users, _: Faults, step: Step) -> str:
    """Cuts a host off from all masters, and not from ZooKeeper. Returns what went wrong."""
    host = next(host for host in cluster.supervisors if host.name == step.who)
    links = {link for one in cluster.masters for link in ((one.address, host.address), (host.address, one.address))}
    began, ran_there = cluster.loop.now, _workers_on(host)
    moves = len(cluster.supervisors) > 1
    cluster.loop.network.cut(links)
    try:
        if await cluster.until(lambda: not ran_there <= _workers_on(host), SILENT_SECS - HEARTBEAT_SECS):
            return f"its workers are taken away {cluster.loop.now - began:.1f} s after it was last heard"
        await asyncio.sleep(began + SILENT_SECS + MOVED_SECS - cluster.loop.now)
        if moves and _workers_on(host):
            return f"{cluster.loop.now - began:.1f} s later its workers still run there"
        if (told := await _silent_ones(users)) != [host.name]:
            return f"{told} are said to be silent"
    finally:
        cluster.loop.network.uncut(links)
    await asyncio.sleep(HEARD_SECS)
    told = await _silent_ones(users)
    return f"it is heard again, and {told} are said to be silent" if told else ""


def _workers_on(host: Host) -> set[object]:
    return {run.key for run in SimulatedRunning.all_runs.living() if run.host.name == host.name}


async def _silent_ones(users: Users) -> list[str]:
    call = await users.call(Step(0.0, "look", "dee"))
    if not call.succeeded:
        return [call.error]
    return [name for one in call.told[0].attention if one.what == "silent" for name in one.subjects]


async def lose_masters(cluster: SimulatedCluster, users: Users, faults: Faults, step: Step) -> str:
    """Takes the disks of all masters at once. What a host has must come back from there, and the
    rest is called lost, and can be uploaded again. Returns what went wrong."""
    for master in cluster.masters:
        faults.happen(Step(0.0, "wipe", master.name, secs=step.secs))
    began = cluster.loop.now
    await asyncio.sleep(ELECTION_SECS)
    if not any(leads(master) for master in cluster.masters):
        return f"{ELECTION_SECS:.0f} s later nobody leads"
    kept = {digest for host in cluster.supervisors for digest in published(host.data_dir)}
    records = _records(cluster)
    gone = {bundle for bundle, (digest, state) in records.items() if state == "available" and digest not in kept}
    if early := sorted(bundle for bundle, (_, state) in records.items() if state == "lost"):
        return f"{early[0]} is called lost after {cluster.loop.now - began:.1f} s"

    def lost() -> set[str]:
        return {bundle for bundle, (_, state) in _records(cluster).items() if state == "lost"}

    if not await cluster.until(lambda: lost() == gone, LOST_SECS + TOLD_LOST_SECS):
        return f"no host has {sorted(gone)}, and {sorted(lost())} are called lost"
    numbers = {make_metafile(source).digest: number for number, source in users.desk.sources.items()}
    for bundle in sorted(gone):
        again = Step(0.0, "upload", "ann", bundle, number=numbers[Digest(records[bundle][0])])
        if error := (await users.call(again)).error:
            return f"{bundle} was lost and is uploaded again, and its user is told {error}"
    return ""


def _records(cluster: SimulatedCluster) -> dict[str, tuple[str, str]]:
    """Returns the digest and the state of each bundle."""
    found = {}
    for bundle in cluster.zookeeper.nodes[f"{ROOT}/code-distributor"].children:
        record = json.loads(cluster.zookeeper.nodes[f"{ROOT}/code-distributor/{bundle}"].data)
        found[bundle] = record["digest"], record["state"]
    return found
