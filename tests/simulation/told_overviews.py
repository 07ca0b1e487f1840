"""What overviews and records say of daemons and distributions, compared with what has happened:
who is gone, since when, who has started again, and what a distribution has done.

Always: the truth comes from the processes of the story, and not from what daemons have written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from simulation.record_history import ROOT
from simulation.simulated_cluster import SimulatedCluster, leads
from simulation.simulated_host import Host
from simulation.simulated_runs import SimulatedRunning
from simulation.steps import Step

from torrentdist.model.wire.cluster_messages import ClusterView
from torrentdist.model.wire.fleet_messages import DistributionSummary
from torrentdist.model.wire.job_messages import JobView, WorkerState

GONE_SECS = 10.0
"""A daemon that has not been registered for so long is gone."""
NOTICED_SECS = 7.5
"""A killed daemon's session has ended by then, and the leader has noted it."""
CLOCK_SECS = 0.1
OF_DEATHS = frozenset({"gone", "silent", "restarting", "elections", "leader", "unheard"})
"""What an overview may say of daemons that die and return."""


def remembered(cluster: SimulatedCluster, host: Host) -> dict[str, Any] | None:
    """Returns what the cluster's records remember of a daemon."""
    role = "known-masters" if host.is_master else "known-supervisors"
    node = cluster.zookeeper.nodes.get(f"{ROOT}/{role}/{host.name}")
    return None if node is None else json.loads(node.data)


def wrong_memories(cluster: SimulatedCluster) -> Iterator[str]:
    """Yields what the records say of daemons that are here, and is not true."""
    for host in cluster.hosts:
        role, record = "masters" if host.is_master else "supervisors", remembered(cluster, host)
        node = cluster.zookeeper.nodes.get(f"{ROOT}/{role}/{host.name}")
        if not host.up or node is None:
            continue
        if record is None:
            yield f"{host.name} is registered, and the cluster does not remember it"
            continue
        if record.get("absent_at"):
            yield f"{host.name} is registered, and counts as gone"
        if record.get("silent_since"):
            yield f"{host.name} is registered, and counts as silent"
        if record.get("started_at") != json.loads(node.data).get("started_at"):
            yield f"{host.name} is known by an earlier start"
        if len(record.get("starts", ())) >= max(host.starts, 1):
            yield f"{host.name} has started {host.starts} times, and again {len(record['starts'])} times"
        if any(until - since < GONE_SECS for since, until in record.get("absences", ())):
            yield f"{host.name} was away briefly, and counts as having been gone"


def wrong_return(cluster: SimulatedCluster, host: Host, away_secs: float) -> str:
    """Returns what is wrong with what is remembered of a daemon that was killed and is back."""
    record = remembered(cluster, host) or {}
    if not record.get("starts"):
        return f"it is not known that {host.name} has started again"
    gone = [until - since for since, until in record.get("absences", ())]
    if away_secs > GONE_SECS + NOTICED_SECS and not any(secs <= away_secs + 2.0 for secs in gone):
        return f"{host.name} was gone for {away_secs:.1f} s, and what is remembered is {gone}"
    return ""


def wrong_overview(cluster: SimulatedCluster, view: ClusterView) -> Iterator[str]:
    """Yields what an overview says of daemons that are gone, and is not true. Nothing but deaths
    may have happened in the story."""
    told = {gone.id: gone for gone in view.gone}
    for host in cluster.hosts:
        gone, away = told.pop(host.name, None), 0.0 if host.up else cluster.loop.now - host.died_at
        if gone is None:
            if away > GONE_SECS + NOTICED_SECS:
                yield f"{host.name} has been away for {away:.1f} s, and is not called gone"
        elif away < GONE_SECS:
            yield f"{host.name} is called gone {away:.1f} s after it was last here"
        elif not away - NOTICED_SECS <= gone.gone_secs <= away + CLOCK_SECS:
            yield f"{host.name} has been away for {away:.1f} s, and is called gone for {gone.gone_secs:.1f} s"
        elif not host.is_master and gone.bundles != len(_assigned(cluster, host)):
            yield f"{host.name} is gone and keeps {len(_assigned(cluster, host))} bundles, not {gone.bundles}"
    for name in told:
        yield f"{name} is called gone, and never was here"
    yield from _wrong_lists(cluster, view)


def _wrong_lists(cluster: SimulatedCluster, view: ClusterView) -> Iterator[str]:
    leaders = [host.name for host in cluster.masters if host.up and leads(host)]
    if leaders != [view.leader]:
        yield f"{view.leader} is called the leader, and {leaders} lead"
    for role, named in (("masters", view.masters), ("supervisors", view.supervisors)):
        node = cluster.zookeeper.nodes.get(f"{ROOT}/{role}")
        if (registered := set() if node is None else {*node.children}) != {one.id for one in named}:
            yield f"{sorted(registered)} are registered as {role}, and {sorted(one.id for one in named)} are named"
    node = cluster.zookeeper.nodes.get(f"{ROOT}/code-distributor")
    bundles = () if node is None else [f"{ROOT}/code-distributor/{name}" for name in node.children]
    states = Counter(json.loads(cluster.zookeeper.nodes[path].data)["state"] for path in bundles)
    counts = view.bundles
    if (counts.available, counts.uploading, counts.lost) != (states["available"], states["uploading"], states["lost"]):
        yield f"the bundles are {dict(states)}, and are counted as {counts}"
    stopped = {bundle for bundle, record in _orders(cluster) if record["state"] == "stopped"}
    if stopped != (told := {name for one in view.attention if one.what == "stopped" for name in one.subjects}):
        yield f"the distributions of {sorted(stopped)} are stopped, and those of {sorted(told)} are said to be"
    for one in view.attention:
        if one.what not in OF_DEATHS | {"stopped"} and (
            one.what != "under-replicated" or all(host.up for host in cluster.masters)
        ):
            yield f"an operator is to look at this: {one.sentence}"


def _orders(cluster: SimulatedCluster) -> Iterator[tuple[str, dict[str, Any]]]:
    node = cluster.zookeeper.nodes.get(f"{ROOT}/distributions")
    for bundle in () if node is None else node.children:
        yield bundle, json.loads(cluster.zookeeper.nodes[f"{ROOT}/distributions/{bundle}"].data)


def _assigned(cluster: SimulatedCluster, host: Host) -> list[str]:
    node = cluster.zookeeper.nodes.get(f"{ROOT}/assignments/{host.name}")
    return [] if node is None else list(json.loads(node.data)["bundles"])


def wrong_jobs(cluster: SimulatedCluster, views: list[JobView]) -> Iterator[str]:
    """Yields what a list of the jobs says of their workers, and is not true."""
    running = {run.key: run.host.name for run in SimulatedRunning.all_runs.living()}
    told = {
        (view.id, worker.worker): worker
        for view in views
        for worker in view.workers
        if worker.state is WorkerState.RUNNING
    }
    for key, worker in told.items():
        if worker.supervisor != running.get(key):
            yield f"worker {key[1]} is said to run on {worker.supervisor}, and runs on {running.get(key)}"
    for key in running.keys() - told.keys():
        yield f"worker {key[1]} runs on {running[key]}, and is not said to"


def wrong_order(cluster: SimulatedCluster, step: Step) -> str:
    """Returns what the record of a distribution says that is over, and is not true: all hosts have
    the bundle."""
    node = cluster.zookeeper.nodes.get(f"{ROOT}/distributions/{step.what}")
    record = {} if node is None else json.loads(node.data)
    if record.get("state", "complete") not in ("complete", "standing"):
        return f"the distribution of {step.what} is {record['state']}: {record.get('reason', '')}"
    return f"the distribution of {step.what} says: {record['reason']}" if record.get("reason") else ""


def wrong_summary(found: list[DistributionSummary], step: Step, hosts: int) -> str:
    """Returns what the history says of a distribution that is over, and is not true."""
    of_bundle = [one for one in found if one.bundle == step.what]
    if not of_bundle:
        return f"the history does not have the distribution of {step.what}"
    newest = max(of_bundle, key=lambda one: one.began_at)
    if newest.ended_at is None or newest.cancelled or not newest.done == newest.hosts >= hosts:
        return f"the history says {newest.done} of {newest.hosts} hosts, ended {newest.ended_at}"
    return "" if newest.all_secs is not None else "the history does not say when the last host had it"
