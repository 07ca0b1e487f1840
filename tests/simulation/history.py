"""What users did and were told, and what must follow from it.

Pure: no I/O and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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

    def begin(self, kind: str, bundle: str, now: float) -> Call:
        call = Call(kind, bundle, now)
        self.calls.append(call)
        return call

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
