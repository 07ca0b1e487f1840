"""`torrentdist bundle distribute`: brings a bundle to every host with one command."""

from __future__ import annotations

import click

from torrentdist.model.ids import SupervisorId, supervisor_id
from torrentdist.model.wire.fleet_messages import DistributeView
from torrentdist_cli.bundles.fleet_picture import fleet_display
from torrentdist_cli.frame.asking_masters import cluster_of, run_with_progress
from torrentdist_cli.frame.command import Command, dry_run_option
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.frame.rendering import facts, grid, show
from torrentdist_cli.frame.units import DURATION, SHARE, duration, origins
from torrentdist_cli.shell.candidates import bundle_ids


@click.command(cls=Command)
@click.argument("id", shell_complete=bundle_ids)
@click.option("--supervisors", metavar="A,B", help="Only these supervisors.")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Only supervisors with this label.")
@click.option(
    "--wait", type=SHARE, default="100%", show_default=True, help="The share of hosts to wait for; 0 does not wait."
)
@click.option("--timeout", type=DURATION, default="1h", show_default=True, help="Longest time to wait.")
@dry_run_option
@click.pass_obj
def distribute(
    session: Session, id: str, supervisors: str | None, labels: tuple[str, ...], wait: float, timeout: float
) -> None:
    """Bring a bundle to every host, and watch it arrive.

    Exit 10 if fewer hosts than wanted have it when time is up. The transfer continues in the
    background.

    With -q: its id.
    """
    chosen = _supervisors(supervisors)
    wanted_labels = parse_labels(labels)
    wait = 0.0 if session.dry_run else wait
    if chosen and wanted_labels:
        raise click.UsageError("--supervisors and --label exclude each other")

    run_with_progress(
        fleet_display(session),
        lambda progress: cluster_of(session).distribute(
            id, supervisors=chosen, labels=wanted_labels, wait=wait, timeout=timeout, progress=progress
        ),
        lambda view: show(session, view, value=view.id, table=lambda: _table(view)),
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
            ("time", duration(view.seconds)),
        ]
    )
    if not view.failed:
        return table
    return f"{table}\n\n{grid(('MISSING', 'REASON'), [(host.supervisor, host.reason) for host in view.failed])}"
