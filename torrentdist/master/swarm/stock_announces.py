"""Answers stock BitTorrent clients: their announces, and the tracker URLs that lead them here.
The keys in these URLs come from a secret that changes whenever a host is revoked.

Always: a client gets an answer only for a digest that the key in its tracker URL belongs to. The
secret before a revocation is good for GRACE_SECS more, for clients whose address is admitted and
is not that of a revoked host, so that their downloads go on. All masters make the same secret
from the same records, so nothing has to be stored or sent.
Never: answer before the cluster's record, with the secret of the keys, is known.
"""

import hashlib
import hmac
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from torrentdist.master.swarm.swarm_records import SwarmRecords, revoked_addresses
from torrentdist.model.ids import Digest
from torrentdist.swarm.directory.directory import SwarmDirectory
from torrentdist.swarm.directory.tracker import Tracker, announce_key

GRACE_SECS: Final = 3600.0


@dataclass(frozen=True)
class TrackerSecrets:
    current: str = field(repr=False)
    former: tuple[str, ...] = field(default=(), repr=False)
    """Earlier ones that are still good, the latest first."""


def tracker_secrets(secret: str, revoked: Mapping[str, float], now: float) -> TrackerSecrets:
    """Returns the secrets after these revocations. `revoked` maps the id of each revoked host to
    the moment of its revocation; `secret` is what all masters know.
    """
    past = sorted((at, id_) for id_, at in revoked.items())
    recent = sum(at > now - GRACE_SECS for at, _ in past)
    former = (_made(secret, past[: len(past) - count]) for count in range(1, recent + 1))
    return TrackerSecrets(_made(secret, past), tuple(former))


def _made(secret: str, revocations: Iterable[tuple[float, str]]) -> str:
    message = "".join(f"\0{id_}@{at!r}" for at, id_ in revocations)
    return hmac.new(secret.encode(), f"torrentdist tracker{message}".encode(), hashlib.sha256).hexdigest()


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
        return self._directory.knows_address(source) and source not in revoked_addresses(snapshot)

    def tracker_urls(self, digest: Digest) -> list[str]:
        """Returns the tracker URLs of a digest, one for each master."""
        snapshot = self._records.snapshot()
        key = announce_key(self._secrets().current, digest)
        return [f"{m.url}/announce/{key}" for _, m in sorted(snapshot.masters.items())]
