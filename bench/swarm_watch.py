"""Watches hosts from outside while they fetch: when each is done, and what has come down its link.

Must not do: send anything over a link, or ask a process anything, while the clock runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.lab import Host

LOOK_SECS = 0.01
SAMPLE_SECS = 0.25


@dataclass
class Watch:
    """`done` says of a host whether it has everything."""

    hosts: Mapping[str, Host]
    size: int
    done: Callable[[str], bool]
    began: float = field(default_factory=time.monotonic)
    ends: dict[str, float] = field(default_factory=dict)
    progress: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before = {name: host.received() for name, host in self.hosts.items()}
        self._sampled = 0.0

    def now(self) -> float:
        return time.monotonic() - self.began

    def look(self) -> None:
        now = self.now()
        for name in self.hosts:
            if name not in self.ends and self.done(name):
                self.ends[name] = self.now()
        if now - self._sampled >= SAMPLE_SECS:
            self._sampled = now
            for name in self.hosts:
                self.progress.setdefault(name, []).append((round(now, 2), round(self.copies(name), 4)))

    def copies(self, name: str) -> float:
        return (self.hosts[name].received() - self._before[name]) / self.size

    def wait(self, names: list[str], seconds: float, meanwhile: Callable[[], None] = lambda: None) -> tuple[str, ...]:
        """Until these are done, or for so long; names those that aren't."""
        while (missing := [name for name in names if name not in self.ends]) and self.now() < seconds:
            self.look()
            meanwhile()
            time.sleep(LOOK_SECS)
        return tuple(missing)
