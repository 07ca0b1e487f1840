"""How a host fetches a bundle: the limit and the order that its distribution gives."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Priority(StrEnum):
    """The order in which a host fetches bundles: a lower one waits while a higher one arrives."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class BundleTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How a host fetches a bundle."""

    rate: int = 0
    """Most bytes per second that each host fetches; 0: no limit."""
    priority: Priority = Priority.NORMAL


ANY_TERMS = BundleTerms()
