"""The lab's rows and picture, and the moment at which a holder may leave."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.lab.namespaces import Host
from bench.swarm.cases import CASES, By
from bench.swarm.measured import ComparedRun, MeasuredCase
from bench.swarm.picture import picture
from bench.swarm.scenario import Outcome, Scenario
from bench.swarm.story import CHUNK, OneCopyOut
from bench.swarm.swarm_results import keep, page
from bench.swarm.table import ROWS, make, renew, turns
from bench.swarm.watch import Watch

ROW = {"what": "w", "by": "T", "each": [1.3], "seeder_copies": 1.0, "peers": {}, "failed": []}
CONDITIONS = {"cores": "2", "load before": "0.1"}


def outcome(ends: dict[str, float], **more: Any) -> Outcome:
    progress = {host: [(0.0, 0.0), (end / 2, 0.5)] for host, end in ends.items()}
    return Outcome(
        starts=dict.fromkeys(ends, 0.0), ends=ends, seeder_copies=1.0, received_copies=1.0, progress=progress, **more
    )


def test_a_missed_bar_is_shown_as_missed() -> None:
    """The page would claim a result that was not reached."""
    row = {**ROW, "bar": 1.2, "measured": 1.3, "met": False, "conditions": CONDITIONS}

    assert "| ≤ 1.2 T | 1.30 T | **missed** |" in page({"main": row})


@pytest.mark.parametrize(
    ("key", "ours", "measured"),
    [
        ("main", outcome({"a": 11.0, "b": 12.0}), 1.2),
        ("apart", outcome({"a": 11.0, "b": 12.5}), 1.25),
        ("killed", outcome({"a": 11.0}), 11 / 8),
        ("tls", outcome({"a": 11.0}), 11 / 8),
        ("slow", outcome({"a": 88.0, "b": 8.8}, aside=("a",)), 1.1),
    ],
)
def test_a_case_is_measured_by_what_its_bar_says(key: str, ours: Outcome, measured: float) -> None:
    """A bar would be compared with another measure than its own."""
    found = CASES[key].measured(ours, outcome({"a": 8.0}), link_time=10.0)

    assert found == pytest.approx(measured)


def test_a_run_in_which_somebody_is_not_done_has_not_met_its_bar() -> None:
    """The quick hosts would hide one that waits for ever."""
    case = CASES["leaving"]

    assert case.by is By.LINK
    assert case.met(outcome({"a": 8.0}), 0.8)
    assert not case.met(outcome({"a": 8.0}, failed=("b",)), 0.8)


def test_the_picture_has_a_line_for_every_host_of_every_contender() -> None:
    """The picture would leave out the host that hung."""
    drawn = ET.fromstring(
        picture("16 hosts <&>", {"ours": outcome({"a": 8.0}), "x": outcome({"a": 8.0, "b": 9.0})}, 8.0)
    )

    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}polyline"))) == 3


def test_one_copy_is_out_when_every_part_lies_on_some_host(tmp_path: Path) -> None:
    """The holder would leave with the only copy of a piece, and the swarm could never finish."""
    source, one, other = (tmp_path / name for name in ("source", "one", "other"))
    parts = [bytes([number]) * CHUNK for number in range(1, 4)]
    source.write_bytes(b"".join(parts))
    one.write_bytes(parts[0] + bytes(CHUNK) + parts[2])
    holder = SimpleNamespace(sent=iter([0, 3 * CHUNK, 3 * CHUNK]).__next__)
    out = OneCopyOut(source, lambda: [path for path in (one, other) if path.exists()], [cast(Host, holder)])
    before = out(cast(Watch, SimpleNamespace(ends={}, now=lambda: 1.0)))
    other.write_bytes(bytes(CHUNK) + parts[1])

    assert before is False
    assert out(cast(Watch, SimpleNamespace(ends={}, now=lambda: 2.0))) is True


def test_each_run_is_measured_by_what_ran_beside_it_and_the_median_counts(tmp_path: Path) -> None:
    """A quick base of one run would make another look slow, and one outlier would decide a row."""
    pairs = [(8.0, 10.0), (10.0, 11.0), (8.0, 20.0)]
    for number, (base, ours) in enumerate(pairs, 1):
        run = ComparedRun(link_time=10.0, ours=outcome({"a": ours}), base=outcome({"a": base}), load=0.5)
        keep(tmp_path / f"killed-{number}.json", [run])
    renew(tmp_path, "killed", rows=tmp_path, pictures=tmp_path / "pictures")
    row = json.loads((tmp_path / "swarm.json").read_text())["killed"]

    assert [1.25, 1.1, 2.5] == row["each"]
    assert (1.25, False) == (row["measured"], row["met"])
    assert [1.0, 1.1, 2.0] == row["ratios"]
    assert (tmp_path / "pictures" / "killed.svg").exists()


def test_a_run_in_which_nobody_is_done_is_shown(tmp_path: Path) -> None:
    """The row would be missing, and the previous one would stay for ever."""
    nobody = ComparedRun(link_time=10.0, ours=outcome({}, failed=("a",)), peers={"stock": outcome({}, failed=("a",))})
    row = {**MeasuredCase(CASES["main"], [nobody]).row(), "conditions": CONDITIONS}

    assert "| nobody is done; 1 not done | **missed** |" in page({"main": json.loads(json.dumps(row))})


def test_a_table_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """A lock that was not free would cost an hour's work."""
    keep(tmp_path / "run", [ComparedRun(link_time=10.0, ours=outcome({"a": 11.0}))])
    through = tmp_path / "through"
    through.write_text(
        f"#!/bin/sh\necho >>{tmp_path}/calls\nfor out; do :; done\n"
        f'case $out in *main-2*) [ -e {tmp_path}/mended ] || exit 1;; esac\ncp {tmp_path}/run "$out"\n'
    )
    through.chmod(0o755)
    calls = []
    codes = []
    for _ in range(2):
        codes.append(make(tmp_path / "t", ["main"], 3, str(through), rows=tmp_path, pictures=tmp_path / "p"))
        calls.append(len((tmp_path / "calls").read_text().splitlines()))
        (tmp_path / "mended").touch()

    assert [1, 0] == codes
    assert [3, 4] == calls
    assert [1.1] * 3 == json.loads((tmp_path / "swarm.json").read_text())["main"]["each"]


def test_what_empties_the_page_cache_comes_after_everything_else() -> None:
    """The commands of the next row would start half a second later, and miss their bar."""
    order = turns({"unlimited-1": 2, "main": 2, "slow": 3})

    assert [("main", 1), ("slow", 1), ("main", 2), ("slow", 2), ("slow", 3)] == order[:5]
    assert [("unlimited-1", 1), ("unlimited-1", 2)] == order[5:]


def test_the_table_has_every_row_of_the_issue() -> None:
    """A bar without a measurement would go unnoticed."""
    bars = {key: case.bar for key, case in CASES.items() if key in ROWS}

    assert {"main", "large", "crowd", "holders", "apart", "slow", "killed", "liars", "download", "tls"} == {
        key for key, bar in bars.items() if bar
    }
    assert {"leaving", "unlimited-1", "unlimited-4"} < set(ROWS)


@pytest.mark.parametrize(
    "said",
    [{"hosts": 0}, {"size": 0}, {"rate": -1.0}, {"holders": 0}, {"hosts": 1, "slow": 1}, {"tls": True, "liars": 1}],
)
def test_a_scenario_that_cannot_be_is_refused_in_words(said: dict[str, Any]) -> None:
    """A lab without hosts would end in a traceback after a minute."""
    with pytest.raises(ValueError, match=r"less than|must be left|no certificate"):
        Scenario(**said)


def test_a_host_was_done_when_its_bundle_got_its_name_however_late_anybody_looks(tmp_path: Path) -> None:
    """The lab would need to look so often that it takes processor time from the hosts."""
    watch = Watch({"a": Host("a", "127.0.0.1", "lo", "")}, 1, lambda _: tmp_path / "bundle")
    unnamed = tmp_path / "unnamed"
    unnamed.mkdir()
    time.sleep(0.2)
    unnamed.rename(tmp_path / "bundle")
    named = watch.now()
    time.sleep(0.3)
    watch.look()

    assert named - 0.1 < watch.ends["a"] < named + 0.1
