"""Gives commands a client of the masters that warns on stderr about waits and about answers from
old records.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.configuration.config import ClientConfig
from torrentdist_cli.frame.terminal import say


@contextlib.asynccontextmanager
async def masters(config: ClientConfig) -> AsyncIterator[MasterClient]:
    async with MasterClient(config, on_wait=lambda why: say(why, label="waiting", color="yellow")) as client:
        yield client
        if client.stale is not None:
            say(client.stale.sentence(), label="warning:", color="yellow")
