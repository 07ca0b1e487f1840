"""The one place that writes to stdout and stderr.

Always: text from outside is made printable first, be it a file name, an id or a message. JSON goes
out unchanged.
Never: it decides what is said.
"""

from __future__ import annotations

import os
import sys

import click

from torrentdist.model.wording import printable

_NARROWEST = 30
_USUAL = 80
"""Columns of a terminal that doesn't know its size."""


def put(text: str) -> None:
    """Writes lines for people to stdout."""
    click.echo(printable(text, keep="\n"))


def put_data(data: bytes) -> None:
    """Writes data for a program to stdout, unchanged."""
    click.echo(data)


def put_value(value: str) -> None:
    """Writes one value to stdout; unchanged for a program, since it may be a path that is not valid
    Unicode.
    """
    click.echo(printable(value, keep="\n") if sys.stdout.isatty() else os.fsencode(value))


def say(text: str, *, label: str = "", color: str = "") -> None:
    """Writes a sentence to stderr. Its further lines are indented, so that none passes for a
    sentence of ours.
    """
    told = printable(text, keep="\n").replace("\n", "\n  ")
    click.echo(f"{click.style(label, fg=color or None, bold=color == 'red')} {told}" if label else told, err=True)


def say_help(text: str) -> None:
    """Writes one of our own help pages to stderr."""
    click.echo(text, err=True)


def width() -> int | None:
    """Returns the columns of the terminal; None if stdout is a file or a program, which gets
    everything.
    """
    if not sys.stdout.isatty():
        return None
    named = os.environ.get("COLUMNS", "")
    found = int(named) if named.isascii() and named.isdigit() else os.get_terminal_size(sys.stdout.fileno()).columns
    return max(_NARROWEST, found or _USUAL)
