"""How a host fetches a bundle: the limit and the order that its distribution gives."""

from enum import StrEnum

import msgspec

from torrentdist.model.errors import TorrentdistError


class Priority(StrEnum):
    """The order in which a host fetches bundles: a lower one waits while a higher one without a
    limit arrives."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


def priority_of(text: str) -> Priority:
    """Reads a priority. Raises `invalid_request`."""
    try:
        return Priority(text)
    except ValueError as exc:
        raise TorrentdistError("invalid_request", detail=f"priority is low, normal or high, not {text!r}") from exc


class BundleTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How a host fetches a bundle."""

    rate: int = 0
    """Most bytes per second that each host fetches; 0: no limit."""
    priority: Priority = Priority.NORMAL


ANY_TERMS = BundleTerms()
