"""The table of results: printed, and kept as results.json and results.md.

Always: a row says what was compared and whether its bar was met. A row without a bar is for
information.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import libtorrent as lt


@dataclass(frozen=True, kw_only=True)
class Row:
    key: str
    what: str
    ours: float
    unit: str
    reference: float | None = None
    against: str = ""
    ratio: float | None = None
    bar: float | None = None
    """The limit for the ratio, or for `ours` if there is no ratio."""
    note: str = ""

    @property
    def measured(self) -> float:
        return self.ours if self.ratio is None else self.ratio

    @property
    def met(self) -> bool | None:
        return None if self.bar is None else self.measured <= self.bar


def paired(
    key: str, what: str, pairs: Sequence[tuple[float, float]], *, against: str, bar: float | None, note: str = ""
) -> Row:
    """Makes a row from pairs of (ours, reference) in seconds, measured in turns: the median of each
    side and of the ratios."""
    ratios = sorted(ours / reference for ours, reference in pairs)
    best = min(ours for ours, _ in pairs) / min(reference for _, reference in pairs)
    spread = f"{len(pairs)} pairs, {ratios[0]:.2f}-{ratios[-1]:.2f}; of the best of each {best:.2f}"
    return Row(
        key=key,
        what=what,
        ours=statistics.median(ours for ours, _ in pairs),
        reference=statistics.median(reference for _, reference in pairs),
        unit="s",
        against=against,
        ratio=statistics.median(ratios),
        bar=bar,
        note="; ".join(filter(None, (spread, note))),
    )


def conditions(form: str) -> dict[str, str]:
    return {
        "form": form,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cores": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
        "libtorrent": lt.__version__,
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def table(rows: Sequence[Row]) -> str:
    lines = ["| what | ours | reference | ratio | bar | met | remarks |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        reference = "" if row.reference is None else f"{row.reference:.4g} {row.unit} ({row.against})"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        bar = "" if row.bar is None else f"≤ {row.bar:g}" + (f" {row.unit}" if row.ratio is None else "")
        met = {True: "yes", False: "**no**", None: ""}[row.met]
        cells = [row.what, f"{row.ours:.4g} {row.unit}", reference, ratio, bar, met, row.note]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def read(directory: Path) -> tuple[list[Row], dict[str, str]]:
    """Reads what `write` has written: the rows and the conditions."""
    document = json.loads((directory / "results.json").read_text())
    fields = Row.__dataclass_fields__
    return [Row(**{k: v for k, v in row.items() if k in fields}) for row in document["rows"]], document["conditions"]


def renewed(before: Sequence[Row], rows: Sequence[Row], circumstances: Mapping[str, str]) -> list[Row]:
    """Returns `before` with `rows` in the places of the old ones. New rows come last."""
    when = f"measured alone, {circumstances['date']}, load before {circumstances['load before']}"
    fresh = {row.key: replace(row, note="; ".join(filter(None, (row.note, when)))) for row in rows}
    return [fresh.pop(row.key, row) for row in before] + list(fresh.values())


def write(rows: Sequence[Row], circumstances: dict[str, str], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    measured = [{**asdict(row), "measured": row.measured, "met": row.met} for row in rows]
    document = {"conditions": circumstances, "rows": measured}
    (directory / "results.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    told = ", ".join(f"{key} {value}" for key, value in circumstances.items())
    text = f"""# The last results of `make bench`

Conditions: {told}. Only ratios of one run compare between machines; other work on the machine shows in absolute times.

{table(rows)}
"""
    (directory / "results.md").write_text(text)
