"""Writes a manual page for each command, from the command itself, into a directory.

Usage: man_pages.py DIR
Always: the pages depend on our code and its version only, so that two builds are alike.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

import torrentdist
from torrentdist_cli.frame.command import SHARED_NAMES
from torrentdist_cli.main import cli
from torrentdist_cli.shell.help_topics import EXIT_CODES

Named = tuple[tuple[str, ...], click.Command]
FILES = (
    ("./torrentdist.toml", "The configuration of a directory; see `torrentdist help config` for all places."),
    ("/etc/torrentdist/torrentdist.toml", "The configuration of the host."),
)


def commands(command: click.Command, names: tuple[str, ...]) -> Iterator[Named]:
    """Yields a command and all commands below it, with the words that name each."""
    yield names, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from commands(inner, (*names, name))


def page(names: tuple[str, ...], command: click.Command) -> str:
    """Returns one page in the man macros."""
    title, version = "-".join(names), torrentdist.__version__
    first, *rest = (" ".join(text.split()) for text in inspect.cleandoc(command.help or "").split("\n\n"))
    own = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    lines = [
        f'.TH "{title.upper()}" "1" "" "torrentdist {version}" "torrentdist"',
        *section("NAME", [f"{title} \\- {text(lowered(first))}"]),
        *section("SYNOPSIS", [f".B {text(' '.join(names))}", text(usage(command))]),
        *section("DESCRIPTION", paragraphs([first, *rest])),
        *section("OPTIONS", entries(map(option, (each for each in own if each.name not in SHARED_NAMES)))),
        *section("OPTIONS OF EVERY COMMAND", entries(map(option, (o for o in own if o.name in SHARED_NAMES)))),
    ]
    if isinstance(command, click.Group):
        below = [(names_of, inner) for names_of, inner in commands(command, names) if len(names_of) == len(names) + 1]
        shown = ((f"{'-'.join(each)}(1)", inner.get_short_help_str(200)) for each, inner in below)
        lines += section("COMMANDS", entries(shown))
    codes = ((str(code), meaning) for code, meaning in EXIT_CODES.items())
    lines += section("EXIT STATUS", entries(codes))
    lines += section("FILES", entries(FILES))
    above = [names[:-1]] if len(names) > 1 else []
    return "\n".join([*lines, *section("SEE ALSO", [f".BR {'-'.join(each)} (1)" for each in above])]) + "\n"


def usage(command: click.Command) -> str:
    arguments = [
        param.make_metavar(click.Context(command)) for param in command.params if param.param_type_name == "argument"
    ]
    return " ".join(["[OPTIONS]", *arguments, *(["COMMAND"] if isinstance(command, click.Group) else [])])


def option(given: click.Option) -> tuple[str, str]:
    """Returns an option as it is written, and what it means."""
    record = given.get_help_record(click.Context(cli))
    assert record is not None
    return record[0], " ".join(record[1].split())


def section(title: str, lines: Iterable[str]) -> list[str]:
    found = list(lines)
    return [f'.SH "{title}"', *found] if found else []


def paragraphs(texts: Iterable[str]) -> list[str]:
    return [line for each in texts for line in (".PP", text(each))]


def entries(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [line for name, meaning in pairs for line in (".TP", f"\\fB{text(name)}\\fR", text(meaning))]


def text(plain: str) -> str:
    """Returns a text in which roff finds no commands. A leading dot or quote would be one."""
    escaped = plain.replace("\\", "\\(rs").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    return re.sub(r"^\.", r"\\&.", escaped)


def lowered(sentence: str) -> str:
    """Returns a sentence as the NAME section wants it."""
    return (sentence[:1].lower() + sentence[1:]).rstrip(".")


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("torrentdist*.1"):
        old.unlink()
    for names, command in commands(cli, ("torrentdist",)):
        (directory / f"{'-'.join(names)}.1").write_text(page(names, command), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
