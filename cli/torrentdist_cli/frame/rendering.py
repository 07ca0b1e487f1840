"""Writes results to stdout: one value for --quiet, JSON with promised keys, or a table for
people. It also writes amounts for people, and reads them from options.

Always: numbers are plain in JSON, and have units in tables. The error for a refused input names
the accepted forms.
Never: write progress, logs or errors, which go to stderr.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from torrentdist.api.human_units import duration as duration
from torrentdist.api.human_units import percent as percent
from torrentdist.api.human_units import rate as rate
from torrentdist.api.human_units import size as size
from torrentdist.model.policies.written_amounts import parse_duration, parse_share, parse_size
from torrentdist_cli.frame import terminal
from torrentdist_cli.frame.command import OutputFormat, Session
from torrentdist_cli.frame.table_layout import pairs as pairs_of
from torrentdist_cli.frame.table_layout import table as table_of

if TYPE_CHECKING:
    from torrentdist.model.wire.transfer_messages import Sources

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


def unicode_path(path: str | os.PathLike[str]) -> str:
    """Returns the path as valid Unicode, as JSON needs it. An invalid byte becomes U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")


if TYPE_CHECKING:  # generic in the stubs of new releases only
    _ParamType = click.ParamType[float]
else:
    _ParamType = click.ParamType


class _Parsed(_ParamType):
    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as exc:
            self.fail(f"{value!r}: {exc}", param, ctx)


DURATION = _Parsed("duration", parse_duration)
SHARE = _Parsed("share", parse_share)
SIZE = _Parsed("size", parse_size)


def origins(sources: Sources) -> str:
    """Formats the sources of a transfer: `1.0 GiB from masters, 3.0 GiB from peers`."""
    parts = {
        "from masters": sources.masters,
        "from peers": sources.peers,
        "from the plug-in": sources.plugin,
        "already here": sources.local,
    }
    return ", ".join(f"{size(count)} {where}" for where, count in parts.items() if count) or "nothing moved"
