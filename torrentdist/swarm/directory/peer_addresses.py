"""The addresses of all peers, and the one list of all addresses from which peers may connect.

Always: the list is rebuilt only when it changes. Equal lists have equal tags, so that a peer that
names the tag of its list is not sent it again.
Never: know a peer or a swarm.
"""

import hashlib
from collections import Counter
from ipaddress import IPv6Address, ip_address


def address_of(text: str) -> str:
    """Returns the canonical form of an IP address that a peer can have; empty for other text."""
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    if isinstance(address, IPv6Address):
        if address.scope_id:
            return ""
        address = address.ipv4_mapped or address
    if address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255":
        return ""
    return str(address)


class Hosts:
    """Counts the peers at each address."""

    def __init__(self) -> None:
        self._peers: Counter[str] = Counter()
        self._registered: frozenset[str] = frozenset()
        self._given: frozenset[str] = frozenset()
        """The addresses among the registered hosts. Names are left out."""
        self._stale = False
        self._list: list[str] = []
        self.tag = ""
        """Tag of the list that was last requested."""

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
        """Returns the addresses of all peers and of the registered hosts."""
        if registered is not self._registered and registered != self._registered:
            self._registered = registered
            self._given = frozenset(host for text in registered if (host := address_of(text)))
            self._stale = True
        if self._stale:
            self._stale = False
            self._list = sorted(self._given.union(self._peers))
            self.tag = hashlib.blake2b(" ".join(self._list).encode(), digest_size=8).hexdigest()
        return self._list
