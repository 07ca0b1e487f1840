"""The HTTP headers that masters, supervisors and clients add to requests and answers, and how to
read their values.

Three of these headers state the age of an answer's records: the newest transaction included, the
cluster of that transaction, and for how long the master has been cut off from ZooKeeper.
Pure: no I/O and no clock.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

REQUEST_ID: Final = "X-Request-Id"
"""Identifies a change across all its retries, so that it is made only once."""
DRY_RUN_PATH: Final = "/v1/dry-run/"
"""How the path of a request begins that asks what a change under /v1/ would do."""
CLIENT: Final = "X-Torrentdist"
"""Sent by each client of ours. A browser sends it for a page of another site only after it has
asked the server, which does not allow it."""
ZXID: Final = "X-Zxid"
"""In an answer: the newest ZooKeeper transaction that it includes. In a request: the newest
transaction that the sender has seen."""
CLUSTER: Final = "X-Cluster"
"""The id of the cluster to which the transaction belongs."""
STALE: Final = "X-Stale"
"""Age of an answer's records in whole seconds. Sent only while the master cannot reach
ZooKeeper."""
DIGEST: Final = "X-Digest"
"""The digest of the bundle whose metafile or content an answer carries."""
UPDATE_TYPE: Final = "application/x-torrentdist-update"
"""The content type of an update, which a host may get instead of a metafile."""
OFFSET: Final = "X-Offset"
"""The offset of the first byte in a part of a worker's output."""
NEXT_OFFSET: Final = "X-Next-Offset"
"""The offset after the last byte in a part of a worker's output."""

MAX_ZXID: Final = 2**63 - 1


class AnswerAge(msgspec.Struct, frozen=True):
    """The age of an answer's records, according to its headers."""

    zxid: int | None = None
    """The newest transaction that the answer includes. None: the answer contains no records."""
    cluster: str | None = None
    """The cluster of `zxid`. None: the master does not say."""
    stale_secs: float | None = None
    """Seconds for which the records may have been outdated. None while the master reaches
    ZooKeeper."""

    def to_headers(self) -> dict[str, str]:
        """Returns the headers that state this age."""
        told: dict[str, str] = {}
        if self.zxid is not None:
            told[ZXID] = str(self.zxid)
            if self.cluster:
                told[CLUSTER] = self.cluster
        if self.stale_secs is not None:
            told[STALE] = f"{self.stale_secs:.0f}"
        return told


UNKNOWN_AGE: Final = AnswerAge()


def age_in(headers: Mapping[str, str]) -> AnswerAge:
    """Returns the age that these headers state. A value that is no number is ignored."""
    stale = _number(headers.get(STALE, ""))
    return AnswerAge(
        zxid=_number(headers.get(ZXID, "")),
        cluster=headers.get(CLUSTER),
        stale_secs=None if stale is None else float(stale),
    )


def zxid_in(value: str) -> int | None:
    """Returns the transaction id in a header's value, or None if it contains none."""
    number = _number(value) if len(value) <= len(str(MAX_ZXID)) else None
    return number if number is not None and number <= MAX_ZXID else None


def _number(text: str) -> int | None:
    return int(text[:20]) if text.isascii() and text.isdigit() else None
