"""`torrentdist url`: a URL that opens a bundle at the gateways of pods, until it ends."""

import click

from torrentdist.client import access_client
from torrentdist.model.access.url_messages import UrlBody
from torrentdist_cli.access.token_commands import moment
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command, Session, dry_run_option
from torrentdist_cli.frame.rendering import DURATION, facts, show
from torrentdist_cli.shell.candidates import bundle_ids

ENDINGS = ("tar.gz", "tar", "zip")


@click.command(cls=Command)
@click.argument("bundle", metavar="ID", shell_complete=bundle_ids)
@click.option("--path", default="", help="A file or directory inside the bundle; without it, an archive of all of it.")
@click.option("--ttl", type=DURATION, default="1h", show_default=True, help="How long it counts, at most 7 days.")
@click.option(
    "--ending", type=click.Choice(ENDINGS), default=ENDINGS[0], show_default=True, help="Kind of the archive."
)
@click.option("--gateway", metavar="URL", help="Where pods reach their node's gateway, instead of client.pod_gateway.")
@dry_run_option
def url(session: Session, bundle: str, path: str, ttl: float, ending: str, gateway: str | None) -> None:
    """Print a URL that opens a bundle for pods, until it ends.

    It works at the gateway for pods of every node, for programs that have no token, such as
    --archives, curl and init containers. The URL is a secret: whoever has it may read the bundle
    until it ends, or until `torrentdist token revoke NAME`. ID may be a pattern of your own, such
    as 'etl-*': put a bundle in place of ID in the URL then.

    With -q: the URL.
    """

    wanted = UrlBody(bundles=bundle, path=path, ttl_secs=ttl)
    where = gateway or session.config().client.pod_gateway
    view = ask_masters(session, lambda client: access_client.new_url(client, wanted, where, ending))
    pairs = [("url", view.url), ("name", view.name), ("bundles", view.bundles), ("path", view.path or "all of it")]
    show(session, view, value=view.url, table=lambda: facts([*pairs, ("expires", moment(view.expires_at))]))
