"""Who the bytes of a transfer came from: masters, other peers, or this host's disk. Pure bookkeeping.

Always holds: masters + peers + local is what is there, because what the connections' counters say (they include bytes
that were fetched twice, and lack what a peer sent after it was last looked at) is only used as a proportion.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.model.wire.transfer_messages import Sources

Endpoint = tuple[str, int]


class SeenPeer(msgspec.Struct, frozen=True):
    """One connection as it was last seen."""

    remote: Endpoint
    listening: int | None
    """The port that the peer says it listens on; the remote port of an incoming connection is any."""
    received: int
    """Payload bytes of this connection."""
    sent: int = 0


def ours_alone(seen: Iterable[SeenPeer], everybody: Iterable[SeenPeer]) -> set[str]:
    """Addresses of those that say where they listen, as peers of ours do, where nobody else is connected from. Who has
    exchanged nothing yet may be one of ours that has not said it."""
    others = {peer.remote[0] for peer in everybody if peer.listening is None and (peer.received or peer.sent)}
    return {peer.remote[0] for peer in seen if peer.listening is not None} - others


class _Line(msgspec.Struct):
    peer: SeenPeer
    before: int = 0
    """What earlier connections from the same remote port had brought."""


class SourceLedger:
    def __init__(self) -> None:
        self._roles: dict[Endpoint, PeerRole] = {}
        self._lines: dict[Endpoint, _Line] = {}

    def learn(self, peers: Iterable[PeerAddress]) -> None:
        """Roles as the directory names them; they stay known when a peer has left it."""
        for peer in peers:
            self._roles[peer.host, peer.port] = peer.role

    def record(self, peers: Iterable[SeenPeer]) -> None:
        """What the connections say now. Those that are not named have ended; what they brought stays counted."""
        for peer in peers:
            line = self._lines.setdefault(peer.remote, _Line(peer))
            if peer.received < line.peer.received:
                line.before += line.peer.received
            line.peer = peer

    def role_of(self, peer: SeenPeer) -> PeerRole | None:
        """By where it listens; a peer that doesn't say (a stock client) by its host, if all known there are alike."""
        host, port = peer.remote
        for candidate in (port, peer.listening):
            if candidate is not None and (role := self._roles.get((host, candidate))) is not None:
                return role
        if peer.listening is not None:
            return None
        roles = {role for (known, _), role in self._roles.items() if known == host}
        return roles.pop() if len(roles) == 1 else None

    def origins(self) -> dict[Endpoint, int]:
        """Payload bytes by who sent them: where it listens, as far as that is known."""
        found: dict[Endpoint, int] = {}
        for line in self._lines.values():
            host, port = line.peer.remote
            known = (host, port) in self._roles or line.peer.listening is None
            origin = (host, port if known else line.peer.listening or port)
            if received := line.before + line.peer.received:
                found[origin] = found.get(origin, 0) + received
        return found

    def sources(self, *, here: int, local: int) -> Sources:
        """`here` bytes are on this host, `local` of them were before."""
        fetched = max(0, here - local)
        masters = peers = 0
        for line in self._lines.values():
            received = line.before + line.peer.received
            if self.role_of(line.peer) is PeerRole.MASTER:
                masters += received
            else:
                peers += received
        counted = masters + peers
        from_masters = fetched * masters // counted if counted else 0
        return Sources(masters=from_masters, peers=fetched - from_masters, local=here - fetched)
