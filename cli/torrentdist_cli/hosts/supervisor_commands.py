"""`torrentdist supervisor`: the supervisor daemon, and commands about all supervisors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from torrentdist_cli.frame.command import Command, Group, Session, dry_run_option
from torrentdist_cli.hosts.daemon_start import start
from torrentdist_cli.shell.candidates import supervisor_ids

if TYPE_CHECKING:
    from torrentdist.client.masters.master_client import MasterClient
    from torrentdist.model.ids import SupervisorId


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def supervisor(ctx: click.Context) -> None:
    """Run this host's supervisor, or list all supervisors.

    `torrentdist supervisor --config FILE` runs the daemon, in the foreground, until SIGTERM or
    Ctrl-C.
    """
    if ctx.invoked_subcommand is None:
        start(ctx.ensure_object(Session), "supervisor")


@supervisor.command(cls=Command)
def ls(session: Session) -> None:
    """List the supervisors that are up, and in the table those that are gone.

    Where bundles share blocks on a disk, SIZE is that of a host's bundles, and OWN the part of them
    that shares none.

    With -q: their ids.
    """
    from torrentdist_cli.cluster.cluster_command import supervisors_table
    from torrentdist_cli.frame.asking_masters import ask_masters
    from torrentdist_cli.frame.rendering import show_all

    view = ask_masters(session, lambda client: client.cluster())
    show_all(session, view.supervisors, value=lambda row: row.id, table=lambda: supervisors_table(view))


@supervisor.command(cls=Command)
@click.argument("id", shell_complete=supervisor_ids)
@dry_run_option
def drain(session: Session, id: str) -> None:
    """Assign no more workers to a supervisor, and move its workers away. Its bundles stay.

    With -q: its id.
    """
    from torrentdist.client import job_client

    _steer(session, id, job_client.drain, session.told("drains", "would drain"))


@supervisor.command(cls=Command)
@click.argument("id", shell_complete=supervisor_ids)
@dry_run_option
def undrain(session: Session, id: str) -> None:
    """Assign workers to a drained supervisor again.

    With -q: its id.
    """
    from torrentdist.client import job_client

    _steer(session, id, job_client.undrain, session.told("takes workers again", "would take workers again"))


def _steer(
    session: Session, text: str, act: Callable[[MasterClient, SupervisorId], Awaitable[None]], sentence: str
) -> None:
    from torrentdist.model.ids import supervisor_id
    from torrentdist_cli.frame.asking_masters import ask_masters
    from torrentdist_cli.frame.rendering import show

    name = supervisor_id(text)
    ask_masters(session, lambda client: act(client, name))
    show(session, {"id": name}, value=name, table=lambda: f"{name} {sentence}")
