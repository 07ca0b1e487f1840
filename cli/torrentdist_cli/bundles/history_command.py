"""`torrentdist bundle history`: what distributions did, also long after they ended."""

import time
from collections.abc import Sequence

import click

from torrentdist.model.ids import bundle_id
from torrentdist.model.wire.fleet_messages import DistributionSummary
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.frame.rendering import grid, show_all
from torrentdist_cli.frame.units import duration, size
from torrentdist_cli.shell.candidates import bundle_ids


@click.command(cls=Command)
@click.argument("id", required=False, shell_complete=bundle_ids)
def history(session: Session, id: str | None) -> None:
    """Show what distributions did, of one bundle or of all, the newest first.

    The masters keep the last 200, also when they restart. The columns 50 %, 90 % and 100 % show how
    long it took until that share of the hosts had the bundle. The JSON names the last hosts, with
    their reasons.

    With -q: the names of the distributions.
    """
    bundle = None if id is None else bundle_id(id)
    found = ask_masters(session, lambda client: client.distributions(bundle))
    show_all(session, found, value=lambda one: one.run, table=lambda: _table(found))


def _table(found: Sequence[DistributionSummary]) -> str:
    return grid(
        ("BUNDLE", "BEGAN", "SIZE", "HOSTS", "50 %", "90 %", "100 %", "FROM MASTERS", "FROM HOSTS", "NOTE"),
        [
            (
                one.bundle,
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.began_at)),
                size(one.size),
                f"{one.done}/{one.hosts}",
                _secs(one.half_secs),
                _secs(one.most_secs),
                _secs(one.all_secs),
                size(one.sources.masters),
                size(one.sources.peers),
                _note(one),
            )
            for one in found
        ],
        right=("SIZE", "HOSTS", "50 %", "90 %", "100 %", "FROM MASTERS", "FROM HOSTS"),
    )


def _secs(value: float | None) -> str:
    return "-" if value is None else duration(value)


def _note(one: DistributionSummary) -> str:
    if one.ended_at is None:
        return "running"
    if one.done == one.hosts:
        return ""
    first = next((host for host in one.late if host.seconds is None), None)
    return "" if first is None else f"{first.supervisor}: {first.reason or first.state}"
