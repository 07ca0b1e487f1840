"""`torrentdist bundle distribute`, `wait`, `cancel`, `distributions` and `history`: bring a
bundle to hosts, at once or in waves, watch it arrive, and see what earlier distributions did.
"""

import time
from collections.abc import Sequence
from typing import Any

import click

from torrentdist.client.masters import policy_client
from torrentdist.model.ids import SupervisorId, bundle_id, supervisor_id
from torrentdist.model.policies.bundle_terms import Priority
from torrentdist.model.policies.policy_messages import DistributionStatusView
from torrentdist.model.wire.fleet_messages import DistributeView, DistributionSummary
from torrentdist.model.wording import counted
from torrentdist_cli.bundles.fleet_picture import copies_into, fleet_display
from torrentdist_cli.frame.asking_masters import ask_masters, cluster_of, run_with_progress
from torrentdist_cli.frame.command import Command, Session, dry_run_option
from torrentdist_cli.frame.rendering import (
    DURATION,
    SHARE,
    SIZE,
    duration,
    facts,
    grid,
    origins,
    rate,
    show,
    show_all,
    size,
)
from torrentdist_cli.shell.candidates import bundle_ids


@click.command(cls=Command)
@click.argument("id", shell_complete=bundle_ids)
@click.option("--supervisors", metavar="A,B", help="Only these supervisors.")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Only supervisors with this label.")
@click.option("--share", type=SHARE, default="100%", help="Only this share of these supervisors, such as 50%.")
@click.option(
    "--canary",
    type=click.IntRange(0),
    default=0,
    help="Number of hosts that get it first; if one fails, the rest are not told.",
)
@click.option("--concurrency", type=click.IntRange(0), default=0, help="Hosts that fetch at the same time; 0: all.")
@click.option("--everywhere", is_flag=True, help="Also those that register later; until it is cancelled.")
@click.option("--keep", type=DURATION, default="0", help="How long they keep it, such as 7d; 0: for good.")
@click.option("--rate", type=SIZE, default="0", help="Most bytes per second for each, such as 10M; 0: no limit.")
@click.option(
    "--priority",
    type=click.Choice([priority.value for priority in Priority]),
    default=Priority.NORMAL.value,
    show_default=True,
    help="Each fetches bundles of a higher priority first.",
)
@click.option(
    "--wait", type=SHARE, default="100%", show_default=True, help="The share of hosts to wait for; 0 does not wait."
)
@click.option("--timeout", type=DURATION, default="1h", show_default=True, help="Longest time to wait.")
@dry_run_option
def distribute(
    session: Session,
    /,
    id: str,
    supervisors: str | None,
    labels: tuple[str, ...],
    wait: float,
    timeout: float,
    **how: Any,
) -> None:
    """Bring a bundle to every host, and watch it arrive.

    Exit 10 if fewer hosts than wanted have it when time is up. The transfer continues in the
    background. Exit 10 also if a canary fails; then no other host is told.

    With -q: its id.
    """
    chosen = _supervisors(supervisors)
    wanted_labels = parse_labels(labels)
    wait = 0.0 if session.dry_run else wait
    if chosen and wanted_labels:
        raise click.UsageError("--supervisors and --label exclude each other")
    if how["everywhere"] and (chosen or how["share"] != 1.0):
        raise click.UsageError("--everywhere excludes --supervisors and --share")

    run_with_progress(
        fleet_display(session),
        lambda progress: cluster_of(session).distribute(
            id, supervisors=chosen, labels=wanted_labels, wait=wait, timeout=timeout, progress=progress, **how
        ),
        lambda view: show(session, view, value=view.id, table=lambda: _table(view)),
    )


@click.command(name="wait", cls=Command)
@click.argument("id", shell_complete=bundle_ids)
@click.option("--on", type=SHARE, default="100%", show_default=True, help="The share of its hosts to wait for.")
@click.option("--timeout", type=DURATION, default="1h", show_default=True, help="Longest time to wait.")
def wait_command(session: Session, id: str, on: float, timeout: float) -> None:
    """Wait until the hosts that were told to keep a bundle have it.

    Exit 3 if no host was told, and 10 if fewer hosts than wanted have it when time is up, or if its
    distribution is stopped.

    With -q: its id.
    """
    run_with_progress(
        fleet_display(session),
        lambda progress: cluster_of(session).wait(id, on=on, timeout=timeout, progress=progress),
        lambda view: show(session, view, value=view.id, table=lambda: _table(view)),
    )


@click.command(cls=Command)
@click.argument("id", shell_complete=bundle_ids)
@dry_run_option
def cancel(session: Session, id: str) -> None:
    """End the distribution of a bundle, or a standing order.

    Hosts that have the bundle keep it. The others give up, and hosts that were not told yet never
    are. Exit 3 if there is no distribution of it, and 9 if it is over.

    With -q: its id.
    """
    name = bundle_id(id)
    view = ask_masters(session, lambda client: policy_client.cancel_distribution(client, name))
    verb = "would be cancelled" if session.dry_run else "is cancelled"
    sentence = f"the distribution of {view.bundle} {verb}; {view.told} of {counted(view.hosts, 'host')} were told"
    show(session, view, value=view.bundle, table=lambda: sentence)


@click.command(cls=Command)
def distributions(session: Session) -> None:
    """List the distributions that are under way, and those that ended in the last 7 days.

    With -q: their bundles.
    """
    views = ask_masters(session, policy_client.distributions)
    show_all(session, views, value=lambda view: view.bundle, table=lambda: _distributions(views))


def _distributions(views: Sequence[DistributionStatusView]) -> str:
    return grid(
        ("BUNDLE", "STATE", "WAVE", "TOLD", "RATE", "PRIORITY", "OWNER", "WHY"),
        [
            (
                view.bundle,
                view.state,
                f"{view.wave}/{view.waves}",
                f"{view.told}/{view.hosts}",
                rate(view.rate) if view.rate else "",
                view.priority,
                view.owner,
                view.reason,
            )
            for view in views
        ],
        right=("WAVE", "TOLD", "RATE"),
    )


def parse_labels(labels: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for label in labels:
        name, equals, value = label.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{label!r} is not of the form K=V", param_hint="--label")
        pairs[name] = value
    return pairs


def _supervisors(text: str | None) -> list[SupervisorId]:
    """Parses the list of names. Refuses an empty name, since no name at all means every host."""
    return [] if text is None else [supervisor_id(part.strip()) for part in text.split(",")]


def _table(view: DistributeView) -> str:
    table = facts(
        [
            ("id", view.id),
            ("digest", view.digest),
            ("hosts", f"{view.done} of {view.hosts} done"),
            ("bytes", origins(view.sources)),
            *([("zones", f"copies into {copies_into(view.zones)}")] if view.zones else []),
            ("time", duration(view.seconds)),
        ]
    )
    if not view.failed:
        return table
    return f"{table}\n\n{grid(('MISSING', 'REASON'), [(host.supervisor, host.reason) for host in view.failed])}"


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
    show_all(session, found, value=lambda one: one.run, table=lambda: _history_table(found))


def _history_table(found: Sequence[DistributionSummary]) -> str:
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
