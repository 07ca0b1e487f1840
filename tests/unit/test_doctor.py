"""The doctor's conclusions from what it saw."""

from __future__ import annotations

import asyncio
import struct
from importlib.metadata import Distribution, PackageNotFoundError

import msgspec
import pytest

from torrentdist.client.diagnosis import (
    DiskFacts,
    MasterFacts,
    ServerFacts,
    judge_access,
    judge_disk,
    judge_distributions,
    judge_isolation,
    judge_leader,
    judge_limits,
    judge_master,
    judge_open_files,
    judge_ports,
    judge_readers,
    judge_records,
    judge_retention,
    judge_servers,
    judge_spark_users,
    judge_traces,
    judge_versions,
    judge_way_back,
    parse_mode,
    parse_settings,
)
from torrentdist.client.doctor import sessions, traces
from torrentdist.client.zookeeper_probe import NotUnderstood, TreeAccess, parse_access
from torrentdist.model.configuration.config import Config, TracesConfig, ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, MasterId
from torrentdist.model.policies.policy_messages import DistributionStatusView, RetentionView
from torrentdist.model.wire.cluster_messages import BundleCounts, ClusterView
from torrentdist.model.wire.doctor_views import Finding, IsolationView, Verdict, exit_code, worst
from torrentdist.model.wire.ha_views import DialView, MasterState, RoleView

OK, WARN, FAIL = Verdict.OK, Verdict.WARN, Verdict.FAIL
CLUSTER = ClusterView(
    leader=MasterId("m1"),
    epoch=1,
    masters=[],
    supervisors=[],
    jobs=[],
    bundles=BundleCounts(total=1, available=1, uploading=0, lost=0, under_replicated=0),
)


def role(id_: str, state: MasterState = MasterState.STANDBY, version: str = "1", **more: object) -> RoleView:
    return msgspec.convert(
        {"id": id_, "url": f"http://{id_}", "state": state, "epoch": 1, "lag": 0, "version": version, **more}, RoleView
    )


def master(said: RoleView, leader: str | None = "m1", **more: object) -> MasterFacts:
    picture = msgspec.structs.replace(CLUSTER, leader=leader)
    return msgspec.structs.replace(MasterFacts(said.url, None, said, picture), **more)


LEADER = master(role("m1", MasterState.LEADER))
STANDBY = master(role("m2"))


def verdicts(findings: list[Finding]) -> list[tuple[str, Verdict]]:
    return [(finding.check, finding.verdict) for finding in findings]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, OK),
        ({"free": 4, "total": 100}, WARN),
        ({"free": 3}, FAIL),
        ({"free_inodes": 999}, FAIL),
        ({"free_inodes": None}, OK),
        ({"writable": False}, FAIL),
    ],
)
def test_a_disk_that_fills_up_is_seen_before_it_is_full(changes: dict[str, int], expected: Verdict) -> None:
    """If this fails, the first sign of a full disk is an upload that fails."""
    disk = msgspec.structs.replace(DiskFacts("/d", 50, 100, 10_000, True), **changes)
    found = judge_disk(disk, reserve=3)

    assert (found.verdict, found.exit_code) == (expected, 8 if expected is FAIL else 0)


@pytest.mark.parametrize(("soft", "expected"), [(1023, FAIL), (1024, WARN), (8191, WARN), (8192, OK)])
def test_too_few_open_files_are_named(soft: int, expected: Verdict) -> None:
    """If this fails, a daemon stops taking peers at the worst moment, and nobody knows why."""
    assert judge_open_files(soft, 65536).verdict is expected


SRVR = "Zookeeper version: 3.9\nLatency min/avg/max: 0/0/1\nMode: follower\nNode count: 5\n"
CONF = "clientPort=2181\ndataDir=/x\ntickTime=2000\nminSessionTimeout=4000\nmaxSessionTimeout=40000\nsyncLimit=2\n"


def test_four_letter_words_are_read() -> None:
    """If this fails, a healthy ensemble looks dead."""
    assert parse_mode(SRVR) == "follower"
    assert parse_mode("This ZooKeeper instance is not currently serving requests") == ""
    assert parse_settings(CONF) == {
        "clientPort": 2181,
        "tickTime": 2000,
        "minSessionTimeout": 4000,
        "maxSessionTimeout": 40000,
        "syncLimit": 2,
    }
    assert parse_settings("conf is not executed because it is not in the whitelist.") is None


@pytest.mark.parametrize(
    ("session", "settings", "expected"),
    [
        (10.0, {}, [("session", OK)]),
        (3.0, {}, [("session", WARN), ("sync limit", WARN)]),
        (60.0, {}, [("session", WARN)]),
        (10.0, {"syncLimit": 5}, [("session", OK), ("sync limit", WARN)]),
        (10.0, {"syncLimit": 4}, [("session", OK)]),
        (10.0, {"maxClientCnxns": 0}, [("session", OK)]),
        (10.0, {"maxClientCnxns": 3}, [("session", OK), ("connections", WARN)]),
    ],
)
def test_timeouts_that_do_not_fit_each_other_are_told(
    session: float, settings: dict[str, int], expected: list[tuple[str, Verdict]]
) -> None:
    """If this fails, a failover takes longer than configured, or a cut-off server shows old records
    for too long."""
    found = parse_settings(CONF)
    assert found is not None
    server = ServerFacts("z:1", "follower", found | settings)

    assert verdicts(judge_limits(server, [session])) == expected


def test_an_ensemble_with_one_server_down_works_and_one_without_any_does_not() -> None:
    """If this fails, an operator is alarmed for nothing, or not at all."""
    up, down = ServerFacts("a:1", "leader"), ServerFacts("b:1", detail="refused")

    assert verdicts(judge_servers([up, down])) == [("zookeeper", OK), ("zookeeper", WARN)]
    assert verdicts(judge_servers([down])) == [("zookeeper", FAIL)]
    assert verdicts(judge_servers([ServerFacts("a:1", "standalone")])) == [("zookeeper", OK), ("ensemble", WARN)]
    assert verdicts(judge_limits(up, [10.0])) == [("session", WARN)]


def test_a_session_is_judged_by_what_daemons_ask_for_and_not_by_a_clients_default() -> None:
    """If this fails, a user who runs the doctor with a client.toml reads about a session that no
    daemon has."""
    masters = [facts(session_secs=4.0, granted_secs=4.0), facts(session_secs=30.0, granted_secs=20.0)]
    client: dict[str, str] = {}
    told, daemon = {"zookeeper.session_timeout_secs": "f"}, {"master.id": "f"}
    server = ServerFacts("z:1", "follower", {"tickTime": 1000})

    assert sessions(Config(), client, masters) == {4.0, 30.0}
    assert sessions(Config(), told, masters) == sessions(Config(), daemon, masters) == {10.0}
    assert verdicts(judge_limits(server, {4.0, 30.0})) == [("session", OK), ("session", WARN)]
    assert verdicts(judge_limits(server, ())) == []
    assert [("session", WARN)] == [f for m in masters for f in verdicts(judge_master(m)) if f[0] == "session"]


def facts(*, session_secs: float, granted_secs: float) -> MasterFacts:
    role = RoleView(
        id=MasterId("m1"), url="u", state=MasterState.STANDBY, version="1", ready=True,
        session_secs=session_secs, granted_secs=granted_secs,
    )  # fmt: skip
    return MasterFacts("u", role=role)


@pytest.mark.parametrize(
    ("auth_file", "access", "expected"),
    [
        ("", TreeAccess.OPEN, WARN),
        ("", TreeAccess.ABSENT, WARN),
        ("", None, WARN),
        ("", TreeAccess.CLOSED, OK),
        ("/a", TreeAccess.OPEN, FAIL),
        ("/a", TreeAccess.CLOSED, OK),
        ("/a", TreeAccess.ABSENT, OK),
        ("/a", None, OK),
    ],
)
def test_a_tree_that_is_open_or_closed_against_the_configuration_is_told(
    auth_file: str, access: TreeAccess | None, expected: Verdict
) -> None:
    """If this fails, nobody notices that every user may run code on every host."""
    assert judge_access(ZooKeeperConfig(auth_file=auth_file), access).verdict is expected


@pytest.mark.parametrize(
    ("error", "acls", "expected"),
    [
        (0, [(31, "world", "anyone")], TreeAccess.OPEN),
        (0, [(1, "world", "anyone"), (31, "digest", "x:y")], TreeAccess.CLOSED),
        (0, [(31, "digest", "x:y"), (2, "world", "anyone")], TreeAccess.OPEN),
        (-102, [], TreeAccess.CLOSED),
        (-101, [], TreeAccess.ABSENT),
    ],
)
def test_what_a_stranger_may_do_is_read_from_zookeepers_answer(
    error: int, acls: list[tuple[int, str, str]], expected: TreeAccess
) -> None:
    """If this fails, an open tree looks closed."""
    entries = [struct.pack(">ii", p, len(s)) + s.encode() + struct.pack(">i", len(i)) + i.encode() for p, s, i in acls]
    data = struct.pack(">iqi", 1, 7, error) + (b"" if error else struct.pack(">i", len(acls)) + b"".join(entries))

    assert parse_access(data) is expected
    with pytest.raises(NotUnderstood):
        parse_access(data[:-1] if not error else data[:11])


@pytest.mark.parametrize(
    ("facts", "expected", "code"),
    [
        (LEADER, [("reachable", OK)], 0),
        (MasterFacts("u", TorrentdistError("unreachable", detail="x")), [("reachable", FAIL)], 5),
        (MasterFacts("u", TorrentdistError("unauthorized")), [("access", FAIL)], 4),
        (master(role("m2", failing={"zookeeper": "x"})), [("reachable", OK), ("ready", FAIL)], 5),
        (master(role("m2", lag=3)), [("reachable", OK), ("replicas", WARN)], 0),
        (
            master(role("m2"), roles=(role("m3", MasterState.UNREACHABLE, failing={"reachable": "x"}),)),
            [("reachable", OK), ("masters' links", FAIL)],
            5,
        ),
        (master(role("m2"), clock_offset=-2.6, clock_error=0.5), [("reachable", OK), ("clock", WARN)], 0),
        (master(role("m2"), clock_offset=2.4, clock_error=0.5), [("reachable", OK)], 0),
    ],
)
def test_a_masters_troubles_are_told_by_name(
    facts: MasterFacts, expected: list[tuple[str, Verdict]], code: int
) -> None:
    """If this fails, a master in trouble looks healthy, or a slow answer looks like a wrong
    clock."""
    found = judge_master(facts)

    assert (verdicts(found), exit_code(found)) == (expected, code)


@pytest.mark.parametrize(
    ("masters", "expected"),
    [
        ([LEADER, STANDBY], OK),
        ([LEADER, master(role("m2", MasterState.LEADER))], FAIL),
        ([master(role("m1"), leader=None), master(role("m2"), leader=None)], FAIL),
        ([LEADER, master(role("m2"), leader="m3")], WARN),
        ([STANDBY], WARN),
    ],
)
def test_there_is_exactly_one_leader_and_all_agree(masters: list[MasterFacts], expected: Verdict) -> None:
    """If this fails, a cluster with two leaders, or none, looks healthy."""
    assert [finding.verdict for finding in judge_leader(masters)] == [expected]
    assert judge_leader([]) == []


def test_versions_bundles_and_ports() -> None:
    """If this fails, a half-done upgrade, lost bundles or a closed port stay unnoticed until they
    hurt."""
    closed = DialView(host="h", port=1, reachable=False, detail="refused")

    assert verdicts(judge_versions("1", [LEADER, STANDBY])) == [("version", OK)]
    assert verdicts(judge_versions("2", [LEADER])) == [("version", WARN)]
    assert verdicts(judge_records(CLUSTER)) == []
    assert verdicts(judge_records(msgspec.structs.replace(CLUSTER, stale_secs=3.0))) == [("records", FAIL)]
    assert verdicts(judge_ports({"a": "", "b": "refused"})) == [("swarm port", FAIL), ("swarm port", OK)]
    assert verdicts(judge_way_back({"u": closed})) == [("way back", WARN)]
    assert verdicts(judge_way_back({"u": DialView(host="h", port=1, reachable=True)})) == [("way back", OK)]


def test_the_exit_code_is_the_first_failures_and_warnings_have_none() -> None:
    """If this fails, a script takes a consequence for the cause, or stops because of a warning."""
    ok = Finding(check="a")
    warn = Finding(check="b", verdict=WARN)
    two, five = Finding(check="c", verdict=FAIL, exit_code=2), Finding(check="d", verdict=FAIL, exit_code=5)

    assert (exit_code([ok, warn]), worst([ok, warn])) == (0, WARN)
    assert (exit_code([ok, five, warn, two]), worst([five, ok])) == (5, FAIL)
    assert (exit_code([]), worst([])) == (0, OK)


@pytest.mark.parametrize(
    ("said", "verdict", "word"),
    [
        (IsolationView(namespaces=True, launcher="/l"), Verdict.OK, "namespaces"),
        (IsolationView(namespaces=True, launcher="/l", is_root=True), Verdict.WARN, "which is root"),
        (IsolationView(namespaces=False, why_not="bwrap is not installed"), Verdict.WARN, "bwrap is not installed"),
        (IsolationView(namespaces=False, launcher="/l", error="no answer"), Verdict.FAIL, "no answer"),
    ],
)
def test_what_runs_of_a_host_get_is_said(said: IsolationView, verdict: Verdict, word: str) -> None:
    """If this fails, a host on which runs have no namespaces, or cannot start at all, looks like
    any other."""
    finding = judge_isolation("http://s", said)

    assert (verdict, True) == (finding.verdict, word in finding.detail)
    assert (verdict is Verdict.OK) == (not finding.hint)


@pytest.mark.parametrize(
    ("readers", "word"), [("owner", "own user"), ("everyone", "every user"), ("group etl", "the group etl"), ("", "")]
)
def test_who_reads_bundles_as_files_is_said(readers: str, word: str) -> None:
    """An operator would have to know modes of directories to tell whom a host's bundles are open
    to."""
    found = judge_readers("http://s", readers)

    assert ([word] if readers else []) == [word for one in found if word in one.detail]


@pytest.mark.parametrize(
    ("readers", "own", "closed"),
    [
        ("owner", {7, 0}, "9, 10"),
        ("group readers", {7, 0}, "10"),
        ("everyone", {7, 0}, ""),
        ("", {7, 0}, ""),
        ("owner", {-1, 0}, ""),
    ],
)
def test_users_of_spark_that_cannot_read_are_named(readers: str, own: set[int], closed: str) -> None:
    """Every executor would fail, and the operator would learn of it from the users."""
    users = {0: {"root"}, 7: {"torrentdist"}, 9: {"readers", "12"}, 10: {"spark"}}
    found = judge_spark_users("http://s", readers, own, users)

    assert ([f"as user {closed}, who"] if closed else []) == [
        f"as user {closed}, who" for one in found if f"as user {closed}, who" in one.detail and one.verdict == "warn"
    ]


def test_a_distribution_that_takes_long_is_named_with_its_page() -> None:
    """The last hosts would wait until somebody looks for them by chance."""
    well = DistributionStatusView(
        bundle=BundleId("etl-1"), owner="", state="running", reason="", begun_at=1000.0, hosts=9, told=3, wave=1,
        waves=3, everywhere=False, labels={}, ends_at=None, rate=0, priority="normal",
    )  # fmt: skip
    (ok,) = judge_distributions([well], 1060.0)
    (late,) = judge_distributions([well], 1000.0 + 7200.0)

    assert Verdict.OK == ok.verdict
    assert "under way for 2 h, in wave 1 of 3" == late.detail
    assert {"docs/operations.md#distribution-stalled"} == {late.hint}


def test_a_retention_rule_that_matches_nothing_is_named() -> None:
    """A mistyped pattern would let the disks fill up."""
    rule = RetentionView(pattern="elt-*", keep=5, for_secs=0.0, created_by="", bundles=0)
    (idle,) = judge_retention([rule])
    (busy,) = judge_retention([msgspec.structs.replace(rule, bundles=7, goes={BundleId("elt-1"): "old"})])

    assert (Verdict.WARN, "elt-*") == (idle.verdict, idle.subject)
    assert (Verdict.OK, "1 rule, 1 bundle to go") == (busy.verdict, busy.detail)


@pytest.mark.parametrize(
    ("is_installed", "trouble", "expected"),
    [(True, "", [OK]), (True, "it answers 503", [WARN]), (False, "", [WARN]), (False, "it answers 503", [WARN, WARN])],
)
def test_traces_that_do_not_arrive_are_a_warning(is_installed: bool, trouble: str, expected: list[Verdict]) -> None:
    """An operator who set an endpoint would not learn why there are no traces."""
    found = judge_traces("http://collector:4318", is_installed=is_installed, trouble=trouble)

    assert [("traces", verdict) for verdict in expected] == verdicts(found)
    assert all(finding.hint for finding in found if finding.verdict is WARN)


def test_a_package_that_is_missing_for_traces_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor would say that traces arrive from a host that can send none."""

    def missing(name: str) -> Distribution:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(Distribution, "from_name", missing)
    found = asyncio.run(traces(TracesConfig(endpoint="http://127.0.0.1:1")))

    assert "no traces are sent: a package is missing" in [finding.detail for finding in found]
