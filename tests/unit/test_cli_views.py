"""What commands show of a cluster, word for word, and what they ask its masters for."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest
from cluster_by_script import BUNDLE, DIGEST, Answers

from torrentdist.model.access.audit_messages import AuditView
from torrentdist.model.ids import BundleId, Digest, JobId, MasterId, SupervisorId
from torrentdist.model.policies.policy_messages import DistributionStatusView, RetentionView
from torrentdist.model.records import BundleState, JobEvent, JobEventKind, JobStatus
from torrentdist.model.wire.bundle_messages import (
    GoingView,
    KeptView,
    PruneView,
    UnprunedView,
    UnusedBundle,
    UnusedView,
)
from torrentdist.model.wire.cluster_messages import (
    AttentionView,
    BundleCounts,
    ClusterView,
    GoneView,
    MasterView,
    SupervisorView,
)
from torrentdist.model.wire.fleet_messages import FleetView, HostProgress, HostState
from torrentdist.model.wire.job_messages import JobView, WorkerState, WorkerView
from torrentdist_cli.main import main

Capture = pytest.CaptureFixture[str]
GIB = 1024**3
DEAD = "http://127.0.0.1:1"
AUDIT: dict[str, Any] = {
    "at": 0.0, "who": "ann", "role": "operator", "operation": "PUT x", "target": "etl", "source": "h", "result": "ok",
}  # fmt: skip


def replaced(view: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(view, **changes)


def shown(capsys: Capture, command: str, code: int = 0) -> list[str]:
    """Returns the lines that a command prints, with single blanks between words."""
    assert code == main(command.split())
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()]


def supervisor(name: str, **changes: Any) -> SupervisorView:
    fields = {
        "id": name, "host": f"{name}.net", "gateway": "http://g", "slots": 4, "slots_used": 1, "bundles": 2,
        "labels": {"b": "2", "a": "1"}, "version": "0.1", "uptime_secs": 90.0, "silent_secs": 0.0,
    }  # fmt: skip
    return SupervisorView(**{**fields, **changes})


CLUSTER = ClusterView(
    leader=MasterId("m1"), epoch=7, jobs=[], supervisors=[],
    masters=[
        MasterView(id=MasterId(n), host=n, port=1, url=f"http://{n}", uptime_secs=9e1, is_leader=n == "m1", version="1")
        for n in ("m1", "m2")
    ],
    bundles=BundleCounts(total=9, available=4, uploading=0, lost=2, under_replicated=1),
)  # fmt: skip


def gone(name: str, role: str, **changes: Any) -> GoneView:
    fields = {
        "id": name,
        "role": role,
        "host": f"{name}.net",
        "since": 1.0,
        "gone_secs": 3600.0,
        "bundles": 0,
        "jobs": [],
    }
    return GoneView(**{**fields, **changes})


def test_the_cluster_is_shown_with_all_that_is_missing(answers: Answers, capsys: Capture) -> None:
    """An operator would not see that a master is gone, or what a lost host should keep."""
    hosts = [
        supervisor("s1", bytes=2 * GIB, own_bytes=GIB), supervisor("s2", bundles=None, draining=True, silent_secs=20.0),
        supervisor("s3", silent_secs=None, labels={}),
    ]  # fmt: skip
    lost = [gone("s9", "supervisor", bundles=2, jobs=[JobId("etl")]), gone("s8", "supervisor"), gone("m3", "master")]
    answers["GET /v1/cluster"] = replaced(CLUSTER, supervisors=hosts, gone=lost)

    assert [
        "leader m1", "epoch 7", "bundles 4 available, 2 lost, 1 with too few replicas", "jobs 0",
        "MASTER ADDRESS ROLE UP VERSION", "m1 http://m1 leader 1m30s 1", "m2 http://m2 standby 1m30s 1",
        "m3 m3.net gone -1h00m", "SUPERVISOR HOST GATEWAY SLOTS BUNDLES SIZE OWN LABELS UP VERSION NOTE",
        "s1 s1.net http://g 1/4 2 2.0 GiB 1.0 GiB a=1,b=2 1m30s 0.1",
        "s2 s2.net http://g 1/4 ? ? ? a=1,b=2 1m30s 0.1 drains, silent for 20s",
        "s3 s3.net http://g 1/4 2 ? ? 1m30s 0.1 heartbeats unknown",
        "s9 s9.net gone for 1h00m, with 2 bundles, etl", "s8 s8.net gone for 1h00m",
    ] == shown(capsys, "cluster")  # fmt: skip


def test_old_records_and_an_election_are_called_so(answers: Answers, capsys: Capture) -> None:
    """Somebody would take the leader of yesterday for the one of today."""
    answers["GET /v1/cluster"] = replaced(CLUSTER, leader=None, stale_secs=90.0)
    away = shown(capsys, "cluster")[:5]
    answers["GET /v1/cluster"] = replaced(CLUSTER, leader=None, stale_secs=90.0, problem="it was wiped")
    wiped = shown(capsys, "cluster")[:6]
    answers["GET /v1/cluster"] = replaced(CLUSTER, leader=None, gone=[gone("s8", "supervisor")])
    nobody = shown(capsys, "cluster")

    assert "stale 1m30s old: ZooKeeper is away" == away[4]
    assert ["stale 1m30s old: from a master's disk", "problem it was wiped"] == wiped[4:]
    assert ("last leader none", "leader none: an election is in progress") == (wiped[0], nobody[0])
    assert nobody[-1].startswith("s8 s8.net")


def test_top_shows_what_is_under_way_and_what_needs_attention(answers: Answers, capsys: Capture) -> None:
    """An operator would look at a calm picture while hosts wait."""
    trouble = [
        AttentionView(what="full", severe=True, kind="hosts", subjects=[f"h{n}"], count=1, detail="no room", page="p")
        for n in range(12)
    ]
    hosts = [
        HostProgress(supervisor=SupervisorId("h1"), state=HostState.STUCK, size=100, done=25, reason="no room"),
        HostProgress(supervisor=SupervisorId("h2"), state=HostState.DONE, size=100, done=100),
    ]
    order = DistributionStatusView(
        bundle=BundleId("etl"), owner="ann", state="running", reason="", begun_at=1.0, hosts=2, told=2, wave=1, waves=1,
        everywhere=True, labels={}, ends_at=None, rate=0, priority="normal",
    )  # fmt: skip
    standing = replaced(order, bundle=BundleId("lib"), state="standing")
    answers["GET /v1/cluster"] = replaced(CLUSTER, supervisors=[supervisor("h1")], attention=trouble)
    answers["GET /v1/waves"] = [order, standing]
    answers["GET /v1/bundles/etl/hosts"] = FleetView(id=BundleId("etl"), digest=DIGEST, size=100, hosts=hosts)
    lines = shown(capsys, "top --once -o table")

    assert "leader m1 · epoch 7 · 2 masters · 1 supervisor · 4 bundles · 0 jobs" == lines[0]
    assert ["NEEDS ATTENTION", "full: h0: no room"] == lines[1:3]
    assert ["full: h9: no room", "and 2 more", "1 distribution under way, 1 standing order"] == lines[11:14]
    assert f"etl (100 B) {'━' * 18}{'╌' * 12} 62% 1/2 hosts" == lines[14]
    assert ["SLOWEST STATE DONE WHY", "h1 stuck 25% no room"] == lines[15:17]
    answers["GET /v1/cluster"], answers["GET /v1/waves"] = CLUSTER, []
    assert ["nothing needs attention", "0 distributions under way"] == shown(capsys, "top --once -o table")[1:]
    assert ["0"] == shown(capsys, "top --once -q")


UNHEARD = WorkerView(worker=2, supervisor=None, slot=None, state=None, pid=None, exit_code=None, restarts=None)
JOB = JobView(
    id=JobId("etl"), name="nightly", status=JobStatus.ACTIVE, bundle=BundleId("code"), wanted=3, created_at=1.0,
    dependencies=[BundleId("lib"), BundleId("data")], due_in=90.0, reason="waits for hosts",
    workers=[
        WorkerView(worker=0, supervisor=SupervisorId("h1"), slot=0, state=WorkerState.RUNNING, pid=77, restarts=2,
                   application="app-1", ui="http://ui"),
        WorkerView(worker=1, supervisor=SupervisorId("h2"), slot=0, state=WorkerState.BACKOFF, pid=0, exit_code=0,
                   restarts=0, detail="it ended"),
        UNHEARD,
    ],
    events=[JobEvent(at=0.0, event=JobEventKind.REBALANCING, worker=0, supervisor=SupervisorId("h1"), detail="moved")],
)  # fmt: skip


def test_a_job_is_shown_with_what_is_not_known(answers: Answers, capsys: Capture) -> None:
    """A worker that nobody has heard of would be called a worker that runs, or has never failed."""
    known = [worker for worker in JOB.workers if worker.state]
    answers["GET /v1/jobs/etl"] = JOB
    answers["GET /v1/jobs"] = [replaced(JOB, events=[]), replaced(JOB, id=JobId("b"), workers=known)]

    assert [
        "id etl", "name nightly", "status active", "bundle code", "workers ?/3 running, 1 backoff, 1 unknown",
        "needs lib, data", "due in 1m30s", "application app-1 http://ui", "note waits for hosts",
        "WORKER SUPERVISOR STATE PID EXIT RESTARTS NOTE", "0 h1 running 77 2", "1 h2 backoff 0 0 it ended",
        "2 unknown ? ?", "AT EVENT WORKER SUPERVISOR NOTE",
    ] == shown(capsys, "job show etl")[:14]  # fmt: skip
    assert "rebalancing 0 h1 moved" == shown(capsys, "job show etl")[14].partition(":00 ")[2]
    assert ["etl nightly active ?/3 code waits for hosts", "b nightly active 1/3 code waits for hosts"] == shown(
        capsys, "job ls"
    )[1:]
    answers["GET /v1/jobs/etl"] = replaced(JOB, events=None)
    assert "its story is unknown while ZooKeeper is away" == shown(capsys, "job show etl")[-1]


def test_a_bundle_is_shown_with_who_uses_it(answers: Answers, capsys: Capture) -> None:
    """An operator would not know which pod keeps a removed bundle on a host."""
    used = replaced(
        BUNDLE, pinned=True, signers=["k1", "k2"], used_by={"h1": ["pod a", "pod b"]}, stuck={"h2": "no room"}
    )
    answers["GET /v1/bundles/etl-42"] = used
    answers["DELETE /v1/bundles/etl-42"] = BUNDLE
    lines = shown(capsys, "bundle show etl-42")

    assert ["id etl-42", f"digest {DIGEST}", "state available", "size 1.5 KiB (1536 bytes)", "files 3"] == lines[:5]
    assert ["replicas 2 of 2 wanted", "holders m1, m2"] == lines[5:7]
    assert ["pinned yes", "signed by k1, k2", "used by h1: pod a, pod b", "stuck h2: no room"] == lines[8:]
    assert ["etl-42 removed", "h1 keeps its content until these have ended: pod a, pod b"] == shown(
        capsys, "bundle rm etl-42"
    )
    answers["GET /v1/bundles/etl-42"] = replaced(BUNDLE, holders=[])
    assert ["pinned no", "signed by nobody"] == shown(capsys, "bundle show etl-42")[8:]
    assert "holders none" in shown(capsys, "bundle show etl-42")


def test_a_list_of_bundles_tells_what_they_share(answers: Answers, capsys: Capture) -> None:
    """Somebody who needs room would remove the bundle that frees none."""
    one = replaced(BUNDLE, age_secs=90.0, own_bytes=512, pinned=True, state=BundleState.LOST)
    answers["GET /v1/bundles"] = [one, replaced(BUNDLE, id=BundleId("b"), age_secs=3600.0)]
    shares = shown(capsys, "bundle ls")
    answers["GET /v1/bundles"] = [replaced(one, own_bytes=1536)]

    assert [
        "ID STATE SIZE OWN FILES REPLICAS AGE PINNED DIGEST", "etl-42 lost 1.5 KiB 512 B 3 2/2 1m30s yes abababababab",
        "b available 1.5 KiB 3 2/2 1h00m abababababab",
    ] == shares  # fmt: skip
    assert "etl-42 lost 1.5 KiB 3 2/2 1m30s yes abababababab" == shown(capsys, "bundle ls")[1]


@pytest.mark.parametrize(
    ("command", "request_line", "line"),
    [
        ("bundle pin etl-42", "PUT /v1/bundles/etl-42/pin", "etl-42 pinned"),
        ("bundle pin etl-42 --dry-run", "PUT /v1/dry-run/bundles/etl-42/pin", "etl-42 would be pinned"),
        ("bundle unpin etl-42", "DELETE /v1/bundles/etl-42/pin", "etl-42 unpinned"),
        ("bundle unpin etl-42 --dry-run", "DELETE /v1/dry-run/bundles/etl-42/pin", "etl-42 would be unpinned"),
        ("supervisor drain h1", "PUT /v1/supervisors/h1/drain", "h1 drains"),
        ("supervisor drain h1 --dry-run", "PUT /v1/dry-run/supervisors/h1/drain", "h1 would drain"),
        ("supervisor undrain h1", "DELETE /v1/supervisors/h1/drain", "h1 takes workers again"),
        ("bundle rm etl-42", "DELETE /v1/bundles/etl-42", "etl-42 removed"),
        ("bundle rm etl-42 --dry-run", "DELETE /v1/dry-run/bundles/etl-42", "etl-42 would be removed"),
    ],
)
def test_a_change_says_what_it_did(
    answers: Answers, capsys: Capture, command: str, request_line: str, line: str
) -> None:
    """A trial would be taken for the change, or make it."""
    answers[request_line] = {} if "supervisor" in command else BUNDLE

    assert [line] == shown(capsys, command)
    assert request_line == answers["asked"][-1]  # type: ignore[index]


RULE = RetentionView(
    pattern="etl-*", keep=2, for_secs=90.0, created_by="ann", bundles=3, goes={BundleId("etl-1"): "it is the oldest"},
    stays={BundleId("etl-3"): ["newest", "pinned"], BundleId("etl-2"): ["newest"]},
)  # fmt: skip


def test_a_rule_says_what_goes_and_why(answers: Answers, capsys: Capture) -> None:
    """An operator would make a rule that removes more than was meant."""
    answers["GET /v1/retention"] = [RULE, replaced(RULE, for_secs=0.0, goes={})]
    answers |= {f"{method} /v1{trial}/retention": RULE for method in ("PUT", "DELETE") for trial in ("", "/dry-run")}
    made = shown(capsys, "bundle retention etl-* --keep 2 --for 30s")

    assert ["etl-* 2 1m30s 3 1 ann", "etl-* 2 3 0 ann"] == shown(capsys, "bundle retention")[1:]
    assert [
        "3 bundles with a name like etl-*: 1 go, 2 stay", "BUNDLE WHY", "etl-1 goes it is the oldest",
        "etl-2 stays it is one of the newest", "etl-3 stays it is one of the newest; it is pinned",
    ] == made  # fmt: skip
    assert (
        "3 bundles with a name like etl-*: 1 would go, 2 stay"
        == shown(capsys, "bundle retention etl-* --keep 2 --dry-run")[0]
    )
    assert ["etl-1"] == shown(capsys, "bundle retention etl-* --keep 2 -q")
    assert ["the rule for etl-* has ended"] == shown(capsys, "bundle retention etl-* --remove")
    assert ["the rule for etl-* would end"] == shown(capsys, "bundle retention etl-* --remove --dry-run")


@pytest.mark.parametrize(
    "words", ["--keep 2", "--remove", "--dry-run", "etl-*", "etl-* --keep 2 --remove", "etl-* --keep 0"]
)
def test_an_unclear_rule_is_refused(answers: Answers, capsys: Capture, words: str) -> None:
    """A forgotten word would end a rule, or remove bundles."""
    assert [] == shown(capsys, f"bundle retention {words}", code=2)
    assert [] == answers["asked"]


def test_what_a_host_prunes_is_told_with_the_reasons(answers: Answers, capsys: Capture) -> None:
    """An operator would not know why a full disk stays full."""
    going = GoingView(digest=DIGEST, ids=[BundleId("a"), BundleId("b")], size=GIB, unused_secs=90.0, copies_elsewhere=1)
    kept = KeptView(digest=DIGEST, ids=[BundleId("c")], reasons=["pinned", "from-a-newer-release"])
    answers["POST /v1/host/prune"] = PruneView(
        removed=[DIGEST, Digest("cd" * 32)], freed_bytes=GIB, kept=1, stays=(kept, replaced(kept, ids=[])),
        goes=(going, replaced(going, ids=[], copies_elsewhere=2)),
    )  # fmt: skip

    assert [
        "removed 2 bundles, 1.0 GiB; kept: 1", "a, b goes: 1.0 GiB, unused for 1m30s, 1 master holds it",
        f"{DIGEST} goes: 1.0 GiB, unused for 1m30s, 2 masters hold it", "cd" * 32,
        "c stays: it is pinned; from-a-newer-release", f"{DIGEST} stays: it is pinned; from-a-newer-release",
    ] == shown(capsys, "bundle prune --older-than 7d")  # fmt: skip
    assert "would remove 2 bundles, 1.0 GiB; kept: 1" == shown(capsys, "bundle prune --dry-run")[0]
    assert [
        "POST /v1/host/prune?older_than=604800.0&dry_run=false", "POST /v1/host/prune?older_than=0.0&dry_run=true",
    ] == answers["asked"]  # fmt: skip


def test_what_a_cluster_prunes_is_told_with_the_reasons(answers: Answers, capsys: Capture) -> None:
    """An operator would remove what a rule or a job still wants."""
    answers["POST /v1/prune"] = UnusedView(
        removed=[BundleId("a"), BundleId("old")], bytes=GIB, kept=1,
        stays=(UnprunedView(id=BundleId("c"), reasons=["needed", "standing"]),),
        goes=(UnusedBundle(id=BundleId("a"), size=GIB, unchanged_secs=90.0),),
    )  # fmt: skip

    assert [
        "removed 2 bundles, 1.0 GiB; kept: 1", "GOES: NOBODY USES IT SIZE UNCHANGED FOR", "a 1.0 GiB 1m30s", "old",
        "KEPT WHY", "c a live job needs it; a standing order brings it to hosts",
    ] == shown(capsys, "bundle prune --cluster --older-than 30d")  # fmt: skip
    assert ["POST /v1/prune?older_than=2.592e%2B06"] == answers["asked"]
    assert [str(GIB)] == shown(capsys, "bundle prune --cluster -q")


def test_an_audit_without_a_masters_part_says_so(answers: Answers, capsys: Capture) -> None:
    """An auditor would take a part for the whole."""
    heard, mute = (replaced(CLUSTER.masters[n], url=os.environ["TORRENTDIST_MASTERS"] if n else DEAD) for n in (1, 0))
    answers["GET /v1/cluster"] = replaced(CLUSTER, masters=[heard, mute])
    answers["GET /v1/audit"] = [AuditView(**AUDIT, count=3), AuditView(**AUDIT | {"who": "bob"})]

    assert 0 == main(["audit", "--since", "1h", "--bundle", "etl", "-n", "5", "-q"])
    said = capsys.readouterr()
    assert (["ann", "bob"], True) == (said.out.split(), "the part of m1 is missing: " in said.err)
    assert "GET /v1/audit?within=3600.000&n=5&who=&bundle=etl" == answers["asked"][-1]  # type: ignore[index]
    assert "ann operator PUT x etl h ok 3" == shown(capsys, "audit")[1].partition(":00 ")[2]
    answers["GET /v1/cluster"] = replaced(CLUSTER, masters=[mute])
    assert [] == shown(capsys, "audit", code=5)
