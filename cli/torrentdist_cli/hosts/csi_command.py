"""`torrentdist csi`: the CSI driver of a Kubernetes node, in the foreground."""

import click

from torrentdist_cli.frame.command import Command, Session
from torrentdist_cli.hosts.daemon_start import entry_of


@click.command(cls=Command)
@click.option(
    "--endpoint", required=True, metavar="SOCKET", help="The unix socket to serve on, such as unix:///csi/csi.sock."
)
def csi(session: Session, endpoint: str) -> None:
    """Run this node's CSI driver, in the foreground, until SIGTERM or Ctrl-C.

    It mounts bundles into pods and asks the supervisor of the node for them. docs/kubernetes.md
    says how to deploy it.
    """
    entry_of("torrentdist.csi.csi_driver", "csi")(session.config(), endpoint=endpoint)
