"""`torrentdist bundle distribute`: brings a bundle to every host with one command."""

from __future__ import annotations

import click

from torrentdist.client.bundles.distribute import distribute as distribute_bundle
from torrentdist.client.bundles.distribute import hosts_needed
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import SupervisorId, bundle_id, supervisor_id
from torrentdist.model.wire.fleet_messages import DistributeView
from torrentdist.model.wording import counted
from torrentdist_cli.bundles.fleet_picture import fleet_display
from torrentdist_cli.frame.asking_masters import masters
from torrentdist_cli.frame.command import Command
from torrentdist_cli.frame.interruption import run
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.frame.rendering import facts, grid, show
from torrentdist_cli.frame.units import DURATION, SHARE, duration, origins

_NAMED = 5


@click.command(cls=Command)
@click.argument("id")
@click.option("--supervisors", metavar="A,B", help="Only these supervisors.")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Only supervisors with this label.")
@click.option(
    "--wait", type=SHARE, default="100%", show_default=True, help="The share of hosts to wait for; 0 does not wait."
)
@click.option("--timeout", type=DURATION, default="1h", show_default=True, help="Longest time to wait.")
@click.pass_obj
def distribute(
    session: Session, id: str, supervisors: str | None, labels: tuple[str, ...], wait: float, timeout: float
) -> None:
    """Bring a bundle to every host, and watch it arrive.

    Exit 10 if fewer hosts than wanted have it when time is up. The transfer continues in the
    background.

    With -q: its id.
    """
    name = bundle_id(id)
    chosen = _supervisors(supervisors)
    wanted_labels = parse_labels(labels)
    if chosen and wanted_labels:
        raise click.UsageError("--supervisors and --label exclude each other")

    async def work() -> DistributeView:
        async with masters(session.config().client) as client:
            with fleet_display(session) as progress:
                return await distribute_bundle(
                    client,
                    name,
                    supervisors=chosen,
                    labels=wanted_labels,
                    wait_share=wait,
                    timeout=timeout,
                    progress=progress,
                )

    view = run(work())
    show(session, view, value=view.id, table=lambda: _table(view))
    if view.done < hosts_needed(wait, view.hosts):
        raise TorrentdistError("partly", detail=shortfall(view))


def parse_labels(labels: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for label in labels:
        name, equals, value = label.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{label!r} is not of the form K=V", param_hint="--label")
        pairs[name] = value
    return pairs


def shortfall(view: DistributeView) -> str:
    """Returns a line such as `bundle etl-42 is on 14 of 16 hosts; missing: h3 (stuck: disk full),
    h9 (gone)`."""
    named = [f"{host.supervisor} ({host.reason})" for host in view.failed[:_NAMED]]
    more = [f"and {len(view.failed) - _NAMED} more"] if len(view.failed) > _NAMED else []
    return f"bundle {view.id} is on {view.done} of {counted(view.hosts, 'host')}; missing: {', '.join(named + more)}"


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
