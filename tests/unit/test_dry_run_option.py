"""Every command that changes something can say first what it would do."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from torrentdist_cli.main import cli

READS = {
    "audit", "bundle diff", "bundle distributions", "bundle history", "bundle ls", "bundle show",
    "bundle verify", "bundle wait", "cluster", "completion", "config show",
    "dev status", "doctor", "group identity", "group ls", "group show", "ha failovers", "ha leader", "ha roles", "help",
    "host ls", "image ls", "job logs", "job ls", "job show", "supervisor ls", "token ls", "top",
    "whoami",
}  # fmt: skip
WITHOUT = {
    "ca init": "it writes new files into a directory, and refuses one that has them",
    "ca issue": "it writes new files, and refuses to replace any",
    "csi": "it is a daemon",
    "dev down": "it ends what `dev status` shows",
    "dev up": "it makes a cluster in a directory of its own",
    "ha backup": "it writes one file, and changes nothing of the cluster",
    "host join": "it may be run again, and the same invitation gives the same certificate",
    "key generate": "it writes a new file, and refuses to replace one",
    "master": "it is a daemon",
    "spark-submit": "its --print shows the command and runs nothing",
    "unpack": "it makes a new directory, and refuses to replace one",
    "report": "it writes pages about a log, and changes nothing of the cluster",
}
"""Commands that write or run something and have no --dry-run, each with the reason."""


def commands(command: click.Command, ctx: click.Context, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    for each in command.list_commands(ctx):
        found = command.get_command(ctx, each)
        assert found is not None
        yield from commands(found, click.Context(found, info_name=each, parent=ctx), f"{name} {each}".strip())


@pytest.fixture(scope="module")
def all_commands() -> dict[str, click.Command]:
    return dict(commands(cli, click.Context(cli, info_name="torrentdist")))


def test_what_changes_something_has_a_dry_run(all_commands: dict[str, click.Command]) -> None:
    """If this fails, a new command can only be tried by making its change. Add @dry_run_option, or
    say in one of the tables above why it needs none."""
    dry = {name for name, command in all_commands.items() if any("--dry-run" in p.opts for p in command.params)}

    assert all_commands.keys() - READS - WITHOUT.keys() == dry


def test_the_tables_name_commands_that_exist(all_commands: dict[str, click.Command]) -> None:
    """If this fails, a renamed command is excused for nothing."""
    assert READS | WITHOUT.keys() <= all_commands.keys()
