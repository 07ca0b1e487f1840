"""`torrentdist bundle sign`: adds a signature to a bundle that is in the cluster."""

from pathlib import Path

import click

from torrentdist.client.bundles.signed_content import sign_bundle, sign_copy
from torrentdist.model import ids
from torrentdist.security.signing.signing_keys import read_signer
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command, Session, dry_run_option
from torrentdist_cli.frame.rendering import facts, show
from torrentdist_cli.shell.candidates import bundle_ids


@click.command(cls=Command)
@click.argument("id", shell_complete=bundle_ids)
@click.option("--key", type=click.Path(path_type=Path), required=True, help="The private key of `key generate`.")
@click.option("--digest", metavar="DIGEST", help="Sign only if this is the content's digest.")
@click.option("--path", type=click.Path(path_type=Path), help="Sign only if this directory or file is its content.")
@dry_run_option
def sign(session: Session, id: str, key: Path, digest: str | None, path: Path | None) -> None:
    """Sign a bundle that is in the cluster.

    Without --path or --digest you sign the content that the masters name. Exits 9 if the bundle has
    other content than you expect.

    With -q: the digest that was signed.
    """
    if digest is not None and path is not None:
        raise click.UsageError("give --digest or --path, not both")
    name, expected = ids.bundle_id(id), None if digest is None else ids.digest(digest)
    signer = read_signer(key, session.config().trust)
    if path is not None:
        view = ask_masters(session, lambda client: sign_copy(client, name, signer, path))
    else:
        view = ask_masters(session, lambda client: sign_bundle(client, name, signer, expected))
    pairs = [("id", view.id), ("digest", view.digest), ("signed by", ", ".join(view.signers))]
    show(session, view, value=view.digest, table=lambda: facts(pairs))
