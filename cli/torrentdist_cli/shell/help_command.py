"""`torrentdist help`: the help of a command, or a topic that concerns all commands."""

import click

from torrentdist_cli.frame.command import Command, Session
from torrentdist_cli.frame.terminal import put
from torrentdist_cli.shell.help_topics import TOPICS


@click.command(name="help", cls=Command)
@click.argument("topic", metavar="TOPIC|COMMAND", nargs=-1)
def help_command(_: Session, topic: tuple[str, ...]) -> None:
    """Explain exit-codes, config or formats, or show the help of a command."""
    if len(topic) == 1 and topic[0] in TOPICS:
        put(TOPICS[topic[0]])
        return
    root = click.get_current_context().find_root()
    found, command = root, root.command
    for name in topic:
        inner = command.get_command(found, name) if isinstance(command, click.Group) else None
        if inner is None:
            raise click.UsageError(f"there is no topic or command {' '.join(topic)!r}; topics: {', '.join(TOPICS)}")
        found, command = click.Context(inner, info_name=name, parent=found), inner
    put(command.get_help(found))
    if not topic:
        put(f"\nTopics of `torrentdist help`: {', '.join(TOPICS)}")
