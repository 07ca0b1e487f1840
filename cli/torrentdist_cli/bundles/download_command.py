"""`torrentdist download` and `unpack`: bring a bundle into a directory or file of this host."""

from pathlib import Path

import click
import msgspec

from torrentdist.model.ids import bundle_id
from torrentdist.model.wire.transfer_messages import ContentSource, DownloadView
from torrentdist.model.wording import counted
from torrentdist_cli.frame.asking_masters import ask_masters, cluster_of, run_with_progress
from torrentdist_cli.frame.command import Command, Session, dry_run_option
from torrentdist_cli.frame.progress_bar import transfer_display
from torrentdist_cli.frame.rendering import DURATION, duration, facts, origins, show, size
from torrentdist_cli.frame.terminal import say
from torrentdist_cli.shell.candidates import bundle_ids

_SOURCES = {
    ContentSource.DEST: "nowhere: it is there already",
    ContentSource.HOST: "this host's supervisor, which has it",
    ContentSource.SUPERVISOR: "this host's supervisor, which would fetch it",
    ContentSource.PEER: "the swarm, by this command itself",
}


class UnpackView(msgspec.Struct, frozen=True):
    """The result of `unpack`."""

    digest: str
    path: str
    size: int
    files: int


@click.command(cls=Command)
@click.argument("id", shell_complete=bundle_ids)
@click.argument("dest", type=click.Path())
@click.option("--timeout", type=DURATION, default="1h", show_default=True, help="Longest time for the download.")
@click.option(
    "--seed-for",
    type=DURATION,
    default="0",
    metavar="DURATION",
    help="Seed for this long afterwards, if no supervisor does.",
)
@click.option("--force", is_flag=True, help="Replace DEST if it holds different content; see below.")
@click.option("--no-supervisor", is_flag=True, help="Download as a peer even if this host has a supervisor.")
@click.option(
    "--from",
    "known_in",
    type=click.Path(path_type=Path, exists=True),
    metavar="DIR",
    multiple=True,
    help="Take known files from this directory, such as an older version; only without a supervisor.",
)
@dry_run_option
def download(
    session: Session,
    id: str,
    dest: str,
    timeout: float,
    seed_for: float,
    force: bool,
    no_supervisor: bool,
    known_in: tuple[Path, ...],
) -> None:
    """Get a bundle into a directory or a file of this host.

    A bundle that is a single file becomes the file DEST, or goes into DEST if that is a
    directory or ends with a slash.

    If it ends early, what has arrived is kept: the same command continues from there.

    Files that are in a store of this host, or in the directory that --from names, are not fetched.

    --force never replaces the current directory, a home directory, a mount point, or a directory
    that contains one of these.

    With -q: the path.
    """
    if no_supervisor:
        session.flags["client.supervisor"] = ""
    if session.dry_run:
        _preview(session, id, dest, force)
        return
    run_with_progress(
        transfer_display(session),
        lambda progress: cluster_of(session).download(
            id,
            dest,
            timeout=timeout,
            seed_for=seed_for,
            force=force,
            known_in=known_in,
            progress=progress,
        ),
        lambda view: _show(session, view),
    )


@click.command(cls=Command)
@click.argument("metafile", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("fetched", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("dest", type=click.Path(path_type=Path))
def unpack(session: Session, metafile: Path, fetched: Path, dest: Path) -> None:
    """Make a bundle's tree from what another BitTorrent client has fetched.

    FETCHED is the directory that it fetched into. A bundle with many small files moves them in
    packs, which other clients leave as they are. Every byte is checked. DEST must not exist.

    With -q: the path.
    """
    from torrentdist.bundle.metafile import parse_metafile, with_trackers
    from torrentdist.bundle.packs.unpacking import unpack as unpack_bundle

    meta = parse_metafile(with_trackers(metafile.read_bytes(), ()))
    unpack_bundle(meta, fetched, dest)
    view = UnpackView(digest=meta.digest, path=str(dest), size=meta.size, files=meta.file_count)
    pairs = [("digest", view.digest), ("path", view.path), ("size", f"{size(view.size)} in {view.files:,} files")]
    show(session, view, value=view.path, table=lambda: facts(pairs))


def _preview(session: Session, id: str, dest: str, force: bool) -> None:
    from torrentdist.api.download_preview import preview_download

    name = bundle_id(id)
    view = ask_masters(session, lambda client: preview_download(client, session.config(), name, dest, force=force))
    pairs = [
        ("id", view.id),
        ("digest", view.digest),
        ("path", view.path),
        ("size", f"{size(view.size)} in {counted(view.files, 'file')}"),
        ("from", _SOURCES[view.source]),
    ]
    show(session, view, value=view.path, table=lambda: facts(pairs))


def _show(session: Session, view: DownloadView) -> None:
    if view.warning:
        say(view.warning, label="warning:", color="yellow")
    show(session, view, value=view.path, table=lambda: _table(view))


def _table(view: DownloadView) -> str:
    return facts(
        [
            ("id", view.id),
            ("digest", view.digest),
            ("path", view.path),
            ("size", f"{size(view.size)} in {counted(view.files, 'file')}"),
            ("bytes", origins(view.sources)),
            ("time", duration(view.seconds)),
        ]
    )
