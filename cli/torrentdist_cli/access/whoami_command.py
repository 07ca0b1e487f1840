"""`torrentdist whoami`: who the user is to the cluster."""

import click

from torrentdist.client import access_client
from torrentdist_cli.access.token_commands import moment
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command, Session
from torrentdist_cli.frame.rendering import facts, show


@click.command(cls=Command)
def whoami(session: Session) -> None:
    """Show who you are to the cluster: name, role, bundles, what you may read, and the proof.

    With -q: the role.
    """

    view = ask_masters(session, lambda client: access_client.whoami(client))
    pairs = [
        ("name", view.name),
        ("role", view.role),
        ("bundles", view.bundles),
        ("reads", view.reads),
        ("expires", moment(view.expires_at)),
        ("by", view.how),
    ]
    show(session, view, value=view.role, table=lambda: facts(pairs))
