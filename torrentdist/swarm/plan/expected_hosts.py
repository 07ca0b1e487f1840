"""The hosts that should get a bundle, in the order of their places, and how they changed lately.

Always: who has seen one state of it learns what changed since, at a cost of the changes alone.
Pure: no I/O and no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias

from torrentdist.model.ids import PeerId

MOST_STEPS: Final = 10_000
"""Changes that are remembered. A swarm that missed more looks at all hosts."""


class ExpectedHosts:
    def __init__(self, hosts: Iterable[PeerId] = ()) -> None:
        self._hosts = dict.fromkeys(hosts)
        self._steps: deque[PeerId] = deque(maxlen=MOST_STEPS)
        self.state = 0
        """Grows with every change."""

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[PeerId]:
        return iter(self._hosts)

    def __contains__(self, host: PeerId) -> bool:
        return host in self._hosts

    def set(self, host: PeerId, *, expected: bool) -> None:
        """Notes whether a host should get the bundle. A new one comes last."""
        if expected is (host in self._hosts):
            return
        if expected:
            self._hosts[host] = None
        else:
            del self._hosts[host]
        self._steps.append(host)
        self.state += 1

    def since(self, state: int) -> list[PeerId] | None:
        """Returns the hosts that came or went since a state; None: that is too long ago."""
        count = self.state - state
        if count > len(self._steps):
            return None
        return list(dict.fromkeys(islice(self._steps, len(self._steps) - count, None)))


Expected: TypeAlias = Sequence[PeerId] | ExpectedHosts
