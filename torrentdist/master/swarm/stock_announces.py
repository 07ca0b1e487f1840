"""Answers stock BitTorrent clients: their announces, and the tracker URLs that lead them here.

Always: a client gets an answer only for a digest that the key in its tracker URL belongs to.
Never: answer before the cluster's record, with the secret of the keys, is known.
"""

from __future__ import annotations

import time

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.swarm.swarm_records import SwarmRecords
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.swarm.directory.directory import SwarmDirectory
from torrentdist.swarm.directory.tracker import Tracker, announce_key


class StockAnnounces:
    def __init__(self, directory: SwarmDirectory, records: SwarmRecords) -> None:
        self._directory = directory
        self._records = records

    def answer(self, query: bytes, key: str, source: str) -> bytes:
        """Returns the bencoded answer to one announce. `source`: the address of its sender."""
        secret = _announce_secret(self._records.follow())
        tracker = Tracker(self._directory, secret=secret, digests=self._records.digests_like)
        return tracker.answer(query, key=key, source_host=source, now=time.monotonic())

    def tracker_urls(self, digest: Digest) -> list[str]:
        """Returns the tracker URLs of a digest, one for each master."""
        snapshot = self._records.snapshot()
        key = announce_key(_announce_secret(snapshot), digest)
        return [f"{m.url}/announce/{key}" for _, m in sorted(snapshot.masters.items())]


def _announce_secret(snapshot: ClusterSnapshot) -> str:
    if snapshot.cluster is None:
        raise TorrentdistError("not_ready", detail="the cluster's record is not known yet")
    return snapshot.cluster.announce_key
