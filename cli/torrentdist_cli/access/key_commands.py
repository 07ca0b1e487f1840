"""`torrentdist key`: keys that sign bundles and jobs, and the key of URLs.

Never: need a network, a daemon or a configuration to make a key in a file.
"""

from pathlib import Path

import click

from torrentdist_cli.access.token_commands import moment
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command, Group, Session, dry_run_option
from torrentdist_cli.frame.rendering import facts, show


@click.group(cls=Group)
def key() -> None:
    """Make keys that sign bundles and jobs, and replace the key of URLs."""


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


@key.command("rotate-urls", cls=Command)
@dry_run_option
def rotate_urls(session: Session) -> None:
    """Replace the key that signs the URLs of `torrentdist url`.

    All URLs that were made before end within 10 s, at every gateway that reaches a master. Do it
    when a master's memory or a backup of it may have been read. Where the masters' password in
    ZooKeeper was stolen, replace that first: the key is derived from it.

    With -q: since when the new key counts.
    """
    from torrentdist.client import access_client

    view = ask_masters(session, access_client.rotate_url_key)
    told = session.told("URLs made before", "URLs would end that were made before")
    show(session, view, value=str(view.since), table=lambda: f"{told} {moment(view.since)}{session.told(' end', '')}")
