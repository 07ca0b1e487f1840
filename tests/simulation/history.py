"""What users did and were told, and what must follow from it.

Pure: no I/O and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CERTAINLY_NOT = frozenset({
    "conflict", "not_found", "bundle_not_found", "job_not_found", "job_exists", "in_use", "no_leader", "forbidden",
    "unauthorized", "invalid_request",
})  # fmt: skip
"""Errors that say that nothing was changed."""


@dataclass
class Call:
    kind: str
    bundle: str
    began: float
    ended: float = float("inf")
    error: str = ""
    """The code of the error that the user was told; empty: it went well."""
    number: int = 0
    """That of its step."""
    told: Any = None
    """What the user was shown, if it went well."""

    @property
    def succeeded(self) -> bool:
        return self.ended != float("inf") and not self.error

    @property
    def may_have_changed(self) -> bool:
        return self.error not in CERTAINLY_NOT


@dataclass
class History:
    calls: list[Call] = field(default_factory=list)
    restored_at: float = 0.0
    """When ZooKeeper was restored. What was told before need not be true any more."""

    def begin(self, kind: str, bundle: str, now: float, number: int = 0) -> Call:
        call = Call(kind, bundle, now, number=number)
        self.calls.append(call)
        return call

    def sent(self) -> set[tuple[str, str]]:
        """Returns the bundles that one host was to get, and got, with that host. No later order
        named it, and its bundle was never removed."""
        changes = [call for call in self.calls if call.may_have_changed]
        ruled = any(call.kind == "retain" for call in changes)
        return {
            (call.bundle, f"supervisor-{call.number}")
            for call in self.calls
            if call.kind == "send" and call.succeeded and not ruled and not self.restored_at
            if not any(_replaces(other, call) for other in changes)
        }

    def expected(self) -> dict[str, str]:
        """Returns the state of each bundle that follows from what users were told, where only one
        does."""
        ruled = any(call.kind == "retain" and call.may_have_changed for call in self.calls)
        found: dict[str, str] = {}
        for call in self.calls:
            if call.began < self.restored_at or not call.succeeded or call.kind not in ("upload", "remove"):
                continue
            others = [
                other
                for other in self.calls
                if other is not call and other.bundle == call.bundle and other.kind in ("upload", "remove")
                if other.may_have_changed and other.kind != call.kind and other.ended > call.began
            ]
            if not others and not (ruled and call.kind == "upload"):
                found[call.bundle] = "available" if call.kind == "upload" else "removed"
        return found


def _replaces(other: Call, sent: Call) -> bool:
    """Whether a call may end the order that sent a bundle to one host. A cancellation ends orders
    that are under way."""
    if other is sent or other.bundle != sent.bundle:
        return False
    if other.kind in ("remove", "distribute", "stand", "wave"):
        return True
    under_way = other.kind == "cancel" and other.began <= sent.ended
    return under_way or (other.kind == "send" and other.number == sent.number)
