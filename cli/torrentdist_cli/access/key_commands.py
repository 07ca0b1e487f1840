"""`torrentdist key`: keys that sign bundles and jobs.

Never: need a network, a daemon or a configuration.
"""

from pathlib import Path

import click

from torrentdist_cli.frame.command import Command, Group, Session
from torrentdist_cli.frame.rendering import facts, show


@click.group(cls=Group)
def key() -> None:
    """Make keys that sign bundles and jobs."""


@key.command(cls=Command)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def generate(session: Session, file: Path) -> None:
    """Make a private key in FILE, which only you can read, and its public key in FILE.pub.

    Put the public key into trust.bundles of the hosts and clients that should accept what the key
    signs. Neither file is ever overwritten.

    With -q: the key's id.
    """
    from torrentdist.security.signing.signing_keys import generate_key

    view = generate_key(file)
    pairs = [("key id", view.id), ("private key", view.key_file), ("public key", view.public_key)]
    show(session, view, value=view.id, table=lambda: facts([*pairs, ("also in", view.public_key_file)]))
