"""The table of an engine's transfers: the hash on the wire leads to the digest."""

from __future__ import annotations

from torrentdist.model.ids import Digest
from torrentdist.swarm.engine.session import LibtorrentSession
from torrentdist.swarm.engine.session_settings import EngineConfig
from torrentdist.swarm.engine.transfers import Transfers, WireHash


def test_alerts_are_mapped_back_by_the_hash_on_the_wire() -> None:
    """A swarm whose hash on the wire isn't its digest would never hear that a transfer is done."""
    transfers = Transfers(LibtorrentSession(EngineConfig()), lambda _: None)
    wire, digest = WireHash("ab" * 32), Digest("cd" * 32)
    transfers.name(wire, digest)

    assert digest == transfers.digest_of(wire)
    assert transfers.digest_of(WireHash(digest)) is None
