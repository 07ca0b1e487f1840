"""A2: the exact table of a job's transitions, including no-ops and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from torrentdist.master.jobs.lifecycle import (
    GONE,
    TABLE,
    Activate,
    Deactivate,
    Due,
    Event,
    Kill,
    Rebalance,
    Rejected,
    Replicated,
    Replicating,
    UserEvent,
    WorkerEnded,
    apply,
    keeps_places,
    runs,
)
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId, SupervisorId
from torrentdist.model.records import JobRecord, JobStatus, Pending, PendingStep

S = JobStatus


def job(status: JobStatus, **changes: Any) -> JobRecord:
    record = JobRecord(id=JobId("j"), name="j", status=status, bundle=BundleId("b"), workers=2)
    return msgspec.structs.replace(record, **changes)


def after(record: JobRecord, event: Event) -> JobRecord:
    changed = apply(record, event)
    assert isinstance(changed, JobRecord)
    return changed


EXPECTED: dict[tuple[JobStatus, Event], str] = {
    (S.SUBMITTED, Replicating(0)): "replicating",
    (S.SUBMITTED, Rejected(0, "no")): "failed",
    (S.REPLICATING, Replicated(0)): "active",
    (S.REPLICATING, Rejected(0, "no")): "failed",
    (S.ACTIVE, Activate(0)): "active",
    (S.ACTIVE, Deactivate(0)): "inactive",
    (S.ACTIVE, Rebalance(0, 5.0)): "rebalancing",
    (S.ACTIVE, Kill(0, 5.0)): "killed",
    (S.INACTIVE, Activate(0)): "active",
    (S.INACTIVE, Deactivate(0)): "inactive",
    (S.INACTIVE, Rebalance(0, 5.0)): "rebalancing",
    (S.INACTIVE, Kill(0, 5.0)): "killed",
    (S.REBALANCING, Kill(0, 5.0)): "killed",
    (S.KILLED, Kill(0, 5.0)): "killed",
}
EVENTS: tuple[Event, ...] = (
    Activate(0), Deactivate(0), Rebalance(0, 5.0), Kill(0, 5.0), Replicating(0), Replicated(0), Rejected(0, "no"),
)  # fmt: skip


@pytest.mark.parametrize("status", list(JobStatus))
@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_every_state_and_event(status: JobStatus, event: Event) -> None:
    """A2: a transition that is missing, or not in the list, changes what users rely on."""
    expected = EXPECTED.get((status, event))
    if expected is not None:
        assert expected == after(job(status), event).status
    elif isinstance(event, UserEvent):
        with pytest.raises(TorrentdistError) as caught:
            apply(job(status), event)

        assert "job_state" == caught.value.code
    else:
        assert job(status) == apply(job(status), event)


def test_the_table_names_nothing_else() -> None:
    """A2: a row that no test expects would go unnoticed."""
    tested = {(status, type(event)) for status, event in EXPECTED}
    by_time = {(S.ACTIVE, WorkerEnded), (S.REBALANCING, Due), (S.KILLED, Due)}

    assert set(TABLE) == tested | by_time


def test_an_inactive_submit_stops_before_the_last_step() -> None:
    """A2: `--inactive` would start workers."""
    assert S.INACTIVE is after(job(S.REPLICATING, activate=False), Replicated(0)).status


def test_a_rebalance_returns_to_what_was_before() -> None:
    """A2: an inactive job would start to run because it was rebalanced."""
    waiting = after(job(S.INACTIVE), Rebalance(100.0, 5.0, workers=7))

    assert waiting == apply(waiting, Due(104.9))
    assert (S.INACTIVE, 7, None) == (
        after(waiting, Due(105.0)).status,
        after(waiting, Due(105.0)).workers,
        after(waiting, Due(105.0)).pending,
    )


def test_a_job_that_is_rebalanced_runs_only_if_it_ran_before() -> None:
    """A2: an inactive job would run during its rebalance, or an active one would stop."""
    rebalancing = [after(job(status), Rebalance(100.0, 5.0)) for status in (S.ACTIVE, S.INACTIVE)]

    assert [True, False] == [runs(record) for record in rebalancing]


def test_a_killed_job_goes_at_its_stored_moment_and_not_before() -> None:
    """A3, A4: a failover during the delay would restart or forget it."""
    killed = after(job(S.ACTIVE), Kill(100.0, 5.0))

    assert Pending(step=PendingStep.REMOVE, due=105.0) == killed.pending
    assert killed == apply(killed, Due(104.0))
    assert GONE is apply(killed, Due(105.0))


def test_killing_again_sets_the_delay_anew() -> None:
    """A3: `-w` on a job that is being killed already would be ignored."""
    killed = after(after(job(S.ACTIVE), Kill(100.0, 50.0)), Kill(101.0, 1.0))

    assert Pending(step=PendingStep.REMOVE, due=102.0) == killed.pending


def test_a_killed_job_keeps_its_places_and_does_not_run() -> None:
    """A3: its workers would be placed elsewhere, or would go on, during the delay."""
    killed = after(job(S.ACTIVE), Kill(0, 5.0))

    assert (True, False) == (keeps_places(killed), runs(killed))


def test_a_batch_job_ends_when_all_its_workers_have() -> None:
    """A2: a job would be finished too early and lose work, or a failure among successes would be
    called a success."""
    half = after(job(S.ACTIVE), WorkerEnded(0, 0, 0))

    assert S.ACTIVE is half.status
    assert S.FINISHED is after(half, WorkerEnded(0, 1, 0)).status
    assert (S.FAILED, "worker 1 ended with exit code 3") == (
        after(half, WorkerEnded(0, 1, 3)).status,
        after(half, WorkerEnded(0, 1, 3)).reason,
    )


def test_what_a_worker_failed_of_stays_when_its_host_forgets_it() -> None:
    """If this fails, a user who asks a day later why a job failed gets a number."""
    first = after(job(S.ACTIVE), WorkerEnded(0, 1, 0, "", "not this one"))
    failed = after(first, WorkerEnded(0, 0, 1, "app-1", "java.io.EOFException"))

    assert "worker 0 ended with exit code 1: java.io.EOFException" == failed.reason


def test_an_ended_workers_supervisor_stays_in_the_record() -> None:
    """If this fails, the host of a finished worker is unknown once its place is given to
    another."""
    first = after(job(S.ACTIVE), WorkerEnded(0, 1, 0, supervisor=SupervisorId("h1")))
    both = after(first, WorkerEnded(0, 0, 0, supervisor=SupervisorId("h2")))

    assert {"0": "h2", "1": "h1"} == both.ended_on
    assert {} == after(job(S.ACTIVE), WorkerEnded(0, 1, 0)).ended_on


def test_the_table_in_the_documentation_is_this_one() -> None:
    """If this fails, the page promises other transitions than those that happen."""
    text = (Path(__file__).parent.parent.parent / "docs" / "jobs.md").read_text(encoding="utf-8")
    rows = [f"| {state.value} | {event.__name__} | {step.value} |" for (state, event), step in TABLE.items()]

    assert "\n".join(rows) in text
