"""Measures an engine's traffic: how fast, and whether content came from masters, from other peers
or from this disk.

Always: masters + peers + local is exactly what is on this host. The counters of connections are
only used as a proportion, because they include bytes that were fetched twice and lack what a peer
sent after the last reading.
Pure: no I/O, no clock, no libtorrent.
"""

from collections.abc import Iterable, Mapping

import msgspec

from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.model.wire.transfer_messages import Sources

Endpoint = tuple[str, int]


class EngineStatistics(msgspec.Struct, frozen=True):
    """The traffic of a whole engine: bytes so far, and bytes per second since the previous
    reading."""

    torrents: int = 0
    peers: int = 0
    uploaded: int = 0
    downloaded: int = 0
    upload_rate: float = 0.0
    download_rate: float = 0.0
    at: float = 0.0
    """Time of the reading (monotonic)."""


def next_statistics(
    before: EngineStatistics, counters: Mapping[str, int], torrents: int, now: float
) -> EngineStatistics:
    """Returns the statistics that follow `before`, from libtorrent's session counters."""
    passed = max(now - before.at, 1e-3)
    uploaded, downloaded = counters["net.sent_payload_bytes"], counters["net.recv_payload_bytes"]
    return EngineStatistics(
        torrents=torrents,
        peers=counters["peer.num_peers_connected"],
        uploaded=uploaded,
        downloaded=downloaded,
        upload_rate=(uploaded - before.uploaded) / passed,
        download_rate=(downloaded - before.downloaded) / passed,
        at=now,
    )


class TransferPace(msgspec.Struct, frozen=True):
    """How fast one bundle is transferred."""

    rate: float
    """Bytes per second, in or out, during the last few seconds."""
    peers: int
    left: int
    """Bytes still missing, as far as this engine knows."""


class SeenPeer(msgspec.Struct, frozen=True):
    """One connection as last seen."""

    remote: Endpoint
    listening: int | None
    """The port on which the peer says that it listens. The remote port of an incoming connection
    differs from it."""
    received: int
    """Payload bytes received over this connection."""
    sent: int = 0


def own_hosts(seen: Iterable[SeenPeer], everybody: Iterable[SeenPeer]) -> set[str]:
    """Returns the addresses in `seen` at which only our own peers run. These tell the port on which
    they listen.

    A connection without traffic does not count as a stock client: it may be one of ours that has
    not told its port yet.
    """
    others = {peer.remote[0] for peer in everybody if peer.listening is None and (peer.received or peer.sent)}
    return {peer.remote[0] for peer in seen if peer.listening is not None} - others


class _PeerLine(msgspec.Struct):
    peer: SeenPeer
    before: int = 0
    """Bytes from earlier connections with the same remote port."""


class SourceLedger:
    """What each peer of one transfer has sent, and the peer's role."""

    def __init__(self) -> None:
        self._roles: dict[Endpoint, PeerRole] = {}
        self._outside: set[Endpoint] = set()
        """Where peers of other zones listen."""
        self._lines: dict[Endpoint, _PeerLine] = {}

    def learn(self, peers: Iterable[PeerAddress]) -> None:
        """Records the roles that the directory names. They stay known after a peer has left the
        directory."""
        for peer in peers:
            self._roles[peer.host, peer.port] = peer.role
            if peer.tls_port:
                self._roles[peer.host, peer.tls_port] = peer.role
            if peer.outside:
                self._outside |= {(peer.host, peer.port), (peer.host, peer.tls_port)}

    def record(self, peers: Iterable[SeenPeer]) -> None:
        """Records the counters of the open connections. The bytes of ended connections stay
        counted."""
        for peer in peers:
            line = self._lines.setdefault(peer.remote, _PeerLine(peer))
            if peer.received < line.peer.received:
                line.before += line.peer.received
            line.peer = peer

    def role_of(self, peer: SeenPeer) -> PeerRole | None:
        """Returns the role of this peer.

        A peer that does not tell its port (a stock client) gets the role of its host's peers, if
        they all have the same role.
        """
        host, port = peer.remote
        for candidate in (port, peer.listening):
            if candidate is not None and (role := self._roles.get((host, candidate))) is not None:
                return role
        if peer.listening is not None:
            return None
        roles = {role for (known, _), role in self._roles.items() if known == host}
        return roles.pop() if len(roles) == 1 else None

    def origins(self) -> dict[Endpoint, int]:
        """Returns the payload bytes by the endpoint on which the sender listens, as far as it is
        known."""
        found: dict[Endpoint, int] = {}
        for line in self._lines.values():
            host, port = line.peer.remote
            known = (host, port) in self._roles or line.peer.listening is None
            origin = (host, port if known else line.peer.listening or port)
            if received := line.before + line.peer.received:
                found[origin] = found.get(origin, 0) + received
        return found

    def sources(self, *, here: int, local: int, put_in: int = 0) -> Sources:
        """Divides the `here` bytes on this host by source. `local` of them were here before the
        transfer, and `put_in` came from other zones beside the swarm."""
        fetched = max(0, here - local)
        masters, peers = 0, put_in
        for line in self._lines.values():
            received = line.before + line.peer.received
            if self.role_of(line.peer) is PeerRole.MASTER:
                masters += received
            else:
                peers += received
        counted = masters + peers
        from_masters = fetched * masters // counted if counted else 0
        outside = put_in + sum(line.before + line.peer.received for line in self._lines.values() if self._is_far(line))
        return Sources(masters=from_masters, peers=fetched - from_masters, local=here - fetched, outside=outside)

    def _is_far(self, line: _PeerLine) -> bool:
        host, port = line.peer.remote
        return (host, port) in self._outside or (host, line.peer.listening) in self._outside
