"""`torrentdist upload`: makes a directory or a file a bundle of the cluster."""

from __future__ import annotations

from pathlib import Path

import click

from torrentdist.client.bundles.upload import preview_upload
from torrentdist.client.bundles.upload import upload as upload_bundle
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, MasterId, bundle_id
from torrentdist.model.wire.transfer_messages import UploadPreview, UploadView
from torrentdist.model.wording import counted
from torrentdist.security.signing.signing_keys import read_signer
from torrentdist_cli.bundles.reuse_wording import compressed_warning, reuse_line
from torrentdist_cli.frame.asking_masters import masters
from torrentdist_cli.frame.command import Command
from torrentdist_cli.frame.interruption import run
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.frame.progress_bar import Show, transfer_display
from torrentdist_cli.frame.rendering import facts, show
from torrentdist_cli.frame.terminal import say
from torrentdist_cli.frame.units import DURATION, duration, size


@click.command(cls=Command)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--id", metavar="ID", help="The bundle's name; by default derived from the path and the content.")
@click.option(
    "--min-replicas",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many masters must hold it before this command returns; by default as many as the cluster wants.",
)
@click.option("--timeout", type=DURATION, default="1h", show_default=True, help="Longest time to wait for them.")
@click.option("--sign", metavar="KEY", type=click.Path(path_type=Path), help="Sign it with this private key.")
@click.option("--dry-run", is_flag=True, help="Only say how much would move; nothing is uploaded.")
@click.pass_obj
def upload(
    session: Session,
    path: Path,
    id: str | None,
    min_replicas: int | None,
    timeout: float,
    sign: Path | None,
    dry_run: bool,
) -> None:
    """Put a directory or a file into the cluster as a bundle.

    Files that the masters have in any other bundle are not sent again.

    Exit 10 if fewer masters than wanted hold it when time is up; the masters continue among
    themselves.

    With -q: the bundle's id.
    """
    name = None if id is None else bundle_id(id)
    if dry_run:
        _preview(session, path, name)
        return
    with transfer_display(session) as progress:
        view, missing = run(_upload(session, path, name, min_replicas, timeout, sign, progress))
    show(session, view, value=view.id, table=lambda: _table(view))
    _warn(view.compressed)
    if not view.achieved:
        raise TorrentdistError("partly", detail=shortfall(view, missing))


def _preview(session: Session, path: Path, name: BundleId | None) -> None:
    with transfer_display(session) as progress:

        async def work() -> UploadPreview:
            async with masters(session.config().client) as client:
                return await preview_upload(client, path, name, progress=progress)

        view = run(work())
    show(session, view, value=view.id, table=lambda: reuse_line(view.new_bytes, view.size, view.reused_from))
    _warn(view.compressed)


def _warn(compressed: str) -> None:
    if compressed:
        say(compressed_warning(compressed), label="warning:", color="yellow")


async def _upload(
    session: Session,
    path: Path,
    name: BundleId | None,
    min_replicas: int | None,
    timeout: float,
    key: Path | None,
    progress: Show,
) -> tuple[UploadView, list[MasterId]]:
    config = session.config()
    signer = None if key is None else read_signer(key, config.trust)
    async with masters(config.client) as client:
        view = await upload_bundle(
            client,
            path,
            name,
            min_replicas=min_replicas,
            timeout=timeout,
            progress=progress,
            swarm=config.client_swarm,
            signer=signer,
        )
        return view, [] if view.achieved else await _missing(client, view.id)


async def _missing(client: MasterClient, name: BundleId) -> list[MasterId]:
    """Returns the live masters that do not hold the bundle; none if they cannot be asked now."""
    try:
        cluster = await client.cluster()
        holders = (await client.bundle(name)).holders
    except TorrentdistError:
        return []
    return [master.id for master in cluster.masters if master.id not in holders]


def shortfall(view: UploadView, missing: list[MasterId]) -> str:
    """Returns a line such as `bundle etl-42 has 1 of 3 replicas; missing on: m2, m3`."""
    where = f"missing on: {', '.join(missing)}" if missing else "no other master is up"
    return f"bundle {view.id} has {view.replicas} of {counted(view.min_replicas, 'replica')}; {where}"


def _table(view: UploadView) -> str:
    return facts(
        [
            ("id", view.id),
            ("digest", view.digest),
            ("size", f"{size(view.size)} in {counted(view.files, 'file')}"),
            ("moved", reuse_line(view.new_bytes, view.size, view.reused_from)),
            ("replicas", f"{view.replicas} of {view.min_replicas} wanted"),
            ("time", duration(view.seconds)),
        ]
    )
