"""`torrentdist upload`: makes a directory or a file a bundle of the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from torrentdist.model.wire.transfer_messages import UploadPreview, UploadView
from torrentdist.model.wording import counted
from torrentdist_cli.bundles.reuse_wording import compressed_warnings, owner_only_notice, reuse_line
from torrentdist_cli.frame.asking_masters import cluster_of, run_with_progress
from torrentdist_cli.frame.command import Command, Session, dry_run_option
from torrentdist_cli.frame.progress_bar import transfer_display
from torrentdist_cli.frame.rendering import DURATION, duration, facts, show, size
from torrentdist_cli.frame.terminal import say

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Place(click.ParamType["Path | str"]):
    """A path of this host, or a URL."""

    name = "path"

    def convert(self, value: Path | str, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        return value if isinstance(value, Path) or "://" in value else Path(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return click.Path(path_type=Path).shell_complete(ctx, param, incomplete)


@click.command(cls=Command)
@click.argument("path", type=Place())
@click.option("--id", metavar="ID", help="The bundle's name; by default derived from the path and the content.")
@click.option(
    "--min-replicas",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many masters must hold it before this command returns; by default as many as the cluster wants.",
)
@click.option("--timeout", type=DURATION, default="1h", show_default=True, help="Longest time to wait for them.")
@click.option("--sign", metavar="KEY", type=click.Path(path_type=Path), help="Sign it with this private key.")
@dry_run_option
def upload(
    session: Session,
    path: Path | str,
    id: str | None,
    min_replicas: int | None,
    timeout: float,
    sign: Path | None,
) -> None:
    """Put a directory or a file into the cluster as a bundle.

    A URL, such as s3://bucket/prefix, stands for the objects below it. They stream into the
    cluster, and none is kept on this host.

    Files that the masters have in any other bundle are not sent again.

    Exit 10 if fewer masters than wanted hold it when time is up; the masters continue among
    themselves.

    With -q: the bundle's id.
    """
    if session.dry_run:
        _preview(session, path, id)
        return
    run_with_progress(
        transfer_display(session),
        lambda progress: cluster_of(session).upload(
            path, id, min_replicas=min_replicas, sign=sign, timeout=timeout, progress=progress
        ),
        lambda view: _show(session, view),
    )


def _show(session: Session, view: UploadView) -> None:
    show(session, view, value=view.id, table=lambda: _table(view))
    _warn(view)


def _preview(session: Session, path: Path | str, id: str | None) -> None:
    if isinstance(path, str):
        raise click.UsageError("--dry-run is for a directory or a file, since objects are read to be hashed")

    def show_preview(view: UploadPreview) -> None:
        show(session, view, value=view.id, table=lambda: reuse_line(view.new_bytes, view.size, view.reused_from))
        _warn(view)

    run_with_progress(
        transfer_display(session),
        lambda progress: cluster_of(session).preview(path, id, progress=progress),
        show_preview,
    )


def _warn(view: UploadView | UploadPreview) -> None:
    for warning in compressed_warnings(view.compressed):
        say(warning, label="warning:", color="yellow")
    if view.owner_only:
        say(owner_only_notice(view.owner_only), label="notice:")


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
