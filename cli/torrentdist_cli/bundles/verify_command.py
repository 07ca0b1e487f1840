"""`torrentdist bundle verify` and `diff`: compare local files with a bundle, and two bundles of
the cluster with each other.
"""

import asyncio
import os
import threading
from pathlib import Path

import click
import msgspec

from torrentdist.api.transfer_display import Show
from torrentdist.bundle.content_check import Damage, verify_copy
from torrentdist.bundle.metafile import Metafile
from torrentdist.client.bundles.known_bundle import bundle_diff
from torrentdist.client.bundles.signed_content import check_with_masters
from torrentdist.client.bundles.transfer_progress import TransferProgress, TransferStage
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, bundle_id
from torrentdist.model.wire.bundle_messages import BundleDiffView
from torrentdist.model.wording import printable
from torrentdist_cli.bundles.reuse_wording import reuse_line
from torrentdist_cli.frame.asking_masters import ask_masters, masters, run
from torrentdist_cli.frame.command import Command, Session
from torrentdist_cli.frame.progress_bar import transfer_display
from torrentdist_cli.frame.rendering import grid, show, unicode_path
from torrentdist_cli.frame.terminal import say
from torrentdist_cli.shell.candidates import bundle_ids


class DamagedPath(msgspec.Struct, frozen=True):
    path: str
    reason: str


class VerifyView(msgspec.Struct, frozen=True):
    """The result of `bundle verify`."""

    id: BundleId
    digest: Digest
    path: str
    damaged: list[DamagedPath]


class _Stopped(Exception):
    """Ends the reading thread once its result is no longer wanted."""


@click.command(cls=Command)
@click.argument("id", shell_complete=bundle_ids)
@click.argument("path", type=click.Path(path_type=Path))
def verify(session: Session, id: str, path: Path) -> None:
    """Compare a directory or a file with a bundle, byte by byte.

    Exit 7 if anything differs, and 4 if [trust] refuses the bundle.

    With -q: the paths that differ.
    """
    name = bundle_id(id)
    if not os.path.lexists(path):
        raise TorrentdistError("path_not_found", path=str(path))
    with transfer_display(session) as progress:
        view = run(_verify(session, name, path, progress))
    show(session, view, value="\n".join(found.path for found in view.damaged), table=lambda: _table(view))
    if view.damaged:
        raise TorrentdistError("content_differs", path=str(path), id=view.id, detail=_counted(view.damaged))


async def _verify(session: Session, name: BundleId, path: Path, progress: Show) -> VerifyView:
    config = session.config()
    async with masters(config.client) as client:
        meta = await client.metafile(name)
        checked = await check_with_masters(client, config.trust, name, meta.digest)
    if checked.warning:
        say(checked.warning, label="warning:", color="yellow")
    damaged = [DamagedPath(found.path, found.reason) for found in await _compare(meta, path, progress)]
    return VerifyView(name, meta.digest, unicode_path(path), damaged)


async def _compare(meta: Metafile, path: Path, progress: Show) -> list[Damage]:
    stopping = threading.Event()

    def show_bytes(done: int, size: int) -> None:
        if stopping.is_set():
            raise _Stopped
        progress(TransferProgress(phase=TransferStage.CHECKING, done=done, size=size))

    try:
        return await asyncio.to_thread(verify_copy, meta, path, show_bytes)
    finally:
        stopping.set()


def _counted(damaged: list[DamagedPath]) -> str:
    return (
        f"{damaged[0].path} differs"
        if len(damaged) == 1
        else f"{len(damaged)} paths differ, the first is {damaged[0].path}"
    )


def _table(view: VerifyView) -> str:
    if not view.damaged:
        return f"{view.path} is exactly bundle {view.id}"
    return grid(("PATH", "REASON"), [(found.path, found.reason) for found in view.damaged])


@click.command(cls=Command)
@click.argument("a", shell_complete=bundle_ids)
@click.argument("b", shell_complete=bundle_ids)
def diff(session: Session, a: str, b: str) -> None:
    """Show what changes from bundle A to bundle B.

    Lists the files that are added (+), removed (-) and changed (~), and says how many bytes a host
    that has A receives to get B.

    With -q: that number of bytes.
    """
    old, new = bundle_id(a), bundle_id(b)
    view = ask_masters(session, lambda client: bundle_diff(client, old, new))
    show(session, view, value=str(view.new_bytes), table=lambda: _difference_table(view))


def _difference_table(view: BundleDiffView) -> str:
    marked = [
        *((path, "+") for path in view.added),
        *((path, "-") for path in view.removed),
        *((path, "~") for path in view.changed),
    ]
    lines = [f"{mark} {printable(path)}" for path, mark in sorted(marked)]
    reused_from = [view.a] if view.new_bytes < view.size else []
    return "\n".join([*lines, f"{view.b}: {reuse_line(view.new_bytes, view.size, reused_from)}"])
