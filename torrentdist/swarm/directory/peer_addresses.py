"""The addresses of all peers, and the lists of all addresses from which peers may connect.

Always: an address that comes or goes costs about the same, however many there are. In a large
cluster a list is renewed not more often than every few seconds. Equal lists have equal tags, so
that a peer that names the tag of its list is not sent it again. A list of ranges admits the same
addresses as the list of each of them, and those of the networks that the operator named.
Never: know a peer or a swarm. Admit an address that was shut out because its network was named.
Longer than most files: ranges that follow changes, and the lists that are made of them.
"""

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final

RENEW_SECS_PER_HOST: Final = 0.00002
FEW_HOSTS: Final = 1000
"""With so many hosts, the lists are renewed with every change."""
MANY: Final = 1000
"""From this number on, new addresses are sorted together instead of each into the others."""
_TAG_BYTES: Final = 16
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


class AddressRanges:
    """`add` and `drop` take addresses in canonical form."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._families: dict[int, _Ranges] = {AF_INET: _Ranges(AF_INET), AF_INET6: _Ranges(AF_INET6)}
        for family, number in sorted(map(_numbered, addresses)):  # in order, each is added at the end
            self._families[family].add(number)

    def add(self, address: str) -> None:
        family, number = _numbered(address)
        self._families[family].add(number)

    def add_network(self, network: str) -> None:
        """Adds all addresses of a network, such as 10.1.0.0/16, that no address of it is in yet."""
        whole = ip_network(network)
        self._families[AF_INET if whole.version == 4 else AF_INET6].add_all(
            int(whole.network_address), int(whole.broadcast_address)
        )

    def drop(self, address: str) -> None:
        family, number = _numbered(address)
        self._families[family].drop(number)

    def __contains__(self, address: str) -> bool:
        family, number = _numbered(address)
        return self._families[family].at(number) is not None

    def texts(self) -> list[str]:
        return self._families[AF_INET].texts + self._families[AF_INET6].texts


def ranges_of(addresses: Iterable[str]) -> list[str]:
    """Returns these addresses, with `first-last` in place of those that follow each other."""
    return AddressRanges(addresses).texts()


class _Ranges:
    """The ranges of one family, in order."""

    def __init__(self, family: int) -> None:
        self._family = family
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self.texts: list[str] = []

    def at(self, number: int) -> int | None:
        """Returns which range the number is in."""
        spot = bisect_right(self._firsts, number) - 1
        return spot if spot >= 0 and number <= self._lasts[spot] else None

    def add(self, number: int) -> None:
        self.add_all(number, number)

    def add_all(self, first: int, last: int) -> None:
        """Adds numbers of which either all are in one range already or none is in any."""
        if self.at(first) is not None:
            return
        spot = bisect_right(self._firsts, first)
        from_, to = spot, spot
        if spot and self._lasts[spot - 1] == first - 1:
            from_, first = spot - 1, self._firsts[spot - 1]
        if spot < len(self._firsts) and self._firsts[spot] == last + 1:
            to, last = spot + 1, self._lasts[spot]
        self._put(from_, to, [(first, last)])

    def drop(self, number: int) -> None:
        spot = self.at(number)
        if spot is None:
            return
        first, last = self._firsts[spot], self._lasts[spot]
        parts = [(first, number - 1), (number + 1, last)]
        self._put(spot, spot + 1, [(low, high) for low, high in parts if low <= high])

    def _put(self, from_: int, to: int, ranges: list[tuple[int, int]]) -> None:
        self._firsts[from_:to] = [first for first, _ in ranges]
        self._lasts[from_:to] = [last for _, last in ranges]
        self.texts[from_:to] = [self._text(first, last) for first, last in ranges]

    def _text(self, first: int, last: int) -> str:
        return "-".join(self._written(end) for end in dict.fromkeys((first, last)))

    def _written(self, number: int) -> str:
        return inet_ntop(self._family, number.to_bytes(_LENGTHS[self._family]))


def _numbered(address: str) -> tuple[int, int]:
    family = AF_INET6 if ":" in address else AF_INET
    return family, int.from_bytes(inet_pton(family, address))


def holds_one_of(text: str, addresses: Iterable[str]) -> bool:
    """Whether a text of a list, an address or a range, admits one of these addresses."""
    (family, first), (_, last) = map(_numbered, (text.partition("-")[0], text.rpartition("-")[2]))
    numbers = (_numbered(address) for address in addresses)
    return any(family == other and first <= number <= last for other, number in numbers)


def merged(networks: Iterable[str]) -> Iterator[str]:
    """Yields those of the networks that are in no other."""
    kept: list[IPv4Network | IPv6Network] = []
    for network in sorted({ip_network(text) for text in networks}, key=lambda one: one.prefixlen):
        if not any(network.version == wider.version and network.subnet_of(wider) for wider in kept):  # type: ignore[arg-type]
            kept.append(network)
            yield str(network)


class AddressList:
    """A list with a tag that stands for it."""

    def __init__(self, addresses: list[str], tag: str) -> None:
        self.addresses = addresses
        self.tag = tag


class Hosts:
    """Counts the peers at each address."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        """`networks`: those whose every address may connect. Their addresses are not told one by
        one."""
        self._peers: Counter[str] = Counter()
        self._registered: frozenset[str] = frozenset()
        self._given: Counter[str] = Counter()
        """The addresses among the registered hosts. Names are left out."""
        self._networks = list(merged(networks))
        self._open = self._opened(frozenset())
        """The named networks without what was shut out."""
        self._out: frozenset[str] = frozenset()
        self._apart = AddressRanges()
        """All addresses that are in no named network."""
        self._tag = 0
        """The sum of the hashes of all addresses that may connect."""
        self._stale = bool(self._networks)
        self._renewed_at = float("-inf")
        self._ranges = AddressList([], "")
        self._single: AddressList | None = None
        """The list of each address, made when somebody asks for it."""

    def __len__(self) -> int:
        return len(self._peers)

    def peers(self, host: str) -> int:
        return self._peers[host]

    def add(self, host: str) -> None:
        known = self.knows(host)
        self._peers[host] += 1
        if not known:
            self._came(host)

    def drop(self, host: str) -> None:
        self._peers[host] -= 1
        if not self._peers[host]:
            del self._peers[host]
            if not self.knows(host):
                self._went(host)

    def knows(self, host: str) -> bool:
        return host in self._peers or host in self._given

    def shut_out(self, addresses: frozenset[str]) -> None:
        """Leaves these addresses out of the named networks."""
        if self._networks and addresses != self._out:
            touched, self._out = addresses ^ self._out, addresses
            self._open = self._opened(addresses)
            for host in filter(self.knows, map(address_of, touched)):
                (self._apart.drop if host in self._open else self._apart.add)(host)
            self._stale, self._renewed_at = True, float("-inf")

    def addresses(self, registered: frozenset[str], now: float, *, ranges: bool) -> AddressList:
        """Returns the addresses of all peers and of the registered hosts, each by itself or in
        ranges. The same object as before if nothing changed."""
        pause = max(0, len(self._peers) - FEW_HOSTS) * RENEW_SECS_PER_HOST
        if not 0 <= now - self._renewed_at < pause:
            self._renew(registered, now)
        if ranges:
            return self._ranges
        if self._single is None:
            self._single = AddressList(sorted(self._peers.keys() | self._given.keys()), self._ranges.tag)
        return self._single

    def _renew(self, registered: frozenset[str], now: float) -> None:
        if registered is not self._registered:
            self._register(registered)
        if self._stale:
            self._stale, self._renewed_at = False, now
            opened = self._open.texts()
            texts = opened + self._apart.texts()
            said = f"{self._tag:x} {' '.join(opened)}"
            tag = hashlib.blake2b(said.encode(), digest_size=8).hexdigest() if texts else ""
            self._ranges, self._single = AddressList(texts, tag), None

    def _register(self, registered: frozenset[str]) -> None:
        came, went = registered - self._registered, self._registered - registered
        self._registered = registered
        added = [host for host in map(address_of, came) if host]
        many = len(added) > MANY
        for host in added:
            known = self.knows(host)
            self._given[host] += 1
            if not known:
                self._came(host, sorted_in=not many)
        for host in filter(None, map(address_of, went)):
            self._given[host] -= 1
            if not self._given[host]:
                del self._given[host]
                if not self.knows(host):
                    self._went(host)
        if many:
            every = self._peers.keys() | self._given.keys()
            self._apart = AddressRanges(host for host in every if host not in self._open)

    def _came(self, host: str, *, sorted_in: bool = True) -> None:
        self._stale = True
        self._tag += _hashed(host)
        if sorted_in and host not in self._open:
            self._apart.add(host)

    def _went(self, host: str) -> None:
        self._stale = True
        self._tag -= _hashed(host)
        self._apart.drop(host)

    def _opened(self, out: frozenset[str]) -> AddressRanges:
        ranges = AddressRanges()
        for network in self._networks:
            ranges.add_network(network)
        for address in filter(None, map(address_of, out)):
            ranges.drop(address)
        return ranges


def _hashed(host: str) -> int:
    return int.from_bytes(hashlib.blake2b(host.encode(), digest_size=_TAG_BYTES).digest())
