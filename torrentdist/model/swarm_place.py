"""A receiver's place in the conductor's plan, as it goes over the wire. Part of the HTTP API like
all of views.py."""

from __future__ import annotations

import msgspec


class SwarmPlace(msgspec.Struct, frozen=True, kw_only=True):
    """It fetches its share of the pieces from the holders first: the `number`-th of `receivers`."""

    number: int
    receivers: int
