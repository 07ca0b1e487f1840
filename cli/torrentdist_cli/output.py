"""Data on stdout: one value for --quiet, JSON with promised keys, or a table for people.

Always holds: numbers are plain in JSON and human in tables. Must not do: print progress, logs or errors; those are
stderr's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from torrentdist_cli.session import Format, Session
from torrentdist_cli.text import printable

T = TypeVar("T")

_UNLIMITED_WIDTH = 100_000
"""For a table that a program or a file gets: cut nothing off."""


def show(session: Session, data: Any, *, value: str, table: Callable[[], str]) -> None:
    """One thing: `value` with --quiet, JSON, or what `table` makes of it."""
    if session.value_only:
        _echo_value(value)
    elif session.output in (None, Format.TABLE):
        click.echo(table())
    else:
        click.echo(_json(data, indented=session.output is Format.JSON))


def show_all(session: Session, rows: Sequence[T], *, value: Callable[[T], str], table: Callable[[], str]) -> None:
    """A list: one line of JSON each with jsonl, else one array."""
    if session.value_only:
        for row in rows:
            _echo_value(value(row))
    elif session.output is Format.JSONL:
        for row in rows:
            click.echo(_json(row, indented=False))
    else:
        show(session, rows, value="", table=table)


def grid(headers: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()) -> str:
    """A table; the columns named in `right` are aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, justify="right" if header in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return _rendered(table)


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Name and value, one pair a line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, Text(printable(value)))
    return _rendered(table)


def _rendered(table: Any) -> str:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else _UNLIMITED_WIDTH)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _json(data: Any, *, indented: bool) -> bytes:
    encoded = msgspec.json.encode(data)
    return msgspec.json.format(encoded, indent=2) if indented else encoded


def _echo_value(value: str) -> None:
    # As bytes: a path may hold what is no valid Unicode.
    click.echo(os.fsencode(value))
