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
from simulation.record_history import GONE, RecordHistory, Timeline

ABSENT = frozenset({"bundle_not_found", "not_found", "job_not_found"})
ROUND_SECS = 0.001
NOWHERE = Timeline()


def wrong_answers(history: History, records: RecordHistory) -> Iterator[str]:
    """Yields what users were told that no order of their calls explains."""
    for bundle in sorted({call.bundle for call in history.calls if call.kind in ("upload", "remove", "pin", "unpin")}):
        calls = [call for call in history.calls if call.bundle == bundle]
        states, pins = records.bundles.get(bundle, NOWHERE), records.pins.get(bundle, NOWHERE)
        removals = states.turns_to(GONE)
        by_users = [at for at in removals if not records.had_rule(at)]
        yield from _unmatched(f"removal of {bundle}", _of(calls, "remove"), removals, by_users)
        yield from _unmatched(
            f"pin of {bundle}", _of(calls, "pin"), pins.turns_to("pinned"), pins.turns_to("pinned"), repeats=True
        )
        yield from (text for call in calls for text in _contradicted(call, states, pins))
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


def _contradicted(call: Call, states: Timeline, pins: Timeline) -> Iterator[str]:
    """Yields what a call's answer says about the records that they did not say meanwhile."""
    seen = states.states_between(call.began, call.ended)
    said = f"a user was told {call.error} by {call.kind} {call.bundle} at {call.ended - 1000:.1f} s"
    hidden = {GONE, "uploading"} if call.kind == "sign" else {GONE}
    if call.kind in ("remove", "pin", "unpin", "sign") and call.error in ABSENT and not seen & hidden:
        yield f"{said}, and its record was there all the time"
    if call.kind == "remove" and call.error == "in_use" and "pinned" not in pins.states_between(call.began, call.ended):
        yield f"{said}, and nobody used it"
    if call.kind == "upload" and call.succeeded and not seen - {GONE}:
        yield f"a user was told that {call.bundle} is uploaded, and there was no record of it"


def told_before(history: History, records: RecordHistory, began: float) -> float:
    """Returns the moment of the newest change in the records that anybody was told of before."""
    newest = 0.0
    for call in history.calls:
        line = records.bundles.get(call.bundle)
        if line is None or not call.succeeded or call.ended > began or call.kind not in ("upload", "remove", "pin"):
            continue
        made = [at for at, _ in line.moments if call.began <= at <= call.ended]
        newest = max([newest, *made])
    return newest


def wrong_listing(
    told: dict[str, str], began: float, ended: float, history: History, records: RecordHistory
) -> Iterator[str]:
    """Yields the bundles of a listing whose state they did not have since the newest told change.
    `told`: the states of those that are listed."""
    since = told_before(history, records, began)
    for bundle, line in records.bundles.items():
        state, had = told.get(bundle, GONE), line.states_between(since, ended)
        had |= {GONE} if "uploading" in had else set()  # Lists show no upload that is under way.
        if state not in had:
            yield f"a user who lists bundles sees {bundle} as {state}; since the last told change it was {sorted(had)}"
