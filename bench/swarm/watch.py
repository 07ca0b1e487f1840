"""Watches fetching hosts from outside: when each is done, and the bytes that came down its link.

The file system tells when a host was done. Frequent looks would take processor time from the hosts:
a hundred looks per second at 48 hosts cost a tenth of a processor.

Never: send anything over a link, or ask a process, while the clock runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.lab.namespaces import Host, received

STEP_SECS = 0.05
LOOK_SECS = 0.1
SAMPLE_SECS = 0.25
SAME_LOOKS, MOST_LOOKS = 4, 20


@dataclass
class Watch:
    """`proof`: a path that exists on a host as soon as the host has everything, and not before."""

    hosts: Mapping[str, Host]
    size: int
    proof: Callable[[str], Path]
    began: float = field(default_factory=time.monotonic)
    began_at: float = field(default_factory=time.time)
    ends: dict[str, float] = field(default_factory=dict)
    progress: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before = received(self.hosts.values())
        self._proofs = {name: str(self.proof(name)) for name in self.hosts}
        self._looked = self._sampled = 0.0

    def now(self) -> float:
        return time.monotonic() - self.began

    def look(self) -> None:
        now = self.now()
        if now - self._looked >= LOOK_SECS:
            self._looked = now
            for name in self.hosts:
                if name not in self.ends and (made_at := _made_at(self._proofs[name])):
                    self.ends[name] = min(made_at - self.began_at, self.now())
        if now - self._sampled >= SAMPLE_SECS:
            self._sampled = now
            for name, copies in self.copies().items():
                self.progress.setdefault(name, []).append((round(now, 2), round(copies, 4)))

    def copies(self) -> dict[str, float]:
        """Returns the copies that have come down each host's link so far."""
        return {name: (came - self._before[name]) / self.size for name, came in received(self.hosts.values()).items()}

    def wait(self, names: list[str], seconds: float, meanwhile: Callable[[], None] = lambda: None) -> tuple[str, ...]:
        """Waits until these hosts are done, `seconds` at most. Returns the names of those that are
        not."""
        while (missing := [name for name in names if name not in self.ends]) and self.now() < seconds:
            self.look()
            meanwhile()
            time.sleep(STEP_SECS)
        return tuple(missing)


def settled(read: Callable[[], int], pause: float = 0.6) -> int:
    """Returns a counter as soon as it was the same SAME_LOOKS times. A daemon of a busy machine
    takes seconds to read its counters, and gives the old ones meanwhile."""
    looks = [read()]
    while len(looks) < MOST_LOOKS and looks[-SAME_LOOKS:] != [looks[-1]] * SAME_LOOKS:
        time.sleep(pause)
        looks.append(read())
    return looks[-1]


def _made_at(path: str) -> float | None:
    """Returns when the file got its name, by the clock of its file system; None if it does not
    exist."""
    try:
        return os.lstat(path).st_ctime
    except FileNotFoundError:
        return None
