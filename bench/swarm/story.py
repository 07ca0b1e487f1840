"""Events during a scenario: late starts, loss of power, holders that leave.

Always: every event happens once, as soon as its time has come.
Never: look inside a process. Links and files tell all that it needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.lab.namespaces import Host, Lab
from bench.swarm.watch import Watch

CHUNK = 32 * 1024
LOOK_SECS = 0.1


@dataclass
class LateStarts:
    """Tells hosts to fetch, one after the other."""

    starts: Mapping[str, float]
    tell: Callable[[str], None]
    told: set[str] = field(default_factory=set)

    def step(self, watch: Watch) -> None:
        for name, start in self.starts.items():
            if name not in self.told and start <= watch.now():
                self.told.add(name)
                self.tell(name)


@dataclass
class PowerCut:
    """Cuts the power of hosts when it is due."""

    lab: Lab
    hosts: Sequence[Host]
    due: Callable[[Watch], bool]
    dead: list[Host] = field(default_factory=list)
    at: float = 0.0
    sent: int = 0
    """Bytes that they sent from the beginning to their death, headers included."""
    _before: int = 0

    def __post_init__(self) -> None:
        self._before = sum(host.sent() for host in self.hosts)

    def step(self, watch: Watch) -> None:
        if self.hosts and not self.dead and self.due(watch):
            self.dead, self.at = list(self.hosts), watch.now()
            for host in self.dead:
                self.lab.cut(host)
                self.lab.kill(host.name)
            self.sent = sum(host.sent() for host in self.dead) - self._before

    def cuts(self) -> dict[str, float]:
        return {host.name: round(self.at, 2) for host in self.dead}


@dataclass
class OneCopyOut:
    """Whether the hosts together have every part of the source, by the files on their disks."""

    source: Path
    arriving: Callable[[], Sequence[Path]]
    """For every host that has some of the file, the path of what it has."""
    holders: Sequence[Host]
    _missing: set[int] | None = None
    _sent: int = 0
    _looked: float = 0.0

    def __post_init__(self) -> None:
        self._sent = sum(holder.sent() for holder in self.holders)

    def __call__(self, watch: Watch) -> bool:
        size = self.source.stat().st_size
        if watch.ends:
            return True
        enough = sum(holder.sent() for holder in self.holders) - self._sent >= size
        if not enough or watch.now() - self._looked < LOOK_SECS:
            return False
        self._looked = watch.now()
        if self._missing is None:
            self._missing = set(range(0, size, CHUNK))
        with self.source.open("rb") as right:
            for path in self.arriving():
                self._missing -= _equal(right.fileno(), path, self._missing)
        return not self._missing


def _equal(right: int, path: Path, offsets: set[int]) -> set[int]:
    with path.open("rb") as there:
        return {at for at in offsets if os.pread(there.fileno(), CHUNK, at) == os.pread(right, CHUNK, at)}
