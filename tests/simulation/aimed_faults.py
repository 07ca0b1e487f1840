"""Faults that wait for what is under way, and hit it: the leader dies between a change and its
answer, a host is cut off as it takes a worker's barrier.

Always: a fault that was armed happens once, in the moment of the change that it waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from simulation.faults import USERS_ADDRESS, Faults
from simulation.host_process import NOBODY
from simulation.record_history import ROOT
from simulation.simulated_cluster import SimulatedCluster
from simulation.steps import Step

AIMED = {
    "kill at answer": ("answer", "kill"),
    "pause at answer": ("answer", "pause"),
    "expire at answer": ("answer", "expire"),
    "unheard answer": ("answer", ""),
    "isolate at barrier": ("barrier", "isolate"),
    "pause at barrier": ("barrier", "pause"),
    "kill at barrier": ("barrier", "kill"),
    "isolate at start": ("start", "isolate"),
    "expire at start": ("start", "no zookeeper"),
    "kill at epoch": ("epoch", "kill"),
    "pause at epoch": ("epoch", "pause"),
    "crash at replica": ("replica", "kill"),
    "kill at record": ("record", "kill"),
    "power at record": ("record", "power"),
    "power at replica": ("replica", "power"),
    "strand at record": ("record", "strand"),
    "pause at assignment": ("assignment", "pause"),
    "kill at assignment": ("assignment", "kill"),
}
"""The change that each kind waits for, and the fault that then happens to the host that made it."""
UNHEARD_SECS = 4.0


def kind_of_change(kind: str, path: str) -> str:
    """Returns what an aimed fault may wait for, of a change in ZooKeeper; empty: nothing."""
    parts = path.removeprefix(f"{ROOT}/").split("/")
    if parts[0] == "requests" and len(parts) == 3 and kind != "delete":
        return "answer"
    if "barriers" in parts[:-1] and kind == "create":
        return "barrier"
    if parts[0] == "assignments" and len(parts) == 2:
        return "assignment"
    if parts[0] == "code-distributor" and kind == "create":
        return {2: "record", 3: "replica"}.get(len(parts), "")
    return "epoch" if parts == ["epoch"] and kind == "set" else ""


class AimedFaults:
    def __init__(self, cluster: SimulatedCluster, faults: Faults, note: Callable[[str], None]) -> None:
        self._cluster, self._faults, self._note = cluster, faults, note
        self._armed: list[Step] = []
        cluster.zookeeper.on_change.append(self._on_change)

    def arm(self, step: Step) -> None:
        self._armed.append(step)

    def disarm(self) -> None:
        self._armed.clear()

    def on_start(self, host: str) -> None:
        """Called when a worker starts on a host."""
        self._hit("start", host)

    def _on_change(self, kind: str, path: str) -> None:
        writer = self._cluster.zookeeper.writer
        if self._armed and writer is not None:
            change, node = kind_of_change(kind, path), self._cluster.zookeeper.nodes.get(path)
            if change != "barrier" or (node is not None and node.owner):
                self._hit(change, writer.name)

    def _hit(self, change: str, name: str) -> None:
        step = next((each for each in self._armed if AIMED[each.kind][0] == change), None)
        if step is None:
            return
        self._armed.remove(step)
        self._note(f"{step.kind} hits {name}")
        fault = AIMED[step.kind][1]
        if fault == "strand":
            masters = [host.address for host in self._cluster.masters]
            self._cut({link for host in masters for link in ((host, USERS_ADDRESS), (USERS_ADDRESS, host))}, step.secs)
        elif fault:
            # Not as the dying process: its calls would fail in the middle of the change.
            NOBODY.context().run(self._faults.happen, replace(step, kind=fault, who=name))
        else:
            host = next(host for host in self._cluster.hosts if host.name == name)
            self._cut({(host.address, USERS_ADDRESS)}, UNHEARD_SECS)

    def _cut(self, links: set[tuple[str, str]], secs: float) -> None:
        network = self._cluster.loop.network
        network.cut(links)
        self._cluster.loop.call_later(secs, network.uncut, links, context=NOBODY.context())
