"""What a whole engine has moved and how fast, from libtorrent's counters.

Always holds: rates are those of the time between two pictures.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class EngineStatistics(msgspec.Struct, frozen=True):
    torrents: int = 0
    peers: int = 0
    uploaded: int = 0
    downloaded: int = 0
    upload_rate: float = 0.0
    download_rate: float = 0.0
    at: float = 0.0


def later(before: EngineStatistics, counters: Mapping[str, int], torrents: int, now: float) -> EngineStatistics:
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
