"""What the API says about distributions and about retention rules.

docs/protocol.md promises these keys.
Always: a key may be added.
Never: change the meaning of a key.
"""

from typing import Self

import msgspec

from torrentdist.model.ids import BundleId
from torrentdist.model.wire.view import View


class DistributionStatusView(View, frozen=True, kw_only=True):
    """A distribution: GET /v1/waves."""

    bundle: BundleId
    owner: str
    state: str
    """running, complete, standing, stopped, cancelled."""
    reason: str
    begun_at: float
    hosts: int
    """The hosts that are to get it."""
    told: int
    """The hosts that have been told."""
    wave: int
    """The wave that is under way or was the last, from 1."""
    waves: int
    everywhere: bool
    labels: dict[str, str]
    ends_at: float | None
    rate: int
    priority: str


class RetentionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """PUT /v1/retention: a rule for the bundles whose ids match a pattern."""

    pattern: str
    keep: int
    for_secs: float = 0.0


class RetentionView(View, frozen=True, kw_only=True):
    """A retention rule, and what it means now."""

    pattern: str
    keep: int
    for_secs: float
    created_by: str
    bundles: int
    """The bundles that match the pattern."""
    goes: dict[BundleId, str] = msgspec.field(default_factory=dict)
    """The bundles that the leader removes next, and why."""
    stays: dict[BundleId, list[str]] = msgspec.field(default_factory=dict)
    """The bundles that stay, and why: newest, young, pinned, unavailable, needed, unreadable (a
    damaged record may say that it is needed), distributed, standing, promised, last_copy,
    other_rule."""
    more: int = 0
    """Bundles in neither list. The answer was too large to be kept for a retry."""

    def shortened(self) -> Self:
        return msgspec.structs.replace(self, goes={}, stays={}, more=self.bundles)


class RoomView(View, frozen=True, kw_only=True):
    """Whether a bundle goes next when room is needed, and why, or why it stays."""

    rules: list[str]
    """The patterns of the retention rules that match it."""
    goes: str = ""
    """Why the leader removes it next, by these rules. Empty: they keep it, or there is none."""
    rules_keep: list[str] = msgspec.field(default_factory=list)
    """Why these rules keep it, as in `RetentionView.stays`."""
    stays: list[str]
    """Why it stays though room is needed: pinned, uploading, needed (by a live job), unreadable (a
    damaged record may say so), assigned (to a host), no_master (holds it). Empty: hosts that need
    room drop it, and `bundle prune --cluster` removes it."""
