"""A job's story: it contains every event once."""

from __future__ import annotations

import msgspec
from records_of import job

from torrentdist.master.jobs.job_story import MOST_EVENTS, Places, Reports, continued
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.records import JobEventKind, JobStatus, StoryRecord
from torrentdist.model.wire.job_messages import WorkerReport, WorkerState

H1, H2 = SupervisorId("h1"), SupervisorId("h2")
K = JobEventKind


def entry(status: JobStatus, mtime: float = 0.0, workers: int = 1):  # type: ignore[no-untyped-def]
    found = job("j", ["b"], status)
    record = msgspec.structs.replace(found.record, workers=workers, created_at=1.0)
    return msgspec.structs.replace(found, record=record, mtime=mtime)


def report(**said: float) -> WorkerReport:
    return WorkerReport(job=JobId("j"), worker=0, state=WorkerState.RUNNING, **said)  # type: ignore[arg-type]


def go_on(
    story: StoryRecord | None, status: JobStatus, mtime: float, places: Places, reports: Reports | None = None
) -> StoryRecord:
    return continued(story, entry(status, mtime), places, reports or {}, now=mtime)


def test_a_story_is_told_in_order_and_once() -> None:
    """If this fails, a user cannot read what happened to a job, or a new leader repeats
    everything."""
    story = go_on(None, JobStatus.SUBMITTED, 1.0, {})
    story = go_on(story, JobStatus.ACTIVE, 2.0, {})
    story = go_on(story, JobStatus.ACTIVE, 3.0, {0: H1})
    story = go_on(story, JobStatus.ACTIVE, 3.5, {0: H1}, {0: report(fetched_at=4.0, since=5.0)})
    story = go_on(story, JobStatus.ACTIVE, 6.0, {0: H1}, {0: report(fetched_at=4.0, ended_at=7.0, exit_code=3)})
    story = go_on(story, JobStatus.ACTIVE, 8.0, {0: H2}, {0: report(fetched_at=8.5, since=9.0)})
    again = go_on(
        msgspec.json.decode(msgspec.json.encode(story), type=StoryRecord),
        JobStatus.ACTIVE,
        9.0,
        {0: H2},
        {0: report(fetched_at=8.5, since=9.0)},
    )

    told = [K.SUBMITTED, K.REPLICATED, K.ACTIVATED, K.ASSIGNED, K.FETCHED, K.STARTED, K.EXITED, K.MOVED, K.FETCHED]
    assert [*told, K.STARTED] == [event.event for event in story.events]
    assert "exit code 3" == story.events[6].detail
    assert (H2, "from h1") == (story.events[7].supervisor, story.events[7].detail)
    assert story == again


def test_a_new_leader_tells_what_it_did_not_see() -> None:
    """If this fails, what happened while there was no leader is missing for ever."""
    story = go_on(None, JobStatus.KILLED, 5.0, {0: H1}, {0: report(since=4.0)})

    assert {K.SUBMITTED, K.REPLICATED, K.KILLED, K.ASSIGNED, K.STARTED} == {event.event for event in story.events}
    assert [event.at for event in story.events] == sorted(event.at for event in story.events)


def test_a_worker_without_a_slot_is_told_of() -> None:
    """If this fails, a job that lacks a worker looks complete in its story."""
    story = go_on(go_on(None, JobStatus.ACTIVE, 2.0, {0: H1}), JobStatus.ACTIVE, 3.0, {})

    assert (K.UNASSIGNED, H1) == (story.events[-1].event, story.events[-1].supervisor)


def test_it_keeps_the_last_events_only_and_repeats_none_of_those_it_dropped() -> None:
    """If this fails, a worker that crashes for ever fills ZooKeeper, or old events come back."""
    story = go_on(None, JobStatus.ACTIVE, 2.0, {0: H1})
    for n in range(MOST_EVENTS):
        story = go_on(story, JobStatus.ACTIVE, 2.0, {0: H1}, {0: report(ended_at=10.0 + n)})
    end = go_on(story, JobStatus.ACTIVE, 2.0, {0: H1}, {0: report(fetched_at=3.0, ended_at=9.0 + MOST_EVENTS)})

    assert MOST_EVENTS == len(story.events)
    assert {K.EXITED} == {event.event for event in story.events}
    assert end is story
