"""`torrentdist supervisor`: the supervisor daemon, and the list of all supervisors."""

from __future__ import annotations

import click

from torrentdist_cli.command import Command, Group
from torrentdist_cli.daemon import start
from torrentdist_cli.session import Session


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def supervisor(ctx: click.Context) -> None:
    """Run this host's supervisor, or list them all.

    `torrentdist supervisor --config FILE` runs the daemon, in the foreground, until SIGTERM or Ctrl-C.
    """
    if ctx.invoked_subcommand is None:
        start(ctx, "torrentdist.supervisor.daemon")


@supervisor.command(cls=Command)
@click.pass_obj
def ls(session: Session) -> None:
    """List the supervisors that are up.

    With -q: their ids.
    """
    from torrentdist.client.http import MasterClient
    from torrentdist.model.views import ClusterView
    from torrentdist_cli.cluster import supervisors_table
    from torrentdist_cli.output import show_all
    from torrentdist_cli.run import run

    async def fetch() -> ClusterView:
        async with MasterClient(session.config().client) as client:
            return await client.cluster()

    view = run(fetch())
    show_all(session, view.supervisors, value=lambda row: row.id, table=lambda: supervisors_table(view))
