"""`torrentdist ha`: shows and changes which master leads."""

import time
from collections.abc import Sequence
from typing import TypeVar

import click

from torrentdist.model.ids import master_id
from torrentdist.model.wire.ha_views import FailoverView, RoleView
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command, Group, Lazy, Session, dry_run_option
from torrentdist_cli.frame.rendering import duration, facts, grid, show, show_all
from torrentdist_cli.shell.candidates import master_ids

T = TypeVar("T")


COMMANDS = {
    "init": Lazy("cluster.backup_commands", "Found a cluster in ZooKeeper, once."),
    "backup": Lazy("cluster.backup_commands", "Write every record of the cluster into a file."),
    "restore": Lazy("cluster.backup_commands", "Bring a backup's records back into an empty ZooKeeper."),
}


@click.group(cls=Group, lazy=COMMANDS)
def ha() -> None:
    """See and steer the masters' high availability."""


@ha.command(cls=Command)
def leader(session: Session) -> None:
    """Show the leader; exit 5 while an election is in progress.

    While ZooKeeper is away, the last known leader is shown and marked as such (in JSON:
    stale_secs).

    With -q: the id of the leader.
    """
    view = ask_masters(session, lambda client: client.leader())
    led = duration(max(0.0, time.time() - view.since))
    pairs = [("leader", view.leader), ("epoch", str(view.epoch)), ("leads for", led)]
    if view.stale_secs is not None:
        age = f"{duration(view.stale_secs)} ago, when ZooKeeper was seen last; without it nobody leads for long"
        pairs = [("last leader", view.leader), ("epoch", str(view.epoch)), ("as of", age)]
    show(session, view, value=view.leader, table=lambda: facts(pairs))


@ha.command(cls=Command)
def roles(session: Session) -> None:
    """Show what every master says about itself: state, epoch, number of bundles that it lacks,
    version.

    With -q: their ids.
    """
    views = ask_masters(session, lambda client: client.roles())
    show_all(session, views, value=lambda view: view.id, table=lambda: _roles_table(views))


@ha.command(cls=Command)
@click.option(
    "-n", "count", type=click.IntRange(1, 1000), default=10, show_default=True, help="Number of changes to show."
)
def failovers(session: Session, count: int) -> None:
    """Show the last changes of leader and their reasons, newest first.

    With -q: the ids of the leaders.
    """
    views = ask_masters(session, lambda client: client.failovers(count))
    show_all(session, views, value=lambda view: view.current, table=lambda: _failovers_table(views))


@ha.command(cls=Command)
@click.argument("master", shell_complete=master_ids)
@dry_run_option
def transfer(session: Session, master: str) -> None:
    """Hand leadership to MASTER; exit 3 if there is no such master, 5 if it is not ready to lead.

    With -q: the id of the leader.
    """
    target = master_id(master)
    view = ask_masters(session, lambda client: client.transfer(target))
    after = session.told(f"leads, after {duration(view.seconds)}", "would lead")
    show(session, view, value=view.leader, table=lambda: f"{view.leader} {after}")


def _roles_table(views: Sequence[RoleView]) -> str:
    return grid(
        ("MASTER", "STATE", "READY", "EPOCH", "LAG", "VERSION", "WHY NOT"),
        [
            (
                view.id,
                view.state.value,
                "yes" if view.ready else "no",
                "?" if view.epoch is None else str(view.epoch),
                "?" if view.lag is None else str(view.lag),
                view.version,
                "; ".join(f"{check}: {why}" for check, why in view.failing.items()),
            )
            for view in views
        ],
        right=("EPOCH", "LAG"),
    )


def _failovers_table(views: Sequence[FailoverView]) -> str:
    return grid(
        ("AT", "PREVIOUS", "CURRENT", "REASON"),
        [
            (
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.at)),
                view.previous or "",
                view.current,
                view.reason,
            )
            for view in views
        ],
    )
