"""The one place where text reaches a terminal: sentences on stdout, and all that is said on stderr.

Always: what came from outside is printable by then, whatever file, id or message it is. JSON goes out as it is.
Never: decide what is said.
"""

from __future__ import annotations

import os
import sys

import click

from torrentdist.model.wording import printable

_NARROWEST = 30
_USUAL = 80
"""For a terminal that doesn't know its size."""


def put(text: str) -> None:
    """Lines for people, on stdout."""
    click.echo(printable(text, keep="\n"))


def put_data(data: bytes) -> None:
    """What a program reads, on stdout: unchanged."""
    click.echo(data)


def put_value(value: str) -> None:
    """One value on stdout: unchanged for a program, where it may be a path that is no valid Unicode."""
    click.echo(printable(value, keep="\n") if sys.stdout.isatty() else os.fsencode(value))


def say(text: str, *, label: str = "", color: str = "") -> None:
    """A sentence on stderr. What follows a line end in it is indented, so that it can't pass for another sentence."""
    told = printable(text, keep="\n").replace("\n", "\n  ")
    click.echo(f"{click.style(label, fg=color or None, bold=color == 'red')} {told}" if label else told, err=True)


def say_help(text: str) -> None:
    """A help page, which is our own, on stderr."""
    click.echo(text, err=True)


def width() -> int | None:
    """The columns of the terminal that stdout is; None for a file or a program, which gets everything."""
    if not sys.stdout.isatty():
        return None
    named = os.environ.get("COLUMNS", "")
    found = int(named) if named.isascii() and named.isdigit() else os.get_terminal_size(sys.stdout.fileno()).columns
    return max(_NARROWEST, found or _USUAL)
