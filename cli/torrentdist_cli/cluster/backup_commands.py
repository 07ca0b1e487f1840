"""`torrentdist ha init`, `ha backup` and `ha restore`: create the cluster's records, save them
outside ZooKeeper, and bring them back."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torrentdist.bundle.files.durability import write_durably
from torrentdist.model.backup import decode_backup
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.ha_views import BackupView, FoundedView, RestoreView
from torrentdist.model.wording import counted
from torrentdist_cli.frame.asking_masters import ask_masters, run, say_dry_run
from torrentdist_cli.frame.command import Command, Session, dry_run_option
from torrentdist_cli.frame.rendering import duration, facts, show, size

if TYPE_CHECKING:
    from torrentdist.model.configuration.config import Config

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=Command)
@click.argument("file", type=FILE)
def backup(session: Session, file: Path) -> None:
    """Write every record of the cluster into a file.

    These are bundles, replicas, assignments, jobs, epoch and history, as any master reads them. The
    bundles' bytes are not included; they are on the masters' disks. FILE is replaced as a whole,
    and only its owner can read it, because its content allows announcing in the cluster's swarms.

    With -q: the path of FILE.
    """
    if os.path.lexists(file) and not file.is_file():
        raise click.BadParameter(f"{str(file)!r} is there, and is no regular file", param_hint="FILE")
    data = ask_masters(session, lambda client: client.backup())
    found = decode_backup(data, "the masters' answer")
    if not file.absolute().parent.is_dir():
        raise TorrentdistError("path_not_found", path=str(file.parent))
    write_durably(file, data, 0o600)
    view = BackupView(
        path=str(file), cluster=found.cluster, epoch=found.epoch, records=len(found.nodes), size=len(data)
    )
    show(
        session,
        view,
        value=view.path,
        table=lambda: f"{counted(view.records, 'record')}, {size(view.size)}, in {view.path}",
    )


@click.command(cls=Command)
@click.argument("file", type=FILE)
@dry_run_option
def restore(session: Session, file: Path) -> None:
    """Bring a backup's records back into an empty ZooKeeper.

    Exits 9 if there are records that are not in FILE. Takes the --config of a daemon: it talks to
    ZooKeeper itself. Daemons may keep running: they return by themselves, and a bundle that is on a
    master's disk is not fetched again.

    With -q: the epoch.
    """
    config = _config_of(session)
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise TorrentdistError("path_not_found", path=str(file)) from None
    found = decode_backup(data, str(file))
    view: RestoreView = run(_call(config, session.told("run", "dry_run"), found))
    if session.dry_run:
        say_dry_run()
    pairs = [
        ("cluster", view.cluster),
        ("epoch", f"{view.epoch}, it was {found.epoch}"),
        ("records", str(view.records)),
        ("restored in", duration(view.seconds)),
    ]
    show(session, view, value=str(view.epoch), table=lambda: facts(pairs))


@click.command(cls=Command)
@dry_run_option
def init(session: Session) -> None:
    """Found a cluster in ZooKeeper, once.

    Daemons wait until there is a cluster, and never found one themselves: if a tree is empty
    because it was lost, `ha restore` brings the cluster back. If there is a cluster already, exits
    0 and changes nothing; exits 9 if there are records of a cluster without its /cluster. Takes the
    --config of a daemon: it talks to ZooKeeper itself.

    With -q: the id of the cluster.
    """
    view: FoundedView = run(_call(_config_of(session), session.told("init", "dry_init")))
    if session.dry_run:
        say_dry_run()
    said = session.told("founded", "it would be founded") if view.founded else "there already, nothing was changed"
    show(session, view, value=view.cluster, table=lambda: facts([("cluster", view.cluster), ("was", said)]))


def _config_of(session: Session) -> Config:
    """Returns the configuration of --config, which is required: the default could name a different
    ensemble."""
    if session.named_file() is None:
        command = click.get_current_context().info_name
        raise click.UsageError(f"{command} with --config FILE of a daemon: it says which ZooKeeper is meant")
    return session.config()


async def _call(config: Config, name: str, *arguments: object) -> Any:
    # Imported by name, because the server packages are needed only here.
    try:
        work = getattr(import_module("torrentdist.master.founding_and_restore"), name)
    except ModuleNotFoundError as exc:
        detail = f"this needs {exc.name}, which is not installed"
        raise TorrentdistError("missing_dependency", detail=detail, package="torrentdist[server]") from None
    return await work(config, *arguments)
