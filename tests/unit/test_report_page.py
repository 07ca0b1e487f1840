"""The report without Spark: plots and page as functions of values, and what the command refuses at once."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from torrentdist.spark.page import render
from torrentdist.spark.plots import Bar, Curve, bar_plot, line_plot, matrix_plot, percent, seconds, size, ticks
from torrentdist_cli.main import main

EMPTY = ("spread", "curve", "sources", "slow_hosts", "racks", "failovers", "restarts", "savings", "kinds")
HOSTILE = "</svg><script>alert(1)</script>"
Capture = pytest.CaptureFixture[str]


def svg(markup: str) -> ElementTree.Element:
    found = re.search(r"<svg.*</svg>", markup, re.DOTALL)
    assert found is not None
    return ElementTree.fromstring(found[0])


@pytest.mark.parametrize("most", [0.0, 0.3, 1.0, 7.0, 9.99, 10.0, 123.0, 86400.0, 1e15])
def test_an_axis_begins_at_zero_and_holds_everything(most: float) -> None:
    """A mark beyond its axis lies, and an axis that begins elsewhere makes small differences look large."""
    found = ticks(most)

    assert 0.0 == found[0]
    assert most <= found[-1] <= max(1.0, 2 * most)
    assert 2 <= len(found) <= 8


def test_values_read_as_people_say_them() -> None:
    """An axis in raw bytes and seconds is one that nobody reads."""
    said = [size(0), size(1536), size(200 << 30), seconds(0.25), seconds(42), seconds(600), seconds(10_000)]

    assert ["0 B", "1.5 KiB", "200 GiB", "0.25 s", "42 s", "10.0 min", "2.8 h"] == said
    assert ["0%", "0.1%", "50%", "99.9%", "100%"] == [percent(share) for share in (0.0, 0.001, 0.5, 0.999, 1.0)]


def test_marks_are_inside_their_picture() -> None:
    """What is drawn outside of the picture is not seen."""
    bars = [Bar(f"host-{n}", [n * 1.5, 2.0, 0.0], "slow disk") for n in range(12)]
    plots = [
        line_plot([Curve("a", [(1.0, 0.5), (63.0, 1.0)])], x_label="x", y_label="y", title="t"),
        bar_plot(bars, ("a", "b", "c"), form=seconds, x_label="x", title="t"),
        bar_plot([Bar("b", [3e9])], ("bytes",), form=size, x_label="x", title="t"),
        matrix_plot({(f"r{a}", f"r{b}"): 1.0 for a in range(9) for b in range(9)}, form=size, title="t"),
    ]
    outside = []
    for plot in map(svg, plots):
        _, _, width, height = map(float, plot.attrib["viewBox"].split())
        for mark in plot.iter("rect"):
            x, y, w, h = (float(mark.attrib[name]) for name in ("x", "y", "width", "height"))
            outside += [mark.attrib] if x < 0 or y < 0 or x + w > width or y + h > height else []

    assert not outside


def test_names_from_outside_stay_text() -> None:
    """A bundle's name could run a script in the operator's browser."""
    moment = datetime.datetime(2026, 1, 1)
    row: dict[str, Any] = {"bundle": HOSTILE, "digest": "d", "role": "supervisor", "size": 1, "hosts": 1, "done": 1}
    tables: dict[str, Any] = dict.fromkeys(EMPTY, ()) | {
        "spread": [{**row, "secs_50": 1.0, "secs_90": 1.0, "secs_100": None}],
        "curve": [{"digest": "d", "role": "supervisor", "secs": 1.0, "share": 1.0}],
        "failovers": [
            {"at": moment, "epoch": 1, "previous": HOSTILE, "current": HOSTILE, "reason": HOSTILE}
            | {"vacant_secs": None, "silent_secs": None}
        ],
    }
    page = render(tables, {}, lines=1)

    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 4


def test_a_page_of_nothing_is_a_page() -> None:
    """The first report of a new cluster would be a stack trace."""
    page = render(dict.fromkeys(EMPTY, ()), {"duplicate": 0}, lines=0)

    assert page.count("Nothing of the kind happened.") == 8


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """An operator's host has no PySpark, and an ImportError doesn't say what to do."""
    monkeypatch.setattr("torrentdist.spark.session.find_spec", lambda name: None)

    assert 2 == main(["report", "events"])
    assert "pip install 'torrentdist[spark]'" in capsys.readouterr().err


def test_without_java_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path) -> None:
    """PySpark's own word for it is JAVA_GATEWAY_EXITED."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert 2 == main(["report", "events"])
    assert "error[java_missing]" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--conf", "executor.memory=1g"), ("--every", "soon")])
def test_wrong_options_are_found_before_spark_starts(words: tuple[str, str], tmp_path: Path, capsys: Capture) -> None:
    """Ten seconds of waiting for a word about a typing error."""
    assert 2 == main(["report", str(tmp_path), *words])
    assert "error[usage]" in capsys.readouterr().err


def test_a_report_that_is_followed_is_not_written_over(tmp_path: Path, capsys: Capture) -> None:
    """What weeks of --follow have gathered would be hidden by one report of something else."""
    (tmp_path / "checkpoint").mkdir()

    assert 2 == main(["report", str(tmp_path), "--out", str(tmp_path)])
    assert "choose another --out" in capsys.readouterr().err
