"""The masters, as a command asks them: what they answer from old records is said to be so, on stderr."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import click

from torrentdist.client.http import MasterClient
from torrentdist.model.config import ClientConfig
from torrentdist_cli.text import printable


@contextlib.asynccontextmanager
async def masters(config: ClientConfig) -> AsyncIterator[MasterClient]:
    async with MasterClient(config) as client:
        client.on_wait = lambda why: click.echo(f"{click.style('waiting', fg='yellow')} {printable(why)}", err=True)
        yield client
        if client.stale is not None:
            click.echo(f"{click.style('warning:', fg='yellow')} {client.stale.sentence()}", err=True)
