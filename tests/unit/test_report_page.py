"""The report without Spark: its page as a function of values, and what the command refuses at
once."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

import pytest

from torrentdist.spark.reporting.event_files import find_events
from torrentdist.spark.reporting.report_directory import ReportDirectory
from torrentdist.spark.reporting.report_page import render
from torrentdist_cli.main import main

EMPTY = (
    *("summary", "spread", "missing", "failures", "curve", "sources", "slow_hosts", "racks"),
    *("failovers", "distributions", "restarts", "savings", "audit", "kinds"),
)
MOMENT = datetime.datetime(2026, 1, 1)
HOSTILE = "</svg><script>alert(1)</script>"
Capture = pytest.CaptureFixture[str]


def test_names_from_outside_stay_text() -> None:
    """A bundle's name could run a script in the operator's browser."""
    row: dict[str, Any] = {"bundle": HOSTILE, "digest": "d", "role": "supervisor", "size": 1, "hosts": 1, "done": 1}
    row |= {"unclocked": 0, "uploaded": None}
    tables: dict[str, Any] = dict.fromkeys(EMPTY, ()) | {
        "spread": [{**row, "secs_50": 1.0, "secs_90": 1.0, "secs_100": None}],
        "curve": [{"digest": "d", "role": "supervisor", "uploaded": None, "secs": 1.0, "share": 1.0}],
        "failovers": [
            {"at": MOMENT, "epoch": 1, "previous": HOSTILE, "current": HOSTILE, "reason": HOSTILE}
            | {"vacant_secs": None, "silent_secs": None}
        ],
    }
    page = render(tables, {}, lines=1)

    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 4


def bundle_row(number: int, *, done: int, secs_100: float | None) -> dict[str, Any]:
    row = {"bundle": f"etl-{number}", "digest": f"{number:064}", "role": "supervisor", "size": 1, "hosts": 10}
    row |= {"uploaded": None}
    return row | {"done": done, "unclocked": 0, "secs_50": 1.0, "secs_90": secs_100, "secs_100": secs_100}


def test_the_page_opens_with_what_an_operator_asks() -> None:
    """With 18 of 20 bundles stuck, the page began with the time of the slowest bundle that
    arrived."""
    summary = {"role": "supervisor", "bundles": 20, "complete": 2, "incomplete": 18, "hosts": 10, "slowest_secs": 58.0}
    summary |= {"lacking": 18, "failures": 7, "from_masters": 1, "from_peers": 1, "local": 0}
    spread = [bundle_row(n, done=9 if n < 18 else 10, secs_100=None if n < 18 else 58.0) for n in range(20)]
    lack = {"bundle": "etl-0", "digest": f"{0:064}", "role": "supervisor", "node": "h9", "since": MOMENT}
    failure = {"bundle": "etl-0", "digest": f"{0:064}", "role": "supervisor", "code": "disk_full", "failures": 7}
    point = {"role": "supervisor", "uploaded": None, "secs": 1.0, "share": 0.5}
    points = [{**point, "digest": row["digest"]} for row in spread]
    told = {
        "summary": [summary],
        "spread": spread,
        "missing": [lack | {"failures": 7, "code": "disk_full", "reason": "no room"}],
        "failures": [failure | {"hosts": 1, "lacking": 1, "reason": "no room", "last": MOMENT}],
        "curve": points,
    }
    page = render({**dict.fromkeys(EMPTY, ()), **told}, {}, lines=1, unclocked=3)

    tiles = re.findall(r"<b>([^<]*)</b><span>([^<]*)</span>", page)
    assert ("18 of 20", "bundles not everywhere") == tiles[0]
    assert ("7", "failed downloads") == tiles[1]
    assert ("58 s", "slowest of the 2 bundles that are everywhere") == tiles[2]
    assert ("3", "daemons without a known clock") in tiles
    sections = re.findall(r"<h2>([^<]*)</h2>", page)
    assert ["What is not everywhere", "What failed, and why", "What is slow"] == sections[:3]
    assert "disk_full: no room" in page
    assert 'aria-label="Failed downloads by error"' in page
    assert "The picture shows the 8 newest of 20 bundles." in page
    assert "The picture shows the 12 worst of 18 bundles." in page


def test_the_page_shows_where_the_bytes_came_from() -> None:
    """An operator would not see whether the hosts fetch from each other or from the masters."""
    row: dict[str, Any] = {
        "bundle": "etl-1",
        "digest": "d",
        "role": "supervisor",
        "masters": 1,
        "peers": 3,
        "local": None,
    }
    row |= {"masters_share": 0.25, "peers_share": 0.75, "local_share": None}
    page = render({**dict.fromkeys(EMPTY, ()), "sources": [row]}, {}, lines=1)

    shown = re.findall(r"etl-1, (peers|masters|already there): (\d+)", page)
    assert [("peers", "75"), ("masters", "25")] == shown


def test_a_page_of_nothing_is_a_page() -> None:
    """The first report of a new cluster would be a stack trace."""
    page = render(dict.fromkeys(EMPTY, ()), {"duplicate": 0}, lines=0)

    assert page.count('class="none"') == 10


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """An operator's host has no PySpark, and an ImportError doesn't say what to do."""
    monkeypatch.setattr("torrentdist.spark.spark_session.find_spec", lambda name: None)

    assert 2 == main(["report", "events"])
    assert "pip install 'torrentdist[spark]'" in capsys.readouterr().err


def test_an_older_pyspark_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """With 3.5 the report would fail inside Spark, with words that no user understands."""
    monkeypatch.setattr("pyspark.version.__version__", "3.5.7")

    assert 2 == main(["report", "events"])
    assert "this command needs PySpark 4.0 or later, and 3.5.7 is installed" in capsys.readouterr().err


def test_without_java_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path) -> None:
    """The user would read only PySpark's own error, JAVA_GATEWAY_EXITED."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert 2 == main(["report", "events"])
    assert "error[java_missing]" in capsys.readouterr().err


@pytest.mark.parametrize(("make", "code"), [(False, "events_not_found"), (True, "no_events")])
def test_a_path_without_events_is_refused_before_spark_starts(
    make: bool, code: str, tmp_path: Path, capsys: Capture
) -> None:
    """A typing error would be reported after twenty seconds."""
    if make:
        (tmp_path / "in").mkdir()
    assert 3 == main(["report", str(tmp_path / "in"), "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err

    assert f"error[{code}]" in said
    assert "starting Spark" not in said
    assert not (tmp_path / "out").exists()


@pytest.fixture
def one_event(tmp_path: Path) -> str:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "_events-h1-1.jsonl").write_text("{}\n")
    return str(tmp_path / "in")


def test_a_directory_that_holds_something_else_is_refused(one_event: str, tmp_path: Path, capsys: Capture) -> None:
    """`--out ~/results` deleted a user's files in ~/results/tables."""
    (tmp_path / "out" / "tables").mkdir(parents=True)
    (tmp_path / "out" / "tables" / "mine").write_text("mine")
    assert 9 == main(["report", one_event, "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err

    assert "error[not_a_report]" in said
    assert "starting Spark" not in said
    assert "mine" == (tmp_path / "out" / "tables" / "mine").read_text()


def test_an_out_that_cannot_be_written_is_no_bug_of_ours(one_event: str, capsys: Capture) -> None:
    """The user would be asked to report a bug, although only a permission is missing."""
    assert 8 == main(["report", one_event, "--out", "/proc/torrentdist-report"])
    assert "error[disk_error]: /proc/torrentdist-report" in capsys.readouterr().err


def test_a_new_report_deletes_only_what_an_earlier_one_wrote(tmp_path: Path) -> None:
    """Notes beside a page, or a file among the tables, would be gone after the next report."""
    directory = ReportDirectory(tmp_path / "out")
    directory.claim()

    def publish(*names: str) -> None:
        with directory.work() as work:
            for name in (*names, "report.html"):
                (work / name).parent.mkdir(parents=True, exist_ok=True)
                (work / name).write_text("made")
            directory.publish(work)

    publish("tables/spread/part-0.parquet", "tables/old/part-0.parquet")
    for mine in ("notes.txt", "tables/spread/mine.parquet"):
        (tmp_path / "out" / mine).write_text("mine")
    directory.claim()
    publish("tables/spread/part-1.parquet")

    left = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    expected = {"notes.txt", "report.html", "torrentdist-report.json", "tables/spread/mine.parquet"}
    assert expected | {"tables/spread/part-1.parquet"} == left
    assert not (tmp_path / "out" / "tables" / "old").exists()


def test_files_that_daemons_still_write_are_found(tmp_path: Path) -> None:
    """The last minutes of a running cluster would be missing."""
    for name in (
        "a/events-h1-1.jsonl",
        "a/_events-h1-2.jsonl",
        "b/_events-h2-1.jsonl",
        "b/_other.jsonl",
        "_x/events-1.jsonl",
    ):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(f"{name}\n")
    source = find_events(f"{tmp_path}/in/*", {})
    found = source.snapshot(tmp_path / "open")
    (tmp_path / "in" / "b" / "_events-h2-1.jsonl").unlink()  # closed or shipped meanwhile

    assert [str(tmp_path / "open")] == found
    assert {"a/_events-h1-2.jsonl\n", "b/_events-h2-1.jsonl\n"} == {
        p.read_text() for p in (tmp_path / "open").iterdir()
    }
    assert all(path.name[0] not in "_." for path in (tmp_path / "open").iterdir())


@pytest.mark.parametrize(
    ("path", "settings"),
    [("s3a://bucket/events", {}), ("/events/{a,b}", {}), ("/events", {"spark.hadoop.fs.defaultFS": "hdfs://nn"})],
)
def test_what_only_spark_can_reach_is_left_to_it(path: str, settings: dict[str, str]) -> None:
    """A path on HDFS would be refused because this host has no such directory."""
    assert find_events(path, settings).size() is None


@pytest.mark.parametrize("words", [("--conf", "executor.memory=1g"), ("--every", "soon")])
def test_wrong_options_are_found_before_spark_starts(words: tuple[str, str], tmp_path: Path, capsys: Capture) -> None:
    """A wrong option would be reported after ten seconds."""
    assert 2 == main(["report", str(tmp_path), *words])
    assert "error[usage]" in capsys.readouterr().err


def test_a_report_that_is_followed_is_not_written_over(tmp_path: Path, capsys: Capture) -> None:
    """One report of something else would hide what weeks of --follow have collected."""
    (tmp_path / "out" / "checkpoint").mkdir(parents=True)
    (tmp_path / "events-1.jsonl").write_text("{}\n")

    assert 2 == main(["report", str(tmp_path), "--out", str(tmp_path / "out")])
    assert "choose another --out" in capsys.readouterr().err
