"""How a job's story is told to people."""

from __future__ import annotations

from torrentdist.model.ids import SupervisorId
from torrentdist.model.jobs.folded_story import folded
from torrentdist.model.records import JobEvent, JobEventKind

K = JobEventKind
H1 = SupervisorId("h1")


def loop(times: int, worker: int = 0, begin: float = 0.0) -> list[JobEvent]:
    """Returns the story of a worker that starts and exits, every 20 s."""
    ends = ((K.STARTED, 0.0, "pid 7"), (K.EXITED, 10.0, "exit code 1"))
    return [
        JobEvent(at=begin + 20.0 * n + later, event=kind, worker=worker, supervisor=H1, detail=detail)
        for n in range(times)
        for kind, later, detail in ends
    ]


def test_a_crash_loop_is_one_line() -> None:
    """If this fails, 27 restarts push everything else out of sight."""
    began = JobEvent(at=-1.0, event=K.ACTIVATED)
    again = JobEvent(at=530.0, event=K.STARTED, worker=0, supervisor=H1)
    story = folded([began, *sorted([*loop(26), *loop(1, worker=1)], key=lambda e: e.at), again])

    assert [
        (K.ACTIVATED, None, ""),
        (K.STARTED, 1, "pid 7"),
        (K.EXITED, 1, "exit code 1"),
        (K.EXITED, 0, "26 times within 8 min: exit code 1"),
        (K.STARTED, 0, ""),
    ] == [(event.event, event.worker, event.detail) for event in story]


def test_few_restarts_and_other_events_stay() -> None:
    """If this fails, the story hides that a worker moved between two of its failures."""
    moved = JobEvent(at=45.0, event=K.MOVED, worker=0, supervisor=H1)
    story = [*loop(2), moved, *loop(2, begin=50.0)]

    assert story == folded(story)
