"""Folds a job's story for readers: a worker that starts and exits again and again is one line.

Always: nothing is folded across another event of the job, and a single start or exit stays as it
is. Pure.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from torrentdist.model.ids import SupervisorId
from torrentdist.model.records import JobEvent, JobEventKind

LEAST_EXITS = 3
"""Exits of a worker in a row that are folded."""
_RESTARTS = (JobEventKind.STARTED, JobEventKind.EXITED)


def folded(events: Iterable[JobEvent]) -> list[JobEvent]:
    """Returns the events in order. A folded line is the worker's last exit, with the number of its
    exits and since when."""
    found: list[JobEvent] = []
    for is_restart, some in groupby(events, lambda event: event.event in _RESTARTS):
        one_kind = [*some]
        found += _without_repeats(one_kind) if is_restart else one_kind
    return found


def _without_repeats(events: Sequence[JobEvent]) -> list[JobEvent]:
    of_worker: dict[tuple[int | None, SupervisorId | None], list[JobEvent]] = {}
    for event in events:
        of_worker.setdefault((event.worker, event.supervisor), []).append(event)
    found = [event for some in of_worker.values() for event in _of_one_worker(some)]
    return sorted(found, key=lambda event: event.at)


def _of_one_worker(events: Sequence[JobEvent]) -> list[JobEvent]:
    exits = [event for event in events if event.event is JobEventKind.EXITED]
    if len(exits) < LEAST_EXITS:
        return [*events]
    minutes = max(1, round((exits[-1].at - exits[0].at) / 60))
    detail = f"{len(exits)} times within {minutes} min: {exits[-1].detail}"
    last = msgspec.structs.replace(exits[-1], detail=detail)
    return [last, *(event for event in events if event.at > last.at)]
