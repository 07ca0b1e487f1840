"""The HTTP headers that masters, supervisors and clients add to requests and answers, and how their
values are read.

Together the three headers about records say how old an answer is: up to which transaction it goes,
which cluster that transaction belongs to, and for how long its master has been cut off from
ZooKeeper. Pure: no I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

REQUEST_ID: Final = "X-Request-Id"
"""Identifies a change over all its retries, so that it is made once."""
ZXID: Final = "X-Zxid"
"""In an answer: the newest ZooKeeper transaction that it shows. In a request: the newest that its
sender has seen."""
CLUSTER: Final = "X-Cluster"
"""The id of the cluster that the transaction belongs to."""
STALE: Final = "X-Stale"
"""Age of the records behind an answer in whole seconds. It is sent only while the master sees no
ZooKeeper."""
DIGEST: Final = "X-Digest"
"""The digest of the bundle whose metafile or content an answer carries."""
OFFSET: Final = "X-Offset"
"""The offset of the first byte of a piece of a worker's output."""
NEXT_OFFSET: Final = "X-Next-Offset"
"""The offset after the last byte of a piece of a worker's output."""

MAX_ZXID: Final = 2**63 - 1


class AnswerAge(msgspec.Struct, frozen=True):
    """How old an answer's records are, as its headers tell."""

    zxid: int | None = None
    """The newest transaction that the answer shows. None: the answer shows no records."""
    cluster: str | None = None
    """The cluster that `zxid` belongs to. None: the master doesn't say."""
    stale_secs: float | None = None
    """Seconds for which the records may have been outdated. None while the master sees ZooKeeper.
    """

    def to_headers(self) -> dict[str, str]:
        """Returns the headers that tell this age."""
        told: dict[str, str] = {}
        if self.zxid is not None:
            told[ZXID] = str(self.zxid)
            if self.cluster:
                told[CLUSTER] = self.cluster
        if self.stale_secs is not None:
            told[STALE] = f"{self.stale_secs:.0f}"
        return told


def age_in(headers: Mapping[str, str]) -> AnswerAge:
    """Returns the age that these headers tell. A value that is no number counts as not told."""
    stale = _number(headers.get(STALE, ""))
    return AnswerAge(
        zxid=_number(headers.get(ZXID, "")),
        cluster=headers.get(CLUSTER),
        stale_secs=None if stale is None else float(stale),
    )


def zxid_in(value: str) -> int | None:
    """Returns the transaction id that a header's value names. None: the value names none."""
    number = _number(value) if len(value) <= len(str(MAX_ZXID)) else None
    return number if number is not None and number <= MAX_ZXID else None


def _number(text: str) -> int | None:
    return int(text[:20]) if text.isascii() and text.isdigit() else None
