"""The one place that writes to stdout and stderr.

Always: text from outside, such as a file name, an id, a message or a job's output, is made
printable first. Data reaches programs and files unchanged, and terminals without control
characters.
Never: decide what is written.
"""

import os
import sys

import click

from torrentdist.model.wording import printable

_NARROWEST = 30
_USUAL = 80
"""Width to assume for a terminal that does not know its size."""


def put(text: str) -> None:
    """Writes lines for people to stdout."""
    click.echo(printable(text, keep="\n"))


def put_data(data: bytes) -> None:
    """Writes JSON to stdout: unchanged for a program, and in \\u escapes for a terminal."""
    click.echo(_escaped(data.decode()) if sys.stdout.isatty() else data)


def put_output(prefix: str, line: bytes) -> None:
    """Writes a line of a job's output to stdout, unchanged for a program. A terminal shows its
    control characters and does not obey them."""
    if sys.stdout.isatty():
        click.echo(prefix + printable(line.decode(errors="backslashreplace"), keep="\t"))
    else:
        click.echo(prefix.encode() + line)


def put_value(value: str) -> None:
    """Writes one value to stdout; unchanged for a program, since it may be a path that is not valid
    Unicode.
    """
    click.echo(printable(value, keep="\n") if sys.stdout.isatty() else os.fsencode(value))


def say(text: str, *, label: str = "", color: str = "") -> None:
    """Writes a sentence to stderr. Its further lines are indented, so that none looks like a
    sentence of ours."""
    told = printable(text, keep="\n").replace("\n", "\n  ")
    click.echo(f"{click.style(label, fg=color or None, bold=color == 'red')} {told}" if label else told, err=True)


def say_all(text: str) -> None:
    """Writes lines to stderr as they are laid out, such as a traceback."""
    click.echo(printable(text, keep="\n"), err=True, nl=False)


def say_help(text: str) -> None:
    """Writes one of our own help pages to stderr."""
    click.echo(text, err=True)


def width() -> int | None:
    """Returns the width of the terminal in columns, or None if stdout is a file or a program, which
    gets everything."""
    if not sys.stdout.isatty():
        return None
    named = os.environ.get("COLUMNS", "")
    found = int(named) if named.isascii() and named.isdigit() else os.get_terminal_size(sys.stdout.fileno()).columns
    return max(_NARROWEST, found or _USUAL)


def _escaped(json: str) -> str:
    """Returns the same JSON in printable characters."""
    if json.isprintable():
        return json
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in json)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
