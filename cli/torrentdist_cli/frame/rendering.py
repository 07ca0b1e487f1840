"""Writes results to stdout: one value for --quiet, JSON with promised keys, or a table for people.

Always: numbers are plain in JSON, and have units in tables.
Never: write progress, logs or errors, which go to stderr.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from torrentdist_cli.frame import terminal
from torrentdist_cli.frame.invocation import OutputFormat, Session
from torrentdist_cli.frame.table_layout import pairs as pairs_of
from torrentdist_cli.frame.table_layout import table as table_of

T = TypeVar("T")


def show(session: Session, data: Any, *, value: str, table: Callable[[], str]) -> None:
    """Shows one thing: `value` with --quiet, JSON, or the result of `table`."""
    if session.value_only:
        terminal.put_value(value)
    elif session.output in (None, OutputFormat.TABLE):
        terminal.put(table())
    else:
        terminal.put_data(_json(data, indented=session.output is OutputFormat.JSON))


def show_all(session: Session, rows: Sequence[T], *, value: Callable[[T], str], table: Callable[[], str]) -> None:
    """Shows a list: with jsonl one line of JSON per item, otherwise one array."""
    if session.value_only:
        for row in rows:
            terminal.put_value(value(row))
    elif session.output is OutputFormat.JSONL:
        for row in rows:
            terminal.put_data(_json(row, indented=False))
    else:
        show(session, rows, value="", table=table)


def grid(headers: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()) -> str:
    """Returns a table. The columns named in `right` are aligned to the right."""
    return table_of(headers, rows, right, terminal.width())


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Returns names and values, one pair per line."""
    return pairs_of(pairs, terminal.width())


def _json(data: Any, *, indented: bool) -> bytes:
    encoded = msgspec.json.encode(data)
    return msgspec.json.format(encoded, indent=2) if indented else encoded
