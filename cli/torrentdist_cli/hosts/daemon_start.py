"""Starts a daemon for `master --config` and `supervisor --config`, if this installation can run
one. `torrentdist master` does nothing else.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import click

from torrentdist.model.configuration.fixed_settings import warnings
from torrentdist.model.configuration.settings import DEFAULT_ORIGIN, PREFIX
from torrentdist.model.errors import TorrentdistError
from torrentdist_cli.frame.command import Command, Session
from torrentdist_cli.frame.terminal import say


def entry_of(module: str, extra: str = "server") -> Callable[..., None]:
    """Returns `run` of a daemon's module. Raises `missing_dependency` if the packages of its extra
    are not installed."""
    try:
        return cast(Callable[..., None], import_module(module).run)
    except ModuleNotFoundError as exc:
        if (exc.name or "torrentdist").partition(".")[0] == "torrentdist":
            raise
        detail = f"a daemon needs {exc.name}, which is not installed"
        raise TorrentdistError("missing_dependency", detail=detail, package=f"torrentdist[{extra}]") from None


def start(session: Session, role: str, **options: Any) -> None:
    """Runs the daemon of this role. Requires an explicit configuration: a daemon never starts with
    a file that happens to be found."""
    file = session.named_file()
    if file is None:
        raise click.UsageError("a daemon is started with --config FILE")
    loaded = session.loaded()
    _require_role(file, role, loaded.origins)
    for sentence in warnings(loaded.origins, DEFAULT_ORIGIN):
        say(sentence, label="warning:")
    entry_of(f"torrentdist.{role}.daemon")(loaded.config, **options)


def _require_role(file: Path, role: str, origins: Mapping[str, str]) -> None:
    """Raises `role_missing` if neither the file nor a variable configures this role, as with a
    client's file."""
    import tomllib

    named = role in tomllib.loads(file.read_text(encoding="utf-8"))
    if not named and not any(origins[key].startswith(PREFIX) for key in origins if key.startswith(f"{role}.")):
        raise TorrentdistError("role_missing", path=str(file), role=role)


@click.command(cls=Command)
@click.option("--repair-acls", is_flag=True, help="Repair the ACL of every znode before starting.")
def master(session: Session, repair_acls: bool) -> None:
    """Run a master, in the foreground, until SIGTERM or Ctrl-C."""
    start(session, "master", repair_acls=repair_acls)
