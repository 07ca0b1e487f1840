"""`torrentdist bundle diff`: compares two bundles of the cluster, file by file."""

import click

from torrentdist.client.bundles.known_bundle import bundle_diff
from torrentdist.model.ids import bundle_id
from torrentdist.model.wire.bundle_messages import BundleDiffView
from torrentdist.model.wording import printable
from torrentdist_cli.bundles.reuse_wording import reuse_line
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.frame.rendering import show
from torrentdist_cli.shell.candidates import bundle_ids


@click.command(cls=Command)
@click.argument("a", shell_complete=bundle_ids)
@click.argument("b", shell_complete=bundle_ids)
def diff(session: Session, a: str, b: str) -> None:
    """Show what changes from bundle A to bundle B.

    Lists the files that are added (+), removed (-) and changed (~), and says how many bytes a host
    that has A receives to get B.

    With -q: that number of bytes.
    """
    old, new = bundle_id(a), bundle_id(b)
    view = ask_masters(session, lambda client: bundle_diff(client, old, new))
    show(session, view, value=str(view.new_bytes), table=lambda: _table(view))


def _table(view: BundleDiffView) -> str:
    marked = [
        *((path, "+") for path in view.added),
        *((path, "-") for path in view.removed),
        *((path, "~") for path in view.changed),
    ]
    lines = [f"{mark} {printable(path)}" for path, mark in sorted(marked)]
    reused_from = [view.a] if view.new_bytes < view.size else []
    return "\n".join([*lines, f"{view.b}: {reuse_line(view.new_bytes, view.size, reused_from)}"])
