"""`torrentdist top`: the console's picture of the cluster in a terminal."""

import sys

import click

from torrentdist.client.masters.cluster_picture import ClusterPicture, DistributionPicture, cluster_picture
from torrentdist.model.wording import counted
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command
from torrentdist_cli.frame.invocation import OutputFormat, Session
from torrentdist_cli.frame.rendering import grid, show
from torrentdist_cli.frame.units import DURATION, duration, percent, rate, size
from torrentdist_cli.frame.watching import on_terminal, watch

_BAR_WIDTH = 30
_MOST_NAMED = 10


@click.command(cls=Command)
@click.option("--once", is_flag=True, help="Show it once, and end.")
@click.option("--every", type=DURATION, default="2s", show_default=True, help="Interval between looks.")
def top(session: Session, once: bool, every: float) -> None:
    """Show what happens in the cluster now, until Ctrl-C.

    What needs attention comes first, then the distributions that are under way with their slowest
    hosts. Without a terminal it shows it once, as JSON.

    With -q: the number of distributions that are under way.
    """
    if not once and on_terminal(session):
        watch(session, cluster_picture, picture, lambda view: None, max(0.2, every))
        return
    if session.output is None and not sys.stdout.isatty():
        session.output = OutputFormat.JSON
    view = ask_masters(session, cluster_picture)
    show(session, view, value=str(view.distributions_total), table=lambda: picture(view))


def picture(view: ClusterPicture) -> str:
    """Returns the lines for a terminal."""
    gone = f" · {view.gone} gone" if view.gone else ""
    head = (
        f"leader {view.leader or 'none'} · epoch {view.epoch} · {counted(view.masters, 'master')} · "
        f"{counted(view.supervisors, 'supervisor')}{gone} · {counted(view.bundles.available, 'bundle')} · "
        f"{counted(view.jobs, 'job')}"
    )
    old = [f"this is {duration(view.stale_secs)} old: ZooKeeper is away"] if view.stale_secs is not None else []
    named = [f"  {entry.sentence}" for entry in view.attention[:_MOST_NAMED]]
    more = [f"  and {len(view.attention) - len(named)} more"] if len(view.attention) > len(named) else []
    care = ["NEEDS ATTENTION", *named, *more] if named else ["nothing needs attention"]
    rest = view.distributions_total - len(view.distributions)
    orders = f", {counted(view.standing, 'standing order')}" if view.standing else ""
    title = f"{counted(view.distributions_total, 'distribution')} under way{orders}"
    parts = ["\n".join([head, *old]), "\n".join(care), title, *map(_distribution, view.distributions)]
    return "\n\n".join([*parts, *([f"and {rest} more"] if rest else [])])


def _distribution(one: DistributionPicture) -> str:
    whole = one.size * one.hosts
    share = one.arrived / whole if whole else 1.0
    filled = int(share * _BAR_WIDTH)
    facts = [
        f"{one.done}/{one.hosts} hosts",
        f"wave {one.wave}/{one.waves}" if one.waves > 1 else "",
        rate(one.rate) if one.rate else "",
        f"{duration(one.eta)} left" if one.eta is not None else "",
    ]
    line = f"{one.bundle} ({size(one.size)})  {'━' * filled}{'╌' * (_BAR_WIDTH - filled)} {percent(share)}"
    rows = [
        (f"  {host.supervisor}", host.state.value, percent(host.done / host.size if host.size else 0.0), host.reason)
        for host in one.slowest
    ]
    slowest = [grid(("  SLOWEST", "STATE", "DONE", "WHY"), rows, right=("DONE",))] if rows else []
    return "\n".join([f"{line}  {' · '.join(filter(None, facts))}", *slowest])
