"""`torrentdist bundle sign`: adds a signature to a bundle that is in the cluster."""

from __future__ import annotations

from pathlib import Path

import click

from torrentdist.client.bundles.signed_content import sign_bundle
from torrentdist.model import ids
from torrentdist.security.signing.signing_keys import read_signer
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.frame.rendering import facts, show


@click.command(cls=Command)
@click.argument("id")
@click.option("--key", type=click.Path(path_type=Path), required=True, help="The private key of `key generate`.")
@click.option("--digest", metavar="DIGEST", help="Sign only if this is the content's digest.")
@click.pass_obj
def sign(session: Session, id: str, key: Path, digest: str | None) -> None:
    """Sign a bundle that is in the cluster.

    You sign the digest that the masters name. Give --digest if you know it, or compare what you
    get: `bundle verify ID PATH` says whether a directory of yours is this bundle.

    With -q: the digest that was signed.
    """
    name, expected = ids.bundle_id(id), None if digest is None else ids.digest(digest)
    signer = read_signer(key, session.config().trust)
    view = ask_masters(session, lambda client: sign_bundle(client, name, signer, expected))
    pairs = [("id", view.id), ("digest", view.digest), ("signed by", ", ".join(view.signers))]
    show(session, view, value=view.digest, table=lambda: facts(pairs))
