"""A span as a value, the ids that put it into a trace, and the header that names its parent.

Always: the ids of a trace follow from the bundle's id and digest. So the client, the masters and
the hosts agree on them without telling each other, also after a failover. All of them choose the
same traces where only a share is kept.
Pure: no I/O and no clock.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

TRACEPARENT: Final = "traceparent"
"""The W3C header that names the sender's span."""
_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?", re.ASCII)
_TRACE_BYTES, _SPAN_BYTES = 16, 8


class SpanPlace(NamedTuple):
    """The two ids that name a span."""

    trace_id: int
    span_id: int


class TraceSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One operation that is over."""

    name: str
    place: SpanPlace
    parent: int | None
    """The span of the same trace to which it belongs; None: it begins the trace."""
    link: SpanPlace | None = None
    """A span of another trace that caused this one."""
    began: float
    """Seconds since 1970."""
    ended: float
    attributes: Mapping[str, str | int | float]
    error: str = ""
    """Why the operation failed; empty: it did not."""


def trace_of(bundle: str, digest: str) -> int:
    """Returns the id of the trace that shows a bundle's way from the upload to the hosts."""
    return _number(_TRACE_BYTES, "trace", bundle, digest)


def span_of(trace_id: int, *parts: str) -> SpanPlace:
    """Returns the span of a trace that these parts name. Equal parts name the same span."""
    return SpanPlace(trace_id, _number(_SPAN_BYTES, "span", f"{trace_id:032x}", *parts))


def _number(size: int, *parts: str) -> int:
    digest = hashlib.sha256("\0".join(("torrentdist", *parts)).encode()).digest()
    return int.from_bytes(digest[:size]) or 1  # 0 stands for no id


def about(bundle: str, digest: str, size: int) -> dict[str, str | int | float]:
    """Returns the attributes that every span of a bundle has."""
    return {"torrentdist.bundle": bundle, "torrentdist.digest": digest, "torrentdist.size": size}


def is_kept(trace_id: int, share: float) -> bool:
    """Whether a trace belongs to the share of all traces that is kept."""
    return trace_id % 2**64 < share * 2**64


def header_of(place: SpanPlace) -> str:
    """Returns the value of a `traceparent` header that names this span."""
    return f"00-{place.trace_id:032x}-{place.span_id:016x}-01"


def place_in(header: str) -> SpanPlace | None:
    """Returns the span that a `traceparent` header names; None: it names none."""
    found = _HEADER.fullmatch(header)
    if found is None or found[1] == "ff" or (found[1] == "00" and found[4] is not None):
        return None
    place = SpanPlace(int(found[2], 16), int(found[3], 16))
    return place if all(place) else None
