"""`torrentdist master`: runs the master daemon."""

import click

from torrentdist_cli.frame.command import Command
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.hosts.daemon_start import start


@click.command(cls=Command)
@click.option("--repair-acls", is_flag=True, help="Repair the ACL of every znode before starting.")
def master(session: Session, repair_acls: bool) -> None:
    """Run a master, in the foreground, until SIGTERM or Ctrl-C."""
    start(session, "master", repair_acls=repair_acls)
