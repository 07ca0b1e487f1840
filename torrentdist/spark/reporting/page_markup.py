"""What the sections of the report's page are made of: text, a table, and how values are written.

Always: text from outside is escaped. A page shows the first rows of a table; the Parquet files
have all of them.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from torrentdist.charts.quantities import seconds

Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row]]
"""Rows of every table, by its name."""
Columns = Sequence[tuple[str, Callable[[Row], str]]]
"""Headings, and what stands below them for a row."""
MOST_ROWS_SHOWN = 100
FEW_ROWS = 12
"""Most rows of a table that is shown unfolded."""
SENTENCE = 40
"""Longer texts are taken for sentences, and may be broken into lines. Values never are."""


def section(title: str, text: str, plot: str, rows: str, none: str = "Nothing of the kind happened.") -> str:
    """Returns a section of the page. `plot` and `rows` are markup. `none` is the text if both are
    empty."""
    content = plot + rows or f'<p class="none">{escape(none)}</p>'
    return f"<section><h2>{escape(title)}</h2><p>{escape(text)}</p>{content}</section>"


def row_table(columns: Columns, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name, _ in columns)
    shown = ("".join(_cell(cell(row)) for _, cell in columns) for row in rows[:MOST_ROWS_SHOWN])
    body = "".join(f"<tr>{cells}</tr>" for cells in shown)
    left = len(rows) - MOST_ROWS_SHOWN
    more = f"<p>{left:,} more are in the Parquet table.</p>" if left > 0 else ""
    inside = f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'
    number = f"{len(rows):,} rows" if len(rows) > 1 else "1 row"
    is_open = " open" if len(rows) <= FEW_ROWS else ""
    return f"<details{is_open}><summary>{number}</summary>{inside}</details>"


def _cell(text: str) -> str:
    return f"<td{' class=text' if len(text) > SENTENCE else ''}>{escape(text)}</td>"


def drawn_note(drawn: int, total: int, which: str, what: str) -> str:
    """Returns a sentence that says what the chart leaves out; empty if it leaves out nothing."""
    return f" The picture shows the {drawn:,} {which} of {total:,} {what}." if drawn < total else ""


def fleet_rows(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows of supervisors or, where there are none, those of masters."""
    return [row for row in rows if row["role"] == "supervisor"] or list(rows)


def bundle_name(row: Row) -> str:
    return str(row["bundle"] or row["digest"][:12])


def duration(value: float | None) -> str:
    return "–" if value is None else seconds(value)


def moment(at: datetime.datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"
