"""`torrentdist cluster`: an overview of the whole cluster."""

import click

from torrentdist.client.tls_diagnosis import insecure_sentence
from torrentdist.model.wire.cluster_messages import BundleCounts, ClusterView, GoneView, SupervisorView
from torrentdist.model.wording import counted
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.frame.rendering import facts, grid, show
from torrentdist_cli.frame.terminal import say
from torrentdist_cli.frame.units import duration, size
from torrentdist_cli.frame.watching import watch, watch_option


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
