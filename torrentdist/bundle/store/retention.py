"""Chooses the published bundles to remove when room is needed, when a store has passed its mark, or
when an operator prunes.

Always: a bundle with a claim on it (pinned, in use, the last copy) is never chosen. When
room is needed, no more bundles are chosen than it takes.
Pure: no I/O, clock or thread. The store carries out the decision.
"""

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum

import msgspec

from torrentdist.bundle.store.store_values import StoreUsage
from torrentdist.model.ids import Digest


class KeepReason(StrEnum):
    """A reason why a bundle stays."""

    PINNED = "pinned"
    ASSIGNED = "assigned"
    """This host was told to keep it, or a worker here needs it."""
    ASSIGNMENT_UNKNOWN = "assignment_unknown"
    """ZooKeeper has not said yet what this host was told to keep."""
    IN_USE = "in_use"
    """A local user waits for it, or it is being changed."""
    MOUNTED = "mounted"
    """A pod of this host has it mounted."""
    LAST_COPY = "last_copy"
    COPIES_UNKNOWN = "copies_unknown"
    """No master has said how many others hold it."""
    USED_LATELY = "used_lately"


Claims = Callable[[Digest], Collection[KeepReason]]
"""Returns reasons to stay that the store cannot know. Called in any thread, so it must not
block."""


def claim_everything(digest: Digest) -> Collection[KeepReason]:
    """Claims every bundle: a caller without knowledge must assume that all bundles are in use."""
    return frozenset({KeepReason.IN_USE})


class Entry(msgspec.Struct, frozen=True):
    digest: Digest
    size: int
    used_at: float
    claims: frozenset[KeepReason] = frozenset()


def plan(entries: Sequence[Entry], *, need: int) -> list[Digest] | None:
    """Chooses the bundles to evict in order to free `need` bytes, least recently used first.

    Returns None if all unclaimed bundles together are not enough: then nothing should be evicted.
    """
    if need <= 0:
        return []
    chosen: list[Entry] = []
    freed = 0
    for entry in _by_last_use(entries):
        chosen.append(entry)
        freed += entry.size
        if freed >= need:
            break
    else:
        return None
    spared = set()
    for entry in reversed(chosen):
        if freed - entry.size >= need:
            spared.add(entry.digest)
            freed -= entry.size
    return [entry.digest for entry in chosen if entry.digest not in spared]


class StoreMarks(msgspec.Struct, frozen=True):
    """Above `high` bytes of its own, a store removes bundles until it has `low`; 0: never."""

    high: int = 0
    low: int = 0


def why_full(usage: StoreUsage, marks: StoreMarks, taken: int) -> str:
    """Says why a store has no room for more bundles; empty: it has. `taken`: the bytes on disk of
    all published bundles, which may share blocks."""
    if usage.free_bytes <= usage.reserve_bytes:
        return "no more than store.reserve_bytes is free on its disk"
    if marks.high and taken + usage.arriving_bytes > marks.high:
        return "its bundles take more than store.high"
    return ""


def room_for(usage: StoreUsage, marks: StoreMarks, taken: int) -> int:
    """Returns the bytes of bundles for which a store has room, as for why_full()."""
    rooms = [usage.free_bytes - usage.reserve_bytes]
    if usage.limit_bytes:
        rooms.append(usage.limit_bytes - usage.published_bytes)
    if marks.high:
        rooms.append(marks.high - taken)
    return max(0, min(rooms) - usage.arriving_bytes)


def is_above(marks: StoreMarks, used: int) -> bool:
    return bool(marks.high) and used > marks.high


IDLE_SECS = 600.0
"""A bundle that was used more recently is not removed for a mark: a reader may still be at it."""


def plan_to_low(entries: Sequence[Entry], *, used: int, marks: StoreMarks, now: float) -> list[Digest]:
    """Chooses the bundles to remove from a store that has `used` bytes, arriving bundles included.

    Large bundles that are idle for long go first, so that few have to go. If all unclaimed idle
    bundles are not enough, all of them are chosen.
    """
    if not is_above(marks, used):
        return []
    need = used - (marks.low or marks.high)
    idle = [entry for entry in _by_last_use(entries) if now - entry.used_at >= IDLE_SECS and entry.size]
    chosen: list[Entry] = []
    for entry in sorted(idle, key=lambda entry: -(now - entry.used_at) * entry.size):
        if need > 0:
            chosen.append(entry)
            need -= entry.size
    for entry in reversed(chosen):
        if need + entry.size <= 0:
            chosen.remove(entry)
            need += entry.size
    return [entry.digest for entry in chosen]


def plan_prune(entries: Sequence[Entry], *, older_than: float, now: float) -> list[Digest]:
    """Returns the unclaimed bundles unused for `older_than` seconds, least recently used first."""
    return [entry.digest for entry in _by_last_use(entries) if now - entry.used_at >= older_than]


def reasons_to_stay(entries: Sequence[Entry], *, older_than: float, now: float) -> dict[Digest, frozenset[KeepReason]]:
    """Returns the reasons for each entry that `plan_prune` does not choose."""
    lately = {entry.digest for entry in entries if now - entry.used_at < older_than}
    reasons = {
        entry.digest: entry.claims | ({KeepReason.USED_LATELY} if entry.digest in lately else set())
        for entry in entries
    }
    return {digest: claims for digest, claims in reasons.items() if claims}


def _by_last_use(entries: Sequence[Entry]) -> list[Entry]:
    unclaimed = [entry for entry in entries if not entry.claims]
    return sorted(unclaimed, key=lambda entry: (entry.used_at, entry.digest))
