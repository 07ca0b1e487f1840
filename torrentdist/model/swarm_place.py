"""A receiver's place in the conductor's plan, as part of the HTTP API."""

import msgspec


class SwarmPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The receiver is number `number` of `receivers`. It fetches its share of the pieces from the
    holders first."""

    number: int
    receivers: int
