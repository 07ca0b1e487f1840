"""What peers announce to a swarm directory, for tests. A test states only what it needs."""

from __future__ import annotations

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmAnnounce, SwarmAnswer, SwarmEntry
from torrentdist.swarm.directory.directory import SwarmDirectory

D1, D2 = Digest("1" * 64), Digest("2" * 64)


def has(digest: Digest = D1) -> SwarmEntry:
    return SwarmEntry(digest=digest, complete=True)


def lacks(digest: Digest = D1, *, done: int = 0) -> SwarmEntry:
    return SwarmEntry(digest=digest, complete=False, done=done)


def announce(
    into: SwarmDirectory,
    name: str,
    *entries: SwarmEntry,
    host: str = "",
    source: str = "10.0.0.1",
    role: PeerRole = PeerRole.SUPERVISOR,
    port: int = 7000,
    now: float = 0.0,
    addresses: str = "",
    owner: str = "",
) -> SwarmAnswer:
    """Announces `entries` as the peer `name` from the address `source`. `owner`: its sender."""
    request = SwarmAnnounce(
        peer=PeerId(name), role=role, port=port, host=host, swarms=list(entries), addresses=addresses
    )
    return into.announce(request, source_host=source, now=now, owner=owner)


def hosts_of(peers: list[PeerAddress]) -> set[str]:
    return {peer.host for peer in peers}
