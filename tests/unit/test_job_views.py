"""Reports about a worker, and which host's report counts."""

from __future__ import annotations

import msgspec
import pytest
from records_of import bundle, job, snapshot

from torrentdist.cluster.records.snapshot import AssignmentEntry
from torrentdist.master.jobs.job_views import job_view, of_the_places
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.jobs.job import JobSpec, Restart
from torrentdist.model.records import AssignmentRecord, JobStatus, WorkerAssignment
from torrentdist.model.wire.job_messages import WorkerReport, WorkerState

J, H1, H2, H3 = JobId("j"), SupervisorId("h1"), SupervisorId("h2"), SupervisorId("h3")


def report(worker: int, pid: int) -> WorkerReport:
    return WorkerReport(job=J, worker=worker, state=WorkerState.RUNNING, pid=pid)


def test_only_the_host_that_has_a_worker_is_believed() -> None:
    """If this fails, a dead host's last report hides for a minute that its worker runs
    elsewhere."""
    heard = {H2: [report(0, 1), report(1, 20)], H1: [report(0, 10)], H3: [report(0, 3), report(1, 3)]}
    places = {(J, 0): H1, (J, 1): H2}

    assert {(J, 0): 10, (J, 1): 20} == {key: said.pid for key, said in of_the_places(heard, places).items()}
    assert {} == of_the_places(heard, {})


@pytest.mark.parametrize(
    ("status", "note"),
    [(JobStatus.ACTIVE, "2 of 2 workers have no slot"), (JobStatus.REPLICATING, ""), (JobStatus.FINISHED, "")],
)
def test_a_job_without_any_slot_says_so(status: JobStatus, note: str) -> None:
    """If this fails, a job without slots looks like one that is about to run."""
    entry = job("j", ["b"], status)
    entry = msgspec.structs.replace(entry, record=msgspec.structs.replace(entry.record, workers=2))
    view = job_view(snapshot([bundle("b", holders=["m1"])], jobs=[entry]), entry, {}, (), 0.0)

    assert note == view.reason


def test_a_job_whose_workers_wait_in_backoff_says_why() -> None:
    """If this fails, `job ls` shows an active job that never runs, and no reason."""
    entry = job("j", ["b"], JobStatus.ACTIVE)
    entry = msgspec.structs.replace(entry, record=msgspec.structs.replace(entry.record, workers=2))
    assigned = AssignmentRecord(workers=tuple(WorkerAssignment(job=J, worker=k) for k in (0, 1)))
    state = snapshot([bundle("b", holders=["m1", "m2", "m3"])], jobs=[entry])
    state = msgspec.structs.replace(state, assignments={H1: AssignmentEntry(assigned, 1)})
    failed = {"state": WorkerState.BACKOFF, "exit_code": 2, "detail": "can't open file 'main.py'"}
    reports = {(J, k): msgspec.structs.replace(report(k, 0), **failed) for k in (0, 1)}
    one = {**reports, (J, 1): report(1, 7)}

    told = "ended and will be started again: exit code 2: can't open file 'main.py'"
    assert f"worker 0 and 1 more {told}" == job_view(state, entry, reports, {H1}, 0.0).reason
    assert f"worker 0 {told}" == job_view(state, entry, one, {H1}, 0.0).reason


def test_a_job_some_of_whose_workers_have_failed_for_good_says_so() -> None:
    """If this fails, `job ls` shows an active job as if all of its workers ran."""
    entry = job("j", ["b"], JobStatus.ACTIVE)
    spec = JobSpec(name="j", command=("true",), restart=Restart(limit=2))
    record = msgspec.structs.replace(entry.record, workers=2, spec=spec, exits={"1": 3})
    entry = msgspec.structs.replace(entry, record=record)
    assigned = AssignmentRecord(workers=(WorkerAssignment(job=J, worker=0),))
    state = snapshot([bundle("b", holders=["m1", "m2", "m3"])], jobs=[entry])
    state = msgspec.structs.replace(state, assignments={H1: AssignmentEntry(assigned, 1)})
    view = job_view(state, entry, {(J, 0): report(0, 7)}, {H1}, 0.0)

    assert "worker 1 ended with exit code 3; its restart.limit of 2 is reached" == view.reason


@pytest.mark.case("G7")
def test_of_workers_that_nobody_has_told_of_nothing_is_said() -> None:
    """If this fails, a new leader, or a master without ZooKeeper, shows running workers as
    waiting."""
    entry = job("j", ["b"], JobStatus.ACTIVE)
    entry = msgspec.structs.replace(entry, record=msgspec.structs.replace(entry.record, workers=3))
    assigned = AssignmentRecord(workers=tuple(WorkerAssignment(job=J, worker=k) for k in (0, 1)))
    state = snapshot([bundle("b", holders=["m1", "m2", "m3"])], jobs=[entry])
    state = msgspec.structs.replace(state, assignments={H1: AssignmentEntry(assigned, 1)})

    unheard = job_view(state, entry, {}, (), 0.0).workers
    heard = job_view(state, entry, {(J, 1): report(1, 7)}, {H1}, 0.0).workers
    assert [(H1, None, None, None), (H1, None, None, None), (None, WorkerState.UNASSIGNED, 0, 0)] == [
        (worker.supervisor, worker.state, worker.pid, worker.slot) for worker in unheard
    ]
    assert [WorkerState.WAITING, WorkerState.RUNNING] == [worker.state for worker in heard[:2]]


def test_an_ended_worker_is_shown_with_the_supervisor_it_ran_on() -> None:
    """If this fails, `job show` and Spark's table `workers` name no host for a worker that has
    ended."""
    entry = job("j", ["b"], JobStatus.FINISHED)
    record = msgspec.structs.replace(entry.record, workers=2, exits={"0": 0, "1": 0}, ended_on={"0": H1})
    entry = msgspec.structs.replace(entry, record=record)
    workers = job_view(snapshot([bundle("b", holders=["m1"])], jobs=[entry]), entry, {}, (), 0.0).workers

    assert [H1, None] == [worker.supervisor for worker in workers]
