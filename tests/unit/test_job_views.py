"""Whose word counts about a worker."""

from __future__ import annotations

from torrentdist.master.job_views import of_the_places
from torrentdist.model.ids import JobId, SupervisorId
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
