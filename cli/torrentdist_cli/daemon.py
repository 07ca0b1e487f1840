"""What `master --config` and `supervisor --config` have in common: can this installation run a daemon at all?"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

import click

from torrentdist.model.errors import TorrentdistError
from torrentdist_cli.session import Session


def entry_of(module: str) -> Callable[..., None]:
    """`run` of a daemon's module; `missing_dependency` if what servers need is not installed."""
    try:
        return cast(Callable[..., None], import_module(module).run)
    except ModuleNotFoundError as exc:
        if (exc.name or "torrentdist").partition(".")[0] == "torrentdist":
            raise
        detail = f"a daemon needs {exc.name}, which is not installed"
        raise TorrentdistError("missing_dependency", detail=detail, package="torrentdist[server]") from None


def start(ctx: click.Context, module: str, **options: Any) -> None:
    """Run the daemon with the configuration as it was given; a daemon never starts by what lies about."""
    session = ctx.ensure_object(Session)
    if session.config_file is None:
        raise click.UsageError("a daemon is started with --config FILE", ctx)
    config = session.config()
    entry_of(module)(config, **options)
