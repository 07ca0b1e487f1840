"""The table of measurements, and replacing single rows."""

from __future__ import annotations

from pathlib import Path

from bench.results import Row, read, renewed, write

CONDITIONS = {"form": "full", "date": "2026-01-02", "load before": "0.1"}


def row(key: str, ours: float, note: str = "") -> Row:
    return Row(key=key, what=f"what {key} is", ours=ours, unit="s", bar=2.0, note=note)


def test_a_part_is_measured_anew_and_the_rest_stays(tmp_path: Path) -> None:
    """If this fails, `--only` throws away an hour's results, or hides that its rows are from
    another day."""
    write([row("a", 1.0), row("b", 1.0, "10 runs")], {**CONDITIONS, "date": "2025-12-31"}, tmp_path)
    before, conditions = read(tmp_path)
    after = renewed(before, [row("b", 1.5, "10 runs"), row("c", 3.0)], CONDITIONS)
    alone = "measured alone, 2026-01-02, load before 0.1"

    assert "2025-12-31" == conditions["date"]
    assert [row("a", 1.0), row("b", 1.5, f"10 runs; {alone}"), row("c", 3.0, alone)] == after
