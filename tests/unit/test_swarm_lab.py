"""What the lab makes of what it saw: the rows that it keeps, the picture, and when a holder may leave."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.lab import Host
from bench.swarm_cases import CASES, By
from bench.swarm_picture import picture
from bench.swarm_results import page
from bench.swarm_scenario import Outcome
from bench.swarm_story import CHUNK, OneCopyOut
from bench.swarm_watch import Watch

ROW = {"what": "w", "by": "T", "each": [1.3], "seeder_copies": 1.0, "peers": {}, "failed": []}
CONDITIONS = {"cores": "2", "load before": "0.1"}


def outcome(ends: dict[str, float], **more: Any) -> Outcome:
    progress = {host: [(0.0, 0.0), (end / 2, 0.5)] for host, end in ends.items()}
    return Outcome(
        starts=dict.fromkeys(ends, 0.0), ends=ends, seeder_copies=1.0, received_copies=1.0, progress=progress, **more
    )


def test_a_missed_bar_is_shown_as_missed() -> None:
    """The page would claim what was not reached."""
    row = {**ROW, "bar": 1.2, "measured": 1.3, "met": False, "conditions": CONDITIONS}

    assert "| ≤ 1.2 T | 1.30 T | **missed** |" in page({"main": row})


@pytest.mark.parametrize(
    ("key", "ours", "measured"),
    [
        ("main", outcome({"a": 11.0, "b": 12.0}), 1.2),
        ("apart", outcome({"a": 11.0, "b": 12.5}), 1.25),
        ("killed", outcome({"a": 11.0}), 11 / 8),
        ("slow", outcome({"a": 88.0, "b": 8.8}, aside=("a",)), 1.1),
    ],
)
def test_a_case_is_measured_by_what_its_bar_says(key: str, ours: Outcome, measured: float) -> None:
    """A bar would be held against something else than the issue says."""
    found = CASES[key].measured(ours, outcome({"a": 8.0}), link_time=10.0)

    assert found == pytest.approx(measured)


def test_a_run_in_which_somebody_is_not_done_has_not_met_its_bar() -> None:
    """The quick ones would hide one that waits for ever."""
    case = CASES["leaving"]

    assert case.by is By.LINK
    assert case.met(outcome({"a": 8.0}), 0.8)
    assert not case.met(outcome({"a": 8.0}, failed=("b",)), 0.8)


def test_the_picture_has_a_line_for_every_host_of_every_contender() -> None:
    """The host that hung would be the one that is left out."""
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
