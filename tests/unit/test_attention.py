"""What needs an operator's attention, as every page and command says it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
from records_of import bundle, job, snapshot, supervisor
from scripted_http import ScriptedHttp

from torrentdist.cluster.records.snapshot import ClusterSnapshot, JobEntry
from torrentdist.host.telemetry.metric_table import ATTENTION
from torrentdist.host.telemetry.metrics import Metrics
from torrentdist.master import master_metrics
from torrentdist.master.bundles.bundle_views import cluster_view
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.jobs.job_views import failing_jobs
from torrentdist.master.presence.attention import PAGES, Troubles, attention, health, unheard
from torrentdist.master.presence.attention_sight import AttentionSight
from torrentdist.model.access.host_record import HostRecord
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId, MasterId, PeerId, SupervisorId
from torrentdist.model.records import BundleState, FailoverRecord, JobStatus
from torrentdist.model.wire.cluster_messages import ClusterView, GoneView
from torrentdist.model.wire.job_messages import HeartbeatBody, WorkerReport, WorkerState
from torrentdist.security.authorization import Principal, Proof, Role
from torrentdist.swarm.directory.directory import SwarmDirectory
from torrentdist.swarm.directory.directory_values import HostConditions

OPERATOR = Principal(name="op", role=Role.OPERATOR, how=Proof.TOKEN)

NOBODY = ClusterView(
    leader=MasterId("m1"), epoch=1, masters=[], supervisors=[], jobs=[],
    bundles=cluster_view(snapshot(), None, 0.0).bundles,
)  # fmt: skip


def said(cluster: ClusterView = NOBODY, troubles: Troubles | None = None, now: float = 0.0) -> list[str]:
    return [entry.sentence for entry in attention(cluster, troubles or Troubles(), now)]


def elections(*reasons: str) -> list[FailoverRecord]:
    return [FailoverRecord(previous=None, current=MasterId("m2"), at=0.0, reason=why) for why in reasons]


def missed(id_: str, role: str = "supervisor", **more: Any) -> GoneView:
    said: dict[str, Any] = {"host": "h", "since": 0.0, "gone_secs": 9.0, "bundles": 0, "jobs": []}
    return GoneView(id=id_, role=role, **said | more)


def test_the_gone_are_named_with_what_they_kept_and_ran() -> None:
    """If this fails, a cluster with a dead host says that all is well."""
    gone = [missed("m3", "master"), missed("h1", since=60.0, bundles=3, jobs=["etl"]), missed("h2", bundles=1)]
    found = attention(msgspec.structs.replace(NOBODY, gone=gone), Troubles(), 0.0)

    assert [
        "gone: m3: gone since 1970-01-01 00:00:00 UTC",
        "gone: 2 hosts: gone, the first since 1970-01-01 00:00:00 UTC; should keep 4 bundles; ran etl: h1, h2",
    ] == [entry.sentence for entry in found]
    assert "It works, and something needs attention." == health(NOBODY, found)


def test_hosts_with_one_trouble_are_one_entry() -> None:
    """If this fails, a full disk on 20 hosts fills the Overview with 80 lines of one kind."""
    names = [f"h{n:02}" for n in range(20)]
    seen = snapshot(supervisors=[supervisor(id_) for id_ in names])
    full = {PeerId(id_): f"the disk is full: {n} bytes free" for n, id_ in enumerate(names)}
    bundles = [f"etl-{n}" for n in range(4)]
    cut_off = {"etl-0": {"x1": "no peer answers"}, "etl-1": {"x1": "no peer answers", "x2": "no peer answers"}}
    stuck = {bundle: dict.fromkeys(names, "no room") | cut_off.get(bundle, {}) for bundle in bundles}
    view = cluster_view(seen, MasterId("m1"), 0.0, said=HostConditions(full=full))

    assert [
        "full: 20 hosts: the disk is full: 0 bytes free; 4 bundles wait for room: h00, h01, h02, h03, h04 and 15 more",
        "stuck: 2 hosts: no peer answers; 2 bundles (etl-0, etl-1) wait there: x1, x2",
    ] == said(view, Troubles(stuck=stuck))


ENDS = (("h3", "supervisor", 86_400.0), ("m3", "master", -1.0))


def test_the_worst_comes_first_and_each_entry_names_its_page() -> None:
    """If this fails, an operator overlooks a lost bundle among lesser troubles."""
    silent = {SupervisorId("a"): 31.0}
    view = cluster_view(
        snapshot(supervisors=[supervisor("a")]),
        None,
        0.0,
        silent,
        said=HostConditions({PeerId("m2"): "no disk"}, {PeerId("a"): -3600.0}, fills_in={PeerId("a"): 9.0}),
    )
    view = msgspec.structs.replace(view, gone=[missed("h1")], problem="there is no cluster")
    troubles = Troubles(
        lost=["b1"], short={"b2": "1 of 2 copies"}, stopped={"b3": "a canary failed"}, jobs={"j": "it failed: x"},
        expiring=[HostRecord(id=id_, role=role, expires_at=end) for id_, role, end in ENDS],
        restarting={"supervisor": {"h2": "it started 4 times within 3 min"}},
        elections=elections("died", "died", "lease ended", "died"),
    )  # fmt: skip
    found = attention(view, troubles, 0.0)
    kinds = [*ATTENTION[:2], *ATTENTION[3:11], *ATTENTION[12:], "expiring"]

    assert kinds == [entry.what for entry in found]
    assert ["its certificate has ended", "its certificate ends in 1 day"] == [entry.detail for entry in found[-2:]]
    assert ("its heartbeat is 31 s late", "docs/operations.md#host-silent") == (found[4].detail, found[4].page)
    assert set(PAGES) == set(ATTENTION)


def test_handovers_and_restarts_are_no_loop_of_leaders() -> None:
    """If this fails, an operator who restarts all masters is woken by it."""
    planned = ["first leader", *["transferred", "stopped"] * 4]

    assert [] == said(troubles=Troubles(elections=elections(*planned, "died", "died", "died")))
    assert [] == said(troubles=Troubles(elections=elections(*["died"] * 4)), now=901.0)
    assert ["elections: m2: the leader was lost 4 times within 15 min, the last time because: died"] == said(
        troubles=Troubles(elections=elections(*["died"] * 4)), now=900.0
    )


def test_nothing_is_said_of_a_healthy_cluster() -> None:
    """If this fails, an operator is woken by nothing."""
    view = cluster_view(snapshot(supervisors=[supervisor("a")]), MasterId("m1"), 0.0, {SupervisorId("a"): 10.0})

    assert [] == said(view)
    assert "All is well." == health(view, [])


def test_a_leader_that_does_not_answer_is_said() -> None:
    """If this fails, a standby says that all is well without knowing which hosts are silent."""
    assert "It works, and something needs attention." == health(NOBODY, [unheard("m1", "no answer")])


ENDS = (("h3", "supervisor", 86_400.0), ("m3", "master", -1.0))


def report(restarts: int, state: WorkerState = WorkerState.RUNNING, detail: str = "") -> WorkerReport:
    return WorkerReport(job=JobId("etl"), worker=0, state=state, restarts=restarts, exit_code=3, detail=detail)


@pytest.mark.parametrize(
    ("status", "reports", "loops", "expected"),
    [
        (JobStatus.ACTIVE, [report(0)], [], {}),
        (JobStatus.ACTIVE, [report(27)], [], {}),
        (
            JobStatus.ACTIVE,
            [report(27)],
            [report(27, WorkerState.BACKOFF, "KeyError: 'day'")],
            {"etl": "its worker ends again and again after 27 restarts: exit code 3: KeyError: 'day'"},
        ),
        (
            JobStatus.ACTIVE,
            [report(1, WorkerState.BACKOFF, "oops")],
            [],
            {"etl": "its worker ends again and again after 1 restart: exit code 3: oops"},
        ),
        (JobStatus.FAILED, [], [], {"etl": "it failed: no reason is known"}),
        (JobStatus.KILLED, [report(1, WorkerState.BACKOFF)], [], {}),
    ],
)
def test_failed_jobs_and_those_in_a_loop_are_named(
    status: JobStatus, reports: list[WorkerReport], loops: list[WorkerReport], expected: dict[str, str]
) -> None:
    """If this fails, a job that was restarted 27 times in 8 minutes is active in green."""
    assert expected == failing_jobs(snapshot(jobs=[job("etl", ["b"], status)]), reports, loops)


def test_a_failed_job_that_was_submitted_again_needs_no_attention() -> None:
    """If this fails, the alert goes on for a week after the job was mended, since nobody can remove
    a failed job."""

    def made(id_: str, status: JobStatus, at: float) -> JobEntry:
        entry = job(id_, ["b"], status)
        return JobEntry(msgspec.structs.replace(entry.record, name="etl", created_at=at), 0, 0.0)

    failed, again = made("etl-1", JobStatus.FAILED, 1.0), made("etl-2", JobStatus.ACTIVE, 2.0)
    older = made("etl-0", JobStatus.FINISHED, 0.5)

    assert ["etl-1"] == [*failing_jobs(snapshot(jobs=[failed, older]), [], [])]
    assert {} == failing_jobs(snapshot(jobs=[failed, again]), [], [])


def test_a_restart_is_remembered_after_the_worker_runs_again() -> None:
    """If this fails, a job in a loop needs attention only in the moments when it does not run."""
    leads: Any = SimpleNamespace(fence=lambda: None)
    session: Any = SimpleNamespace(mirror=SimpleNamespace(snapshot=snapshot(supervisors=[supervisor("a")])))
    heartbeats = Heartbeats(session, leads, leads, 30.0)
    for restarts in (1, 2, 3):
        heartbeats.hear(_body(report(restarts, WorkerState.BACKOFF, f"end {restarts}")))
        heartbeats.hear(_body(report(restarts)))

    assert ["end 3"] == [end.detail for end in heartbeats.restart_loops()]


def _body(*reports: WorkerReport) -> HeartbeatBody:
    return HeartbeatBody(supervisor=SupervisorId("a"), generation=1, workers=[*reports])


HEARD: Any = SimpleNamespace(silent_secs=lambda _: None, recent=dict, restart_loops=list)
SWARMS: Any = SimpleNamespace(directory=SwarmDirectory(), held=lambda _: None)


def sight_of(seen: ClusterSnapshot, http: Any = None) -> AttentionSight:
    """Returns what m2 knows of these records while m1 leads."""
    records: Any = SimpleNamespace(
        snapshot=lambda: seen, server_now=lambda: 0.0, stale_secs=lambda: None, lacks_cluster=lambda: False
    )
    leads: Any = SimpleNamespace(
        leader_id=lambda: MasterId("m1"), me=MasterId("m2"), is_leader=lambda: False,
        elections=SimpleNamespace(recent=[]),
    )  # fmt: skip
    return AttentionSight(records, leads, HEARD, SWARMS, http)


@pytest.mark.parametrize(("error", "expected"), [("not_found", []), ("not_ready", ["unheard"])])
def test_a_leader_of_the_last_release_is_not_unheard(error: str, expected: list[str]) -> None:
    """If this fails, every new standby warns of the leader throughout a rolling upgrade."""
    answer = TorrentdistError(error, what="/v1/attention", detail="x").to_wire()
    http = ScriptedHttp(lambda _: httpx.Response(404, json=answer))
    found = asyncio.run(sight_of(snapshot(masters=["m1", "m2"]), http).overview(OPERATOR))

    assert expected == [entry.what for entry in found.attention]


@pytest.mark.case("A17")
def test_a_scrape_counts_lost_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, the alert on bundles that are lost never rings."""
    seen = snapshot([bundle("here", holders=["m1"]), bundle("gone", state=BundleState.LOST)], masters=["m1"])
    core: Any = SimpleNamespace(host=None, session=SimpleNamespace(mirror=SimpleNamespace(snapshot=seen)))
    monkeypatch.setattr(master_metrics, "host_samples", lambda _: ())
    metrics = Metrics(lambda: master_metrics.master_samples(core, sight_of(seen), HEARD, SWARMS))

    assert 'torrentdist_bundles{state="lost"} 1.0\n' in metrics.render().decode()
