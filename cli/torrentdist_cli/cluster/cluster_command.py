"""`torrentdist cluster` and `torrentdist top`: the whole cluster at one moment, and as it
changes.
"""

import sys

import click

from torrentdist.client.masters.cluster_picture import ClusterPicture, DistributionPicture, cluster_picture
from torrentdist.client.tls_diagnosis import insecure_sentence
from torrentdist.model.wire.cluster_messages import BundleCounts, ClusterView, GoneView, SupervisorView
from torrentdist.model.wording import counted
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command, OutputFormat, Session
from torrentdist_cli.frame.rendering import DURATION, duration, facts, grid, percent, rate, show, size
from torrentdist_cli.frame.terminal import say
from torrentdist_cli.frame.watching import on_terminal, watch, watch_option


@click.command(cls=Command)
@watch_option
def cluster(session: Session, watches: bool) -> None:
    """Show the cluster: leader, masters, supervisors, bundles.

    With -q: the id of the leader.
    """
    if watches:
        watch(session, lambda client: client.cluster(), _table, lambda view: _show(session, view))
        return
    view = ask_masters(session, lambda client: client.cluster())
    if sentence := insecure_sentence(view):
        say(sentence, label="warning:", color="yellow")
    _show(session, view)


def _show(session: Session, view: ClusterView) -> None:
    show(session, view, value=view.leader or "", table=lambda: _table(view))


def _table(view: ClusterView) -> str:
    stale = [] if view.stale_secs is None else [("stale", f"{duration(view.stale_secs)} old: {_why_stale(view)}")]
    problem = [("problem", view.problem)] if view.problem else []
    nobody = "none" if view.problem else "none: an election is in progress"
    parts = [
        facts(
            [
                ("last leader" if stale else "leader", view.leader or nobody),
                ("epoch", str(view.epoch)),
                ("bundles", _counted(view.bundles)),
                ("jobs", str(len(view.jobs))),
                *stale,
                *problem,
            ]
        ),
        grid(
            ("MASTER", "ADDRESS", "ROLE", "UP", "VERSION"),
            [
                (m.id, m.url, "leader" if m.is_leader else "standby", duration(m.uptime_secs), m.version)
                for m in view.masters
            ]
            + [(g.id, g.host, "gone", f"-{duration(g.gone_secs)}", "") for g in view.gone if g.role == "master"],
            right=("UP",),
        ),
    ]
    if view.supervisors or any(gone.role == "supervisor" for gone in view.gone):
        parts.append(supervisors_table(view))
    return "\n\n".join(parts)


def _why_stale(view: ClusterView) -> str:
    return "from a master's disk" if view.problem else "ZooKeeper is away"


def supervisors_table(view: ClusterView) -> str:
    """Returns the supervisors that are up, and then those that are gone."""
    blank = ("", "", "")
    shares = any(s.own_bytes != s.bytes for s in view.supervisors)
    return grid(
        (
            "SUPERVISOR",
            "HOST",
            "GATEWAY",
            "SLOTS",
            "BUNDLES",
            *(["SIZE", "OWN"] if shares else []),
            "LABELS",
            "UP",
            "VERSION",
            "NOTE",
        ),
        [
            (
                s.id,
                s.host,
                s.gateway,
                f"{s.slots_used}/{s.slots}",
                "?" if s.bundles is None else str(s.bundles),
                *(_bytes(n) for n in ([s.bytes, s.own_bytes] if shares else [])),
                ",".join(f"{name}={value}" for name, value in sorted(s.labels.items())),
                duration(s.uptime_secs),
                s.version,
                _note(s),
            )
            for s in view.supervisors
        ]
        + [
            (g.id, g.host, *blank, *(["", ""] if shares else []), *blank, _missed(g))
            for g in view.gone
            if g.role == "supervisor"
        ],
        right=("SLOTS", "BUNDLES", *(["SIZE", "OWN"] if shares else []), "UP"),
    )


def _missed(gone: GoneView) -> str:
    kept = [counted(gone.bundles, "bundle")] if gone.bundles else []
    return f"gone for {duration(gone.gone_secs)}" + (
        f", with {', '.join([*kept, *gone.jobs])}" if kept or gone.jobs else ""
    )


def _bytes(count: int | None) -> str:
    return "?" if count is None else size(count)


def _note(supervisor: SupervisorView) -> str:
    if supervisor.silent_secs is None:
        silent = "heartbeats unknown"
    else:
        silent = f"silent for {duration(supervisor.silent_secs)}" if supervisor.silent_secs else ""
    return ", ".join(filter(None, ["drains" if supervisor.draining else "", silent]))


def _counted(counts: BundleCounts) -> str:
    parts = {
        "uploading": counts.uploading,
        "lost": counts.lost,
        "with too few replicas": counts.under_replicated,
    }
    return ", ".join([f"{counts.available} available", *(f"{n} {what}" for what, n in parts.items() if n)])


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
    if session.output is None and not (session.quiet or sys.stdout.isatty()):
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
