"""What ZooKeeper's records said, moment by moment: the witness against which told answers are held.

Always: a moment is a change in ZooKeeper. Nothing here asks a daemon.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from simulation.simulated_zookeeper import SimulatedZooKeeper

ROOT = "/torrentdist"
GONE = "removed"
DECIDED_SECS = 5.0
"""Longest time between a decision of the leader and its change."""


def barrier_in(path: str) -> str:
    """Returns the resource whose barrier, or the grant of whose barrier, has this path. Empty: it
    has none."""
    _, barriers, name = path.partition("/groups/jobs/barriers/")
    return name.removesuffix("/held") if barriers else ""


@dataclass
class Timeline:
    """The states of one record, each with the moment from which on it held."""

    moments: list[tuple[float, str]] = field(default_factory=lambda: [(0.0, GONE)])

    def become(self, at: float, state: str) -> None:
        if self.moments[-1][1] != state:
            self.moments.append((at, state))

    def states_between(self, since: float, until: float) -> set[str]:
        """Returns every state that held at a moment from `since` to `until`."""
        before = [state for at, state in self.moments if at <= since][-1:]
        return {*before, *(state for at, state in self.moments if since <= at <= until)}

    def turns_to(self, state: str) -> list[float]:
        return [at for at, became in self.moments[1:] if became == state]


class RecordHistory:
    def __init__(self, zookeeper: SimulatedZooKeeper) -> None:
        self._zookeeper = zookeeper
        self.bundles: dict[str, Timeline] = {}
        self.pins: dict[str, Timeline] = {}
        self.jobs: dict[str, Timeline] = {}
        """By name: `live` while a job that has not ended has it."""
        self.tokens: dict[str, Timeline] = {}
        self.births: dict[str, list[float]] = {}
        """When jobs were created, by their name."""
        self.rules: list[tuple[float, int | None]] = [(0.0, None)]
        """Since when the retention rule keeps so many versions. None: there is none."""
        self._names: dict[str, str] = {}
        """Names of the jobs that are there, by their path."""
        zookeeper.on_change.append(self._on_change)

    def _on_change(self, kind: str, path: str) -> None:
        at, parts = self._zookeeper.loop.time(), path.removeprefix(f"{ROOT}/").split("/")
        node = self._zookeeper.nodes.get(path)
        if len(parts) != 2 or parts[0] not in ("code-distributor", "tokens", "retention", "jobs"):
            return
        record = {} if node is None or not node.data else json.loads(node.data)
        match parts[0]:
            case "code-distributor":
                self.bundles.setdefault(parts[1], Timeline()).become(at, record.get("state", GONE))
                self.pins.setdefault(parts[1], Timeline()).become(at, "pinned" if record.get("pinned") else GONE)
            case "tokens":
                self.tokens.setdefault(parts[1], Timeline()).become(at, str(record.get("revoked", bool(record))))
            case "retention":
                self.rules.append((at, int(record["keep"]) if record else None))
            case "jobs":
                self._job(at, kind, path, record)

    def _job(self, at: float, kind: str, path: str, record: dict[str, object]) -> None:
        name = str(record["name"]) if record else self._names.pop(path, "")
        if kind == "create":
            self._names[path] = name
            self.births.setdefault(name, []).append(at)
        ended = record.get("status", "finished") in ("finished", "failed")
        self.jobs.setdefault(name, Timeline()).become(at, GONE if ended else "live")

    def had_rule(self, at: float) -> bool:
        """Whether a retention rule was there at this moment or a little before."""
        return any(rule is not None for since, rule in self.rules if since <= at + 0.001)

    def least_kept(self, at: float) -> int:
        """Returns how many versions the rule kept at this moment, or a little before, at least."""
        known = [rule for since, rule in self.rules if since <= at]
        lately = [rule for since, rule in self.rules if at - DECIDED_SECS <= since <= at]
        return min((rule for rule in [*known[-1:], *lately] if rule is not None), default=0)
