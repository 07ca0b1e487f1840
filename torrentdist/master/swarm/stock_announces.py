"""Answers stock BitTorrent clients: their announces, and the tracker URLs that lead them here.

Always: a client gets an answer only for a digest that the key in its tracker URL belongs to. The
keys change when a host is revoked; for a while an old one is good for clients whose address is
admitted, and is not that of a revoked host.
Never: answer before the cluster's record, with the secret of the keys, is known.
"""

import time
from collections.abc import Callable

from torrentdist.master.swarm.swarm_records import SwarmRecords, revoked_addresses
from torrentdist.master.swarm.tracker_secrets import TrackerSecrets
from torrentdist.model.ids import Digest
from torrentdist.swarm.directory.directory import SwarmDirectory
from torrentdist.swarm.directory.tracker import Tracker, announce_key


class StockAnnounces:
    def __init__(self, directory: SwarmDirectory, records: SwarmRecords, secrets: Callable[[], TrackerSecrets]) -> None:
        self._directory = directory
        self._records = records
        self._secrets = secrets

    def answer(self, query: bytes, key: str, source: str) -> bytes:
        """Returns the bencoded answer to one announce. `source`: the address of its sender."""
        self._records.follow()
        secrets = self._secrets()
        former = secrets.former if secrets.former and self._is_admitted(source) else ()
        tracker = Tracker(self._directory, secret=secrets.current, former=former, digests=self._records.digests_like)
        return tracker.answer(query, key=key, source_host=source, now=time.monotonic())

    def _is_admitted(self, source: str) -> bool:
        """Whether peers at this address are in the directory, and no host there was revoked."""
        snapshot = self._records.snapshot()
        return source in self._directory.addresses() and source not in revoked_addresses(snapshot)

    def tracker_urls(self, digest: Digest) -> list[str]:
        """Returns the tracker URLs of a digest, one for each master."""
        snapshot = self._records.snapshot()
        key = announce_key(self._secrets().current, digest)
        return [f"{m.url}/announce/{key}" for _, m in sorted(snapshot.masters.items())]
