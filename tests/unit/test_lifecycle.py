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
from torrentdist.model.jobs.job import JobSpec, Restart, RestartPolicy
from torrentdist.model.records import JobRecord, JobStatus, Pending, PendingStep, encode

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

        ended = status in (S.FINISHED, S.FAILED)
        assert ("job_state", ended) == (caught.value.code, caught.value.message.endswith("runs any more"))
    else:
        assert job(status) == apply(job(status), event)


def test_the_table_names_nothing_else() -> None:
    """A2: a row that no test expects would go unnoticed."""
    tested = {(status, type(event)) for status, event in EXPECTED}
    ends = {(status, WorkerEnded) for status in (S.ACTIVE, S.INACTIVE, S.REBALANCING)}
    by_time = {*ends, (S.REBALANCING, Due), (S.KILLED, Due)}

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


def test_workers_that_a_rebalance_took_away_do_not_count() -> None:
    """If this fails, a job is finished while one of its workers runs, or fails for a worker that
    its user has given up."""
    fewer = after(after(job(S.ACTIVE, workers=4, exits={"3": 1}), Rebalance(0, 0, workers=2)), Due(1))
    half = after(fewer, WorkerEnded(1, 0, 0))

    assert (S.ACTIVE, S.ACTIVE) == (fewer.status, half.status)
    assert (S.FINISHED, "") == (after(half, WorkerEnded(1, 1, 0)).status, after(half, WorkerEnded(1, 1, 0)).reason)


@pytest.mark.parametrize(("code", "status"), [(0, S.FINISHED), (3, S.FAILED)])
@pytest.mark.parametrize("before", [S.ACTIVE, S.INACTIVE])
def test_a_rebalance_that_leaves_only_ended_workers_ends_the_job(before: S, code: int, status: S) -> None:
    """If this fails, the job stays active for ever, because nothing is left that could end it."""
    rebalancing = after(job(before, workers=4, exits={"0": code, "1": 0}), Rebalance(0, 0, workers=2))
    ended = after(rebalancing, Due(1))

    assert (status, None, 2) == (ended.status, ended.pending, ended.workers)
    assert ("worker 0 ended with exit code 3" if code else "") == ended.reason


def test_an_end_during_a_rebalance_counts_when_the_wait_is_over() -> None:
    """If this fails, a worker that ends during the wait is started again elsewhere, or the job ends
    before it has got the workers that its user asked for."""
    both = job(S.ACTIVE)
    waiting = [after(both, Rebalance(0, 5.0, workers=workers)) for workers in (2, 3)]
    ended = [after(after(record, WorkerEnded(1, 0, 0)), WorkerEnded(1, 1, 0)) for record in waiting]

    assert [S.REBALANCING, S.REBALANCING] == [record.status for record in ended]
    assert [S.FINISHED, S.ACTIVE] == [after(record, Due(5.0)).status for record in ended]
    assert {"0": 0, "1": 0} == after(ended[1], Due(5.0)).exits


@pytest.mark.parametrize(
    ("restart", "code", "reason"),
    [
        (
            Restart(policy=RestartPolicy.ALWAYS),
            0,
            "worker 0 ended with exit code 0; its restart.limit of 10 is reached",
        ),
        (Restart(limit=2), 3, "worker 0 ended with exit code 3: no disk; its restart.limit of 2 is reached"),
        (Restart(policy=RestartPolicy.NEVER), 3, "worker 0 ended with exit code 3: no disk"),
        (Restart(), 0, ""),
    ],
)
def test_a_job_whose_restarts_are_used_up_fails_and_names_the_limit(restart: Restart, code: int, reason: str) -> None:
    """If this fails, a job that must always run ends as if it had done its work, or its user does
    not learn which setting stopped it."""
    spec = JobSpec(name="j", command=("true",), restart=restart)
    ended = after(job(S.ACTIVE, workers=1, spec=spec), WorkerEnded(0, 0, code, "", "no disk" if code else ""))

    assert (S.FAILED if reason else S.FINISHED, reason) == (ended.status, ended.reason)


def test_what_a_worker_failed_of_stays_when_its_host_forgets_it() -> None:
    """If this fails, a user who asks a day later why a job failed gets a number."""
    first = after(job(S.ACTIVE), WorkerEnded(0, 1, 0, "", "not this one"))
    failed = after(first, WorkerEnded(0, 0, 1, "app-1", "java.io.EOFException"))

    assert "worker 0 ended with exit code 1: java.io.EOFException" == failed.reason
    assert {"0": "app-1"} == failed.applications


def test_a_job_is_blamed_on_the_worker_that_failed() -> None:
    """If this fails, the last words of a worker that did its work stand for one that failed."""
    first = after(job(S.ACTIVE), WorkerEnded(0, 0, 1, "app-1"))
    failed = after(first, WorkerEnded(0, 1, 0, "", "all is well"))

    assert "worker 0 ended with exit code 1" == failed.reason
    assert {"0": "app-1"} == failed.applications


def test_an_end_that_is_known_changes_nothing() -> None:
    """If this fails, each report of an ended worker is another write to ZooKeeper."""
    ended = after(job(S.ACTIVE), WorkerEnded(0, 0, 1))

    assert ended is apply(ended, WorkerEnded(5, 0, 1, "app"))
    assert {"0": 2} == after(ended, WorkerEnded(5, 0, 2)).exits


def test_time_alone_ends_nothing() -> None:
    """If this fails, a job without anything pending is removed."""
    killed = job(S.KILLED)
    assert killed is apply(killed, Due(1e9))


def test_a_rebalance_without_a_number_keeps_the_workers() -> None:
    """If this fails, a plain rebalance takes all workers but one."""
    assert 2 == after(after(job(S.ACTIVE), Rebalance(0, 0)), Due(1)).workers


def test_only_a_rebalance_remembers_that_a_job_ran() -> None:
    """If this fails, a killed job runs on because it was active before."""
    assert not runs(job(S.KILLED, resume=S.ACTIVE))


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


def test_the_record_of_a_job_with_very_many_ended_workers_can_be_written() -> None:
    """If this fails, the end of a worker is refused again and again, and the job never ends."""
    long = "h" * 128
    numbers = [str(k) for k in range(9_999)]
    record = job(S.ACTIVE, workers=10_001, exits=dict.fromkeys(numbers, -128))
    known = 0
    for k in range(0, 9_999, 101):
        hosts = dict.fromkeys(numbers[:k], SupervisorId(long))
        full = msgspec.structs.replace(record, ended_on=hosts, applications=hosts)
        ended = after(full, WorkerEnded(0, 9_999, 1, application=long, supervisor=SupervisorId(long)))
        if "9999" in ended.ended_on:
            known = k
            assert len(encode(ended)) < 700_000
    assert known > 1_500
