"""`torrentdist audit`: who changed what, when, from where, and with which result."""

import time
from collections.abc import Sequence

import click

from torrentdist.client import access_client
from torrentdist.model.access.audit_messages import AuditView
from torrentdist.model.errors import TorrentdistError
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command, Session
from torrentdist_cli.frame.rendering import DURATION, grid, show_all
from torrentdist_cli.frame.terminal import say

DAY_SECS = 86400.0


@click.command(cls=Command)
@click.option("--since", type=DURATION, default=DAY_SECS, show_default="1d", help="How far to look back.")
@click.option("--who", metavar="NAME", default=None, help="What one sender did.")
@click.option("--bundle", metavar="ID", default=None, help="What was done to one bundle and its jobs.")
@click.option("-n", "most", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="The newest only.")
def audit(session: Session, since: float, who: str | None, bundle: str | None, most: int) -> None:
    """Show who changed what, when, from where, and with which result, the newest first.

    Every master is asked. One that does not answer is named in a warning, and its part is missing.
    Refused requests are counted by source: COUNT says how often.

    With -q: the names of the senders.
    """
    wanted = access_client.AuditWanted(within=since, who=who or "", bundle=bundle or "", most=most)

    found = ask_masters(session, lambda client: access_client.audit(client, wanted))
    for master, why in sorted(found.missing.items()):
        say(f"the part of {master} is missing: {why}", label="warning:", color="yellow")
    if found.missing and not found.asked:
        raise TorrentdistError("unreachable", detail="no master told its audit")
    show_all(session, found.entries, value=lambda entry: entry.who, table=lambda: _table(found.entries))


def _table(entries: Sequence[AuditView]) -> str:
    return grid(
        ("AT", "WHO", "ROLE", "OPERATION", "TARGET", "FROM", "RESULT", "COUNT"),
        [
            (
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.at)),
                entry.who,
                entry.role,
                entry.operation,
                entry.target,
                entry.source,
                entry.result,
                str(entry.count),
            )
            for entry in entries
        ],
        right=("COUNT",),
    )
