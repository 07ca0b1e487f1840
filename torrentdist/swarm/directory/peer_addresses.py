"""The addresses of all peers, and the lists of all addresses from which peers may connect.

Always: a list is rebuilt only when it changes, and in a large cluster not more often than every few
seconds. Equal lists have equal tags, so that a peer that names the tag of its list is not sent it
again. A list of ranges admits the same addresses as the list of each of them.
Never: know a peer or a swarm.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv6Address, ip_address
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final

RENEW_SECS_PER_HOST: Final = 0.00002
FEW_HOSTS: Final = 1000
"""With so many hosts, the lists are renewed with every change."""
_LENGTHS: Final[dict[int, int]] = {AF_INET: 4, AF_INET6: 16}


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


def ranges_of(addresses: Iterable[str]) -> list[str]:
    """Returns these addresses, with `first-last` in place of those that follow each other."""
    numbers: dict[int, list[int]] = {AF_INET: [], AF_INET6: []}
    for text in addresses:
        family = AF_INET6 if ":" in text else AF_INET
        numbers[family].append(int.from_bytes(inet_pton(family, text)))
    return [text for family, every in numbers.items() for text in _ranges(family, sorted(every))]


def _ranges(family: int, numbers: list[int]) -> Iterator[str]:
    first = 0
    for end, number in enumerate(numbers, 1):
        if end == len(numbers) or numbers[end] > number + 1:
            ends = dict.fromkeys((numbers[first], number))
            yield "-".join(inet_ntop(family, each.to_bytes(_LENGTHS[family])) for each in ends)
            first = end


class AddressList:
    """A list with a tag that stands for it."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self.tag = hashlib.blake2b(" ".join(addresses).encode(), digest_size=8).hexdigest() if addresses else ""


class Hosts:
    """Counts the peers at each address."""

    def __init__(self) -> None:
        self._peers: Counter[str] = Counter()
        self._registered: frozenset[str] = frozenset()
        self._given: frozenset[str] = frozenset()
        """The addresses among the registered hosts. Names are left out."""
        self._stale = False
        self._renewed_at = float("-inf")
        self._list = AddressList(())
        self._ranges = AddressList(())

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

    def knows(self, host: str) -> bool:
        return host in self._peers or host in self._given

    def addresses(self, registered: frozenset[str], now: float, *, ranges: bool) -> AddressList:
        """Returns the addresses of all peers and of the registered hosts, each by itself or in
        ranges."""
        pause = max(0, len(self._peers) - FEW_HOSTS) * RENEW_SECS_PER_HOST
        if not 0 <= now - self._renewed_at < pause:
            self._renew(registered, now)
        return self._ranges if ranges else self._list

    def _renew(self, registered: frozenset[str], now: float) -> None:
        if registered is not self._registered and registered != self._registered:
            self._registered = registered
            self._given = frozenset(host for text in registered if (host := address_of(text)))
            self._stale = True
        if self._stale:
            self._stale, self._renewed_at = False, now
            every = sorted(self._given.union(self._peers))
            self._list, self._ranges = AddressList(every), AddressList(ranges_of(every))
