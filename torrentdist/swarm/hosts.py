"""The addresses that peers have, and the one list of all that connections may come from.

Always holds: the list is made anew only when it changes, and equal lists have equal tags, so that whoever names the tag
that it was told need not be told the list again. Must not do: know a peer or a swarm. directory.py is its only user.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from torrentdist.swarm.roster import address_of


class Hosts:
    def __init__(self) -> None:
        self._peers: Counter[str] = Counter()
        self._version = 0
        self._made_of: tuple[int, frozenset[str]] = (-1, frozenset())
        self._list: list[str] = []
        self.tag = ""
        """Of the list that was asked for last."""

    def __len__(self) -> int:
        return len(self._peers)

    def peers(self, host: str) -> int:
        return self._peers[host]

    def add(self, host: str) -> None:
        self._peers[host] += 1
        self._version += self._peers[host] == 1

    def drop(self, host: str) -> None:
        self._peers[host] -= 1
        if not self._peers[host]:
            del self._peers[host]
            self._version += 1

    def addresses(self, registered: frozenset[str]) -> list[str]:
        """Of all peers, and the hosts given. A name is no address."""
        if (self._version, registered) != self._made_of:
            self._made_of = (self._version, registered)
            given = {host for text in registered if (host := address_of(text))}
            self._list = sorted({*self._peers, *given})
            self.tag = hashlib.blake2b(" ".join(self._list).encode(), digest_size=8).hexdigest()
        return self._list
