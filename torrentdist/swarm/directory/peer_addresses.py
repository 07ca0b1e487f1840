"""The addresses that peers have, and the one list of all that connections may come from.

Always holds: the list is made anew only when it changes, and equal lists have equal tags, so that whoever names the tag
that it was told need not be told the list again. Must not do: know a peer or a swarm. directory.py is its only user.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from torrentdist.swarm.directory.roster import address_of


class Hosts:
    def __init__(self) -> None:
        self._peers: Counter[str] = Counter()
        self._registered: frozenset[str] = frozenset()
        self._given: frozenset[str] = frozenset()
        """The addresses among the registered: a name is none."""
        self._stale = False
        self._list: list[str] = []
        self.tag = ""
        """Of the list that was asked for last."""

    def __len__(self) -> int:
        return len(self._peers)

    def peers(self, host: str) -> int:
        return self._peers[host]

    def add(self, host: str) -> None:
        self._peers[host] += 1
        self._stale |= self._peers[host] == 1 and host not in self._given

    def drop(self, host: str) -> None:
        self._peers[host] -= 1
        if not self._peers[host]:
            del self._peers[host]
            self._stale |= host not in self._given

    def addresses(self, registered: frozenset[str]) -> list[str]:
        """Of all peers, and the hosts given."""
        if registered is not self._registered and registered != self._registered:
            self._registered = registered
            self._given = frozenset(host for text in registered if (host := address_of(text)))
            self._stale = True
        if self._stale:
            self._stale = False
            self._list = sorted(self._given.union(self._peers))
            self.tag = hashlib.blake2b(" ".join(self._list).encode(), digest_size=8).hexdigest()
        return self._list
