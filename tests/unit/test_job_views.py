"""Whose word counts about a worker."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from records_of import bundle, job, snapshot

from torrentdist.master.job_views import job_view, of_the_places
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.records import JobStatus
from torrentdist.model.views import WorkerReport, WorkerState

J, H1, H2, H3 = JobId("j"), SupervisorId("h1"), SupervisorId("h2"), SupervisorId("h3")


def report(worker: int, pid: int) -> WorkerReport:
    return WorkerReport(job=J, worker=worker, state=WorkerState.RUNNING, pid=pid)


def test_only_the_host_that_has_a_worker_is_believed() -> None:
    """If this fails, what a dead host said last hides for a minute that its worker runs elsewhere."""
    heard = {H2: [report(0, 1), report(1, 20)], H1: [report(0, 10)], H3: [report(0, 3), report(1, 3)]}
    places = {(J, 0): H1, (J, 1): H2}

    assert {(J, 0): 10, (J, 1): 20} == {key: said.pid for key, said in of_the_places(heard, places).items()}
    assert {} == of_the_places(heard, {})


@pytest.mark.parametrize(
    ("status", "note"),
    [(JobStatus.ACTIVE, "2 of 2 workers have no slot"), (JobStatus.REPLICATING, ""), (JobStatus.FINISHED, "")],
)
def test_a_job_without_any_slot_says_so(status: JobStatus, note: str) -> None:
    """If this fails, a job that cannot run for want of slots looks like one that is about to."""
    entry = job("j", ["b"], status)
    entry = dataclasses.replace(entry, record=msgspec.structs.replace(entry.record, workers=2))
    view = job_view(snapshot([bundle("b", holders=["m1"])], jobs=[entry]), entry, {}, 0.0)

    assert note == view.reason
