"""The results of all cases, kept as swarm.json, and as swarm.md for people.

Always: a case's row is its last recorded run. A missed bar is shown as missed.
Never: forget a case because another was measured.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.results import conditions

HERE = Path(__file__).parent.parent


def record(key: str, row: dict[str, Any], directory: Path = HERE) -> None:
    """Replaces the row of this case."""
    place = directory / "swarm.json"
    rows: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {}
    rows[key] = {**row, "conditions": conditions("lab")}
    place.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    (directory / "swarm.md").write_text(page(rows))


def keep(file: Path, runs: Sequence[object]) -> None:
    """Writes all runs, or none."""
    new = file.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(runs))
    new.replace(file)


def page(rows: dict[str, Any]) -> str:
    lines = [
        "# The last results of `make swarm`",
        "",
        "T is one HTTP transfer of the same bytes over one such link, in the same run; the clock runs from the command",
        "to the published directory. The column `measured` has the median, and `runs` has all runs. A case that is",
        "compared with another run has that run made in the same minutes. `make swarm SCENARIO=name` makes a row, and",
        "`python -m bench.swarm.lab_run --table DIR` makes them all.",
        "",
        "| scenario | what | bar | measured | met | runs | holders sent | for comparison | cores |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_row(key, row) for key, row in rows.items()),
    ]
    return "\n".join(lines) + "\n"


def _row(key: str, row: dict[str, Any]) -> str:
    bar = (
        "everybody finishes"
        if row["bar"] is None
        else f"{'≥' if 'speed' in row['what'] else '≤'} {row['bar']:g} {row['by']}"
    )
    measured = "nobody is done" if row["measured"] is None else f"{row['measured']:.2f} {row['by']}"
    if row["failed"]:
        measured += f"; {len(row['failed'])} not done"
    runs = ", ".join("–" if value is None else f"{value:.2f}" for value in row["each"])
    peers = "; ".join(
        (f"{name} {peer['ratio']:.2f} T" if peer["ratio"] is not None else f"{name} –")
        + (f" ({peer['failed']} not done)" if peer["failed"] else "")
        for name, peer in row["peers"].items()
    )
    copies = "" if row["seeder_copies"] is None else f"{row['seeder_copies']:.2f}"
    where = row["conditions"]["cores"]
    met = "yes" if row["met"] else "**missed**"
    return f"| {key} | {row['what']} | {bar} | {measured} | {met} | {runs} | {copies} | {peers} | {where} |"
