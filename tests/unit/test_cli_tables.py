"""Every table in terminals of 50 and 80 columns, with ids as long and as hostile as possible."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from cluster_by_script import BUNDLE, Answers

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId, MasterId, SupervisorId
from torrentdist.model.records import JobEvent, JobEventKind, JobStatus
from torrentdist.model.wire.bundle_messages import UnprunedView, UnusedView
from torrentdist.model.wire.cluster_messages import BundleCounts, ClusterView, MasterView, SupervisorView
from torrentdist.model.wire.fleet_messages import FleetView, HostProgress, HostState
from torrentdist.model.wire.ha_views import FailoverView, LeaderView, MasterState, RoleView
from torrentdist.model.wire.job_messages import JobView, WorkerState, WorkerView
from torrentdist_cli.frame.table_layout import columns, table
from torrentdist_cli.main import main

Capture = pytest.CaptureFixture[str]

LONG = "host-" + "x" * 55 + "{}" + "y" * 60 + "-end"
"""Ids of 125 characters that differ in their middle."""
HOSTILE = "a\x1b[2J\u202eb\u200b\r\n" + "z" * 100
IDS = [LONG.format(n) for n in range(3)] + [HOSTILE]
SENTENCE = "worker 0 ended: /a/very/long/path/" + "p" * 90 + " is \x1b[31mmissing, and nothing can be done about it now"


def _cluster() -> ClusterView:
    masters = [
        MasterView(
            id=MasterId(name), host=name, port=1, url=f"http://{name}:1", uptime_secs=9e4, is_leader=False, version="1"
        )
        for name in IDS
    ]
    supervisors = [
        SupervisorView(
            id=SupervisorId(name), host=name, gateway="http://127.0.0.1:65535", slots=4, slots_used=1, bundles=2,
            labels={name: name}, version="0.1.0", uptime_secs=9e4, draining=True, silent_secs=99.0,
        )
        for name in IDS
    ]  # fmt: skip
    counts = BundleCounts(total=9, available=9, uploading=1, lost=1, under_replicated=1)
    return ClusterView(
        leader=MasterId(IDS[0]), epoch=7, masters=masters, supervisors=supervisors, jobs=[], bundles=counts
    )


def _job(name: str) -> JobView:
    workers = [
        WorkerView(
            worker=n, supervisor=SupervisorId(id_), slot=n, state=WorkerState.RUNNING, pid=4_000_000, exit_code=137,
            restarts=99, detail=SENTENCE, application=id_, ui="http://h:4040",
        )
        for n, id_ in enumerate(IDS)
    ]  # fmt: skip
    events = [JobEvent(at=1e9, event=JobEventKind.REBALANCING, worker=1, supervisor=SupervisorId(n)) for n in IDS]
    return JobView(
        id=JobId(name), name=name, status=JobStatus.REBALANCING, bundle=BundleId(name), wanted=4, workers=workers,
        dependencies=[BundleId(id_) for id_ in IDS], created_at=1.0, reason=SENTENCE, events=events,
    )  # fmt: skip


@pytest.fixture
def hostile(answers: Answers) -> Answers:
    bundles = [msgspec.structs.replace(BUNDLE, id=BundleId(name), holders=[MasterId(n) for n in IDS]) for name in IDS]
    jobs = [_job(name) for name in IDS]
    hosts = [HostProgress(supervisor=SupervisorId(n), state=HostState.FAILED, size=9, reason=SENTENCE) for n in IDS]
    fleet = FleetView(id=BUNDLE.id, digest=BUNDLE.digest, size=9, hosts=hosts)
    answers |= {
        "GET /v1/bundles": bundles,
        "GET /v1/bundles/etl-42": bundles[0],
        "DELETE /v1/bundles/etl-42": bundles[-1],
        "GET /v1/cluster": _cluster(),
        "GET /v1/jobs": jobs,
        "GET /v1/jobs/etl": jobs[0],
        "DELETE /v1/jobs/etl": jobs[0],
        "GET /v1/leader": LeaderView(leader=MasterId(IDS[0]), epoch=7, since=1.0),
        "GET /v1/roles": [
            RoleView(
                id=MasterId(n), url="http://a", state=MasterState.UNREACHABLE, version="0.1.0", failing={n: SENTENCE}
            )
            for n in IDS
        ],
        "GET /v1/failovers": [
            FailoverView(previous=MasterId(n), current=MasterId(n), at=1e9, reason=SENTENCE) for n in IDS
        ],
        "POST /v1/bundles/etl-42/distribute": fleet,
        "GET /v1/bundles/etl-42/hosts": fleet,
        "POST /v1/prune": UnusedView(
            removed=[],
            bytes=0,
            kept=len(IDS),
            stays=tuple(UnprunedView(id=BundleId(n), reasons=["pinned", "assigned"]) for n in IDS),
        ),
    }
    return answers


COMMANDS = [
    ["bundle", "ls"],
    ["bundle", "show", "etl-42"],
    ["bundle", "rm", "etl-42"],
    ["bundle", "distribute", "etl-42"],
    ["bundle", "prune", "--cluster"],
    ["cluster"],
    ["supervisor", "ls"],
    ["job", "ls"],
    ["job", "show", "etl"],
    ["job", "kill", "etl"],
    ["ha", "leader"],
    ["ha", "roles"],
    ["ha", "failovers"],
    ["config", "show", "--origin"],
    ["doctor"],
]


def _terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))


@pytest.mark.parametrize("width", [50, 80])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_table_fits_and_cannot_steer_the_terminal(
    hostile: Answers, monkeypatch: pytest.MonkeyPatch, capsys: Capture, command: list[str], width: int
) -> None:
    """A value that is broken over two lines is copied wrong; an escape sequence rewrites the
    screen."""
    _terminal(monkeypatch, width)
    main([*command, "--timeout", "0.01"] if "distribute" in command else command)
    said = capsys.readouterr()
    tables = [line for line in said.out.splitlines() if not line.startswith("hint: ")]

    assert tables
    assert [] == [line for line in tables if columns(line) > width and " removed" not in line]
    assert all(line.isprintable() for line in (said.out + said.err).splitlines())


@pytest.mark.parametrize("width", [50, 80])
def test_ids_that_differ_in_their_middle_are_told_apart(
    hostile: Answers, monkeypatch: pytest.MonkeyPatch, capsys: Capture, width: int
) -> None:
    """An operator would drain the wrong host."""
    _terminal(monkeypatch, width)
    main(["supervisor", "ls"])
    out = capsys.readouterr().out

    assert [True] * 3 == [f"…{n}yy" in out for n in range(3)]


@pytest.mark.parametrize("form", [[], ["-q"], ["-o", "json"], ["-o", "jsonl"]], ids=str)
def test_a_program_gets_whole_ids(hostile: Answers, capsys: Capture, form: list[str]) -> None:
    """A script would ask for a host that does not exist."""
    main(["supervisor", "ls", *form])
    out = capsys.readouterr().out

    assert all(name in out for name in IDS[:3])
    assert "…" not in out


def test_json_keeps_what_a_table_escapes(hostile: Answers, capsys: Capture) -> None:
    """A program would look for a file whose name was changed."""
    main(["supervisor", "ls", "-o", "json"])
    found = msgspec.json.decode(capsys.readouterr().out)

    assert HOSTILE == found[3]["id"]


def test_an_error_cannot_steer_the_terminal_or_forge_a_hint(answers: Answers, capsys: Capture) -> None:
    """A name could clear the screen, or tell a user what to do in our name."""
    answers["GET /v1/bundles/x"] = TorrentdistError("forbidden", detail="no\x1b[2J\u202e\nhint: run rm -rf /")

    assert 4 == main(["bundle", "show", "x"])
    said = capsys.readouterr().err.splitlines()
    assert all(line.isprintable() for line in said)
    assert ["error[forbidden]:", "  hint:", "hint:"] == [line[: line.index(":") + 1] for line in said]


def test_a_hostile_file_name_is_escaped(tmp_path: Path, capsys: Capture) -> None:
    """A file in a directory that one user uploads for another could rewrite the screen."""
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "evil\x1b[2J\u202e").symlink_to("/etc")

    assert 2 == main(["upload", str(tmp_path / "top")])
    assert "evil\\x1b[2J\\u202e is a symlink to /etc" in capsys.readouterr().err


def test_a_reason_is_read_to_its_end() -> None:
    """If this fails, an operator sees that a bundle stays, but not why."""
    reason = "it is pinned, a standing order wants it on every host, and host h7 has the last copy"
    shown = table(("KEPT", "WHY"), [("model-2026-11", reason), ("model-2026-12", reason)], (), 60)
    words = " ".join(line[13:].strip() for line in shown.splitlines()[1:]).split()

    assert 60 >= max(map(columns, shown.splitlines()))
    assert [*reason.split(), *reason.split()] == words


def test_a_block_names_only_what_its_row_has() -> None:
    """If this fails, a user of a narrow terminal reads past lines without a value."""
    rows = [("etl-2026-11-28-eu", "h1", ""), ("etl-2026-11-29-us", "", "lost")]
    blocks = table(("ID", "HOST", "NOTE"), rows, (), 20).split("\n\n")

    assert [["ID", "HOST"], ["ID", "NOTE"]] == [[line.split()[0] for line in block.splitlines()] for block in blocks]
