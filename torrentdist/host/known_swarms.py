"""What the masters' last answer says about this host's swarms, and which addresses the engine may
talk to. It also reports which transfers have had no peer for so long that they count as stuck.

Always: the last answer stands until a newer one comes, so that transfers continue without masters.
Never: ask a master. The agent does, and passes its picture to `apply`.
"""

import asyncio
from collections.abc import Iterable

from torrentdist.model.ids import Digest
from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.model.wire.swarm_messages import PeerAddress, SwarmPeers
from torrentdist.swarm.engine.engine import Engine
from torrentdist.swarm.swarm_picture import SwarmPicture

PATIENCE_SECS = 3.0
"""Time without a peer after which a transfer counts as stuck. Dialling a peer takes milliseconds,
and every announce repeats it."""


class KnownSwarms:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._picture = SwarmPicture()
        self._allowed: frozenset[str] = frozenset()
        self._also: Iterable[str] = ()
        self._pictured = asyncio.Event()

    def apply(self, picture: SwarmPicture) -> None:
        """Adopts the masters' answer: passes addresses, plans and peers to the engine."""
        self._picture = picture
        self._pictured.set()
        self._pictured.clear()
        self._allow()
        self._engine.set_rtt(picture.rtt)
        for digest, swarm in picture.swarms.items():
            transfer = self._engine.transfer(digest)
            if transfer is not None:
                self._engine.conduct(digest, swarm.place)
                if swarm.peers:
                    transfer.add_peers(swarm.peers)

    async def next_picture(self) -> None:
        """Returns when the masters' next answer has been adopted."""
        await self._pictured.wait()

    def allow_also(self, addresses: Iterable[str]) -> None:
        """Lets the engine talk to these addresses, besides those in the last picture. The same list
        as before costs nothing."""
        if addresses is self._also:
            return
        self._also = addresses
        self._allow()

    def _allow(self) -> None:
        allowed = self._picture.addresses.union(self._also)
        if allowed != self._allowed:
            self._allowed = allowed
            self._engine.allow(allowed)

    def peers(self, digest: Digest) -> list[PeerAddress]:
        """Returns the peers of a swarm in the last picture."""
        swarm = self._swarm(digest)
        return list(swarm.peers) if swarm else []

    def place(self, digest: Digest) -> SwarmPlace | None:
        """Returns this host's place in the plan of a swarm."""
        swarm = self._swarm(digest)
        return swarm.place if swarm else None

    def flows(self, digest: Digest) -> list[int]:
        """Returns the flows that this host fetches across the border of its zone."""
        swarm = self._swarm(digest)
        return swarm.flows if swarm else []

    def replicas_elsewhere(self, digest: Digest) -> int | None:
        """Returns how many live masters hold the bundle, or None if no master has said."""
        swarm = self._swarm(digest)
        return swarm.replicas if swarm else None

    def is_pinned(self, digest: Digest) -> bool:
        swarm = self._swarm(digest)
        return swarm is not None and swarm.pinned

    def _swarm(self, digest: Digest) -> SwarmPeers | None:
        return self._picture.swarms.get(digest)


class PeerlessTransfers:
    """A transfer that has just begun is not stuck. Meeting a peer restarts the count."""

    def __init__(self) -> None:
        self._since: dict[Digest, float] = {}

    def problem(self, digest: Digest, *, peers: int, now: float) -> str:
        """Returns why an incomplete transfer makes no progress; empty if it may still."""
        if peers:
            self._since.pop(digest, None)
            return ""
        return "no peers" if now - self._since.setdefault(digest, now) >= PATIENCE_SECS else ""

    def forget(self, digest: Digest) -> None:
        self._since.pop(digest, None)
