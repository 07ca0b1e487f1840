"""The torrents of one bundle under several CAs, without libtorrent."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.wire.transfer_messages import TransferPhase
from torrentdist.swarm.engine.session import LibtorrentSession
from torrentdist.swarm.engine.session_settings import EngineConfig
from torrentdist.swarm.engine.transfer import Transfer
from torrentdist.swarm.engine.transfers import Transfers
from torrentdist.swarm.membership.member_torrents import MemberTorrents


def torrent(ca: str) -> Any:
    return SimpleNamespace(info_hashes=lambda: SimpleNamespace(v2=ca))


def test_cas_that_change_twice_leave_one_torrent(tmp_path: Path) -> None:
    """A change of the swarm's CA during the one before would end the first with an error, and
    leave the bundles behind it under the old CA until the next change."""
    (tmp_path / "content").write_bytes(b"x" * 100)
    owner: Any = SimpleNamespace(is_own=lambda endpoint: False, refresh=lambda: None)
    transfer = Transfer(make_metafile(tmp_path / "content"), tmp_path, owner, phase=TransferPhase.SEEDING)
    transfer.added(torrent("A"), local=100)
    transfer.ca, transfer.twins["B"] = "A", torrent("B")
    session = LibtorrentSession(EngineConfig(tls=True))
    members = MemberTorrents(Transfers(session, lambda fact: None), lambda work: None, plain_too=False)

    members._drop_old(transfer, ["C"])
    first = transfer.ca, [*transfer.twins]
    transfer.twins["C"] = torrent("C")
    members._drop_old(transfer, ["C"])

    assert ("A", []) == first
    assert ("C", []) == (transfer.ca, [*transfer.twins])
