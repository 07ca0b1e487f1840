"""Holds what users were told against what ZooKeeper's records said.

Each change that a user was told of has one moment between its call and its answer, and each change
in the records has one call that made it. Those moments stand in the order of ZooKeeper's
transactions, so calls that can be matched are linearizable. A read shows at least what was told to
anybody before it began.
Pure: no I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulation.history import Call, History
from simulation.record_history import DECIDED_SECS, GONE, RecordHistory, Timeline
from simulation.steps import READS

ABSENT = frozenset({"bundle_not_found", "not_found", "job_not_found"})
ROUND_SECS = 0.001
NOWHERE = Timeline()


def wrong_answers(history: History, records: RecordHistory) -> Iterator[str]:
    """Yields what users were told that no order of their calls explains."""
    if history.restored_at:
        return  # Backups know nothing of the later changes.
    for bundle in sorted({call.bundle for call in history.calls if call.kind in ("upload", "remove", "pin", "unpin")}):
        calls = [call for call in history.calls if call.bundle == bundle]
        states, pins = records.bundles.get(bundle, NOWHERE), records.pins.get(bundle, NOWHERE)
        removals = states.turns_to(GONE)
        by_users = [at for at in removals if not records.had_rule(at)]
        yield from _unmatched(f"removal of {bundle}", _of(calls, "remove"), removals, by_users)
        yield from _removed_too_early(bundle, calls, records)
        yield from _unmatched(
            f"pin of {bundle}", _of(calls, "pin"), pins.turns_to("pinned"), pins.turns_to("pinned"), repeats=True
        )
        yield from (text for call in calls for text in _contradicted(call, calls, states, pins))
    for name, births in sorted(records.births.items()):
        calls = [call for call in history.calls if call.bundle == name]
        yield from _unmatched(f"submission of {name}", _of(calls, "submit"), births, births)


def _of(calls: Sequence[Call], kind: str) -> list[Call]:
    return [call for call in calls if call.kind == kind]


def _unmatched(
    what: str, calls: list[Call], moments: list[float], needs_call: list[float], *, repeats: bool = False
) -> Iterator[str]:
    """Matches calls with moments, the call that ends first with the first moment that fits.

    `needs_call`: the moments that only a user can have made. `repeats`: a call may find its change
    made.
    """
    left = list(moments)
    for call in sorted(calls, key=lambda each: each.ended):
        if call.succeeded:
            fits = [at for at in left if call.began - ROUND_SECS <= at <= call.ended + ROUND_SECS]
            if fits:
                left.remove(fits[0])
            elif not repeats:
                yield f"a user was told of the {what} at {call.ended - 1000:.1f} s, which was not made meanwhile"
    unclear = [call for call in calls if not call.succeeded and call.may_have_changed]
    for at in [at for at in left if at in needs_call]:
        maker = next((call for call in unclear if call.began - ROUND_SECS <= at), None)
        if maker is None:
            yield f"the {what} at {at - 1000:.1f} s was made by no call that its user was told of"
        elif not repeats:
            unclear.remove(maker)


def _contradicted(call: Call, calls: Sequence[Call], states: Timeline, pins: Timeline) -> Iterator[str]:
    """Yields what a call's answer says about the records that they did not say meanwhile."""
    seen = states.states_between(call.began, call.ended)
    said = f"a user was told {call.error} by {call.kind} {call.bundle} at {call.ended - 1000:.1f} s"
    hidden = {GONE, "uploading"} if call.kind == "sign" else {GONE}
    if call.kind in ("remove", "pin", "unpin", "sign") and call.error in ABSENT and not seen & hidden:
        yield f"{said}, and its record was there all the time"
    if call.kind in READS and call.error in ABSENT and seen == {"available"}:
        yield f"{said}, and the bundle was there all the time"
    if call.kind == "remove" and call.error == "in_use" and "pinned" not in pins.states_between(call.began, call.ended):
        yield f"{said}, and nobody used it"
    # A removal that its user has not heard of may count as later than this upload.
    removals = [other.began for other in _of(calls, "remove") if other.began < call.ended and other.ended > call.began]
    seen |= states.states_between(min([call.began, *removals]), call.ended)
    if call.kind == "upload" and call.succeeded and not seen - {GONE}:
        yield f"a user was told that {call.bundle} is uploaded, and there was no record of it"


def _removed_too_early(bundle: str, calls: Sequence[Call], records: RecordHistory) -> Iterator[str]:
    """Yields the removals by a rule that left fewer newer versions than the rule keeps."""
    for at in records.bundles.get(bundle, NOWHERE).turns_to(GONE):
        by_user = any(
            call.began <= at <= call.ended + ROUND_SECS or not call.succeeded for call in _of(calls, "remove")
        )
        if by_user or not bundle.startswith("b") or not records.had_rule(at):
            continue
        born = _born(records.bundles[bundle], at)
        newer = [
            other for other, line in records.bundles.items()
            if other != bundle and other.startswith("b") and _born(line, at) > born
            if "available" in line.states_between(at - DECIDED_SECS, at)
        ]  # fmt: skip
        if len(newer) < records.least_kept(at):
            yield f"a rule removed {bundle} at {at - 1000:.1f} s, and only {len(newer)} newer bundles were available"


def _born(line: Timeline, at: float) -> float:
    """Returns when the record that was there at this moment, or just before, was made."""
    before = [(since, state) for since, state in line.moments if since < at]
    births = [since for (since, state), (_, earlier) in zip(before[1:], before, strict=False) if earlier == GONE]
    return births[-1] if births else 0.0


def told_before(history: History, records: RecordHistory, began: float) -> float:
    """Returns the moment of the newest change in the records that anybody was told of before."""
    newest = 0.0
    for call in history.calls:
        line = records.bundles.get(call.bundle)
        if line is None or not call.succeeded or call.ended > began or call.kind not in ("upload", "remove", "pin"):
            continue
        # Others may have changed it meanwhile. Users were told of the first such moment at least.
        unfit = {"upload": {GONE, "uploading"}, "remove": {"uploading", "available", "lost"}}.get(call.kind, set())
        made = [at for at, state in line.moments if call.began <= at <= call.ended and state not in unfit]
        newest = max([newest, *made[:1]])
    return newest


def wrong_listing(
    told: dict[str, str], began: float, ended: float, history: History, records: RecordHistory
) -> Iterator[str]:
    """Yields the bundles of a listing whose state they did not have since the newest told change.
    `told`: the states of those that are listed."""
    if history.restored_at:
        return
    since = told_before(history, records, began)
    for bundle, line in records.bundles.items():
        state, had = told.get(bundle, GONE), line.states_between(since, ended)
        had |= {GONE} if "uploading" in had else set()  # Lists show no upload that is under way.
        if state not in had:
            yield f"a user who lists bundles sees {bundle} as {state}; since the last told change it was {sorted(had)}"
