"""Decides which addresses an engine connects to, and keeps the peers that a transfer may dial.

Always: once addresses have been named, all others are blocked, in both directions. Addresses are
compared in one canonical form.
Never: choose peers. The directory names them.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Collection, Iterable, Sequence

import libtorrent as lt

from torrentdist.model.events import Fact, PeerConnected, PeerDropped
from torrentdist.model.ids import Digest
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.model.wire.transfer_messages import Sources
from torrentdist.swarm.engine.session_settings import port_of_user_agent
from torrentdist.swarm.engine.traffic import Endpoint, SeenPeer, SourceLedger

_BLOCKED = 1
_FILTERED = 89
"""libtorrent's error code for a connection that the filter ended."""


def clean_addresses(addresses: Iterable[str] | None) -> frozenset[str] | None:
    """Returns the canonical forms of addresses and of ranges such as `10.0.0.1-10.0.0.9`. Text that
    is neither is dropped, since no peer can connect from it."""
    if addresses is None:
        return None
    cleaned = (canonical_range(text) if "-" in text else canonical_address(text) for text in addresses)
    return frozenset(canonical for canonical in cleaned if canonical is not None)


def canonical_range(text: str) -> str | None:
    ends = [ipaddress.ip_address(each) for each in map(canonical_address, text.split("-")) if each is not None]
    if len(ends) != 2 or ends[0].version != ends[1].version or int(ends[0]) > int(ends[1]):
        return None
    return f"{ends[0]}-{ends[1]}"


def admits(allowed: frozenset[str], host: str) -> bool:
    """Whether an address is one of these, or in one of these ranges. All are in canonical form."""
    if host in allowed:
        return True
    address = ipaddress.ip_address(host)
    ranges = (map(ipaddress.ip_address, text.split("-")) for text in allowed if "-" in text)
    return any(first.version == address.version and int(first) <= int(address) <= int(last) for first, last in ranges)


def canonical_address(text: str) -> str | None:
    """Returns the canonical form of an IP address, with IPv4 not written as IPv6. None for other
    text."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


async def resolve(host: str) -> str:
    """Returns the address of `host`. An address is returned as it is: the first lookup costs 4 ms
    and a thread."""
    if (address := canonical_address(host)) is not None:
        return address
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return str(found[0][4][0])


def filter_for(allowed: frozenset[str] | None, *, but: Iterable[str] = ()) -> lt.ip_filter:
    """Returns libtorrent's filter, which admits only `allowed` (None: all) and always blocks
    `but`."""
    rules = lt.ip_filter()
    if allowed is not None:
        rules.add_rule("0.0.0.0", "255.255.255.255", _BLOCKED)
        rules.add_rule("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", _BLOCKED)
        for text in sorted(allowed):
            first, _, last = text.partition("-")
            rules.add_rule(first, last or first, 0)
    for address in but:
        rules.add_rule(address, address, _BLOCKED)
    return rules


class Connections:
    """The addresses that one engine may connect to, and the events about its connections."""

    def __init__(
        self,
        set_filter: Callable[[lt.ip_filter], None],
        digest_of: Callable[[lt.torrent_alert], Digest | None],
        tell: Callable[[Fact], None],
    ) -> None:
        """`digest_of` returns None for connections that ended before they named a torrent, or whose
        torrent is gone."""
        self._set_filter = set_filter
        self._digest_of = digest_of
        self._tell = tell
        self._allowed: frozenset[str] | None = None
        self._apart: frozenset[str] = frozenset()

    def allow(self, addresses: Iterable[str] | None) -> bool:
        """Sets the only addresses to connect to (None: all), and disconnects others. Returns
        whether the set changed."""
        allowed = clean_addresses(addresses)
        if allowed == self._allowed:
            return False
        self._allowed = allowed
        self._set_filter(filter_for(allowed, but=self._apart))
        return True

    def keep_apart(self, hosts: Iterable[str]) -> bool:
        """Blocks these hosts and no others of those that are allowed. Returns whether that changed
        anything."""
        apart = frozenset(hosts)
        if apart == self._apart:
            return False
        self._apart = apart
        self._set_filter(filter_for(self._allowed, but=apart))
        return True

    def disconnect(self, hosts: Collection[str]) -> None:
        """Ends all connections to these hosts, which may reconnect at once.

        libtorrent has no other way to end them. It reports these hosts as blocked if they are
        dialled directly afterwards.
        """
        self._set_filter(filter_for(self._allowed, but=self._apart.union(hosts)))
        self._set_filter(filter_for(self._allowed, but=self._apart))

    def on_connected(self, alert: lt.peer_connect_alert) -> None:
        if (digest := self._digest_of(alert)) is not None:
            host, port = alert.endpoint
            self._tell(PeerConnected(digest=digest, host=host, port=port))

    def on_dropped(self, alert: lt.peer_disconnected_alert) -> None:
        if (digest := self._digest_of(alert)) is not None:
            host, port = alert.endpoint
            self._tell(PeerDropped(digest=digest, host=host, port=port, reason=self._reason(alert.error, host)))

    def _reason(self, error: lt.error_code, host: str) -> str:
        """Returns why a peer was disconnected. A permitted peer was only blocked briefly, by
        `disconnect`."""
        filtered = error.category().name() == "libtorrent" and error.value() == _FILTERED
        if filtered and host in self._apart:
            return "not needed any more"
        is_allowed = self._allowed is None or admits(self._allowed, host)
        return "connecting anew" if filtered and is_allowed else str(error.message())


class TransferPeers:
    """The peers of one transfer: those named by the directory, and what each has sent."""

    def __init__(self, is_own: Callable[[Endpoint], bool]) -> None:
        """`is_own` tells whether this engine itself listens on an endpoint."""
        self._is_own = is_own
        self._known: dict[Endpoint, PeerAddress] = {}
        self._ledger = SourceLedger()

    def learn(self, peers: Sequence[PeerAddress]) -> list[PeerAddress]:
        """Takes what the directory names. Returns the peers that can be dialled."""
        self._ledger.learn(peers)
        others = [
            peer
            for peer in peers
            if canonical_address(peer.host) is not None and not self._is_own((peer.host, peer.port))
        ]
        self._known.update({(peer.host, peer.port): peer for peer in others})
        return others

    def known(self) -> list[PeerAddress]:
        return list(self._known.values())

    def holders(self) -> set[str]:
        """Returns the hosts of the masters that have everything, unless another peer runs there."""
        known = self._known.values()
        holders = {(peer.host, peer.port) for peer in known if peer.complete and peer.role is PeerRole.MASTER}
        return {host for host, _ in holders} - {peer.host for peer in known if (peer.host, peer.port) not in holders}

    def endpoints(self, *, tls: bool) -> list[Endpoint]:
        return [(peer.host, port) for peer in self._known.values() if (port := peer.port_for(tls=tls))]

    def worth_dialling(self, peers: Iterable[PeerAddress], *, seeding: bool, tls: bool) -> set[Endpoint]:
        """Returns where these peers listen for peers with or without TLS. A seeder does not dial
        complete peers."""
        wanted = [peer for peer in peers if not (seeding and peer.complete)]
        return {(peer.host, port) for peer in wanted if (port := peer.port_for(tls=tls))}

    def dialled(self, endpoints: Iterable[Endpoint], *, tls: bool) -> set[Endpoint]:
        """Returns where the peers that announce these endpoints listen. Unknown ones stay as they
        are."""
        found: set[Endpoint] = set()
        for endpoint in endpoints:
            known = self._known.get(endpoint)
            found |= {endpoint} if known is None else self.worth_dialling([known], seeding=False, tls=tls)
        return found

    def record(self, seen: Iterable[SeenPeer]) -> None:
        self._ledger.record(seen)

    def origins(self) -> dict[Endpoint, int]:
        return self._ledger.origins()

    def sources(self, *, here: int, local: int, put_in: int = 0) -> Sources:
        return self._ledger.sources(here=here, local=min(local, here), put_in=put_in)


def dial(handle: lt.torrent_handle, endpoints: Iterable[Endpoint]) -> None:
    """Connects a torrent to these endpoints.

    A connected peer is not dialled twice, because libtorrent knows its peers' listening ports. A
    peer that refused three times is never dialled again, whatever max_failcount says. Naming the
    tracker as the source removes one failure from the count.
    """
    for endpoint in endpoints:
        with contextlib.suppress(RuntimeError):  # The torrent may have left the session.
            handle.connect_peer(endpoint, int(lt.peer_info.tracker), 0)


def seen_peers(handle: lt.torrent_handle | None) -> list[SeenPeer]:
    """Returns the open connections of a torrent. May be called from any thread.

    Waits for libtorrent's network thread, which may be busy for a while. The alert with the same
    content cannot be used from Python.
    """
    if handle is None:
        return []
    try:
        return [
            SeenPeer(_plain(peer.ip), port_of_user_agent(peer.client), peer.total_download, peer.total_upload)
            for peer in handle.get_peer_info()
            if not peer.flags & (lt.peer_info.connecting | lt.peer_info.handshake)
        ]
    except RuntimeError:  # The torrent has left the session.
        return []


def _plain(endpoint: tuple[str, int]) -> Endpoint:
    """Returns an IPv4 address in its own form, even if it came over an IPv6 socket."""
    host, port = endpoint
    return (canonical_address(host) or host, port)
