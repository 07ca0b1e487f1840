"""`torrentdist ha`: who leads."""

from __future__ import annotations

import time

import click

from torrentdist.client.http import MasterClient
from torrentdist.model.views import LeaderView
from torrentdist_cli.command import Command, Group
from torrentdist_cli.output import facts, show
from torrentdist_cli.run import run
from torrentdist_cli.session import Session
from torrentdist_cli.text import duration


@click.group(cls=Group)
def ha() -> None:
    """Who leads."""


@ha.command(cls=Command)
@click.pass_obj
def leader(session: Session) -> None:
    """Show the leader; exit 5 while an election is in progress.

    With -q: the id of the leader.
    """
    view = run(_leader(session))
    pairs = [
        ("leader", view.leader),
        ("epoch", str(view.epoch)),
        ("leads for", duration(max(0.0, time.time() - view.since))),
    ]
    show(session, view, value=view.leader, table=lambda: facts(pairs))


async def _leader(session: Session) -> LeaderView:
    async with MasterClient(session.config().client) as client:
        return await client.leader()
