"""A limit on a fetch, with real engines: it counts from the first byte."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engines_in_process import LARGE, MiB, address, engines, published, run
from zookeeper_fixtures import eventually

from torrentdist.bundle.metafile import Metafile
from torrentdist.host.swarm_transfers import SwarmTransfers
from torrentdist.swarm.engine.engine import Engine, EngineConfig, Transfer

RATE = 100_000


class LateEngine(Engine):
    """An engine whose process waits for a processor just after a fetch has begun."""

    def fetch(self, *args: Any, **kwargs: Any) -> Transfer:
        transfer = super().fetch(*args, **kwargs)
        time.sleep(0.5)
        return transfer


@asynccontextmanager
async def taking(taker: Engine, tmp_path: Path, **store: Any) -> AsyncIterator[tuple[Metafile, SwarmTransfers]]:
    """Starts an engine that takes what another one gives. `store`: what its store has besides."""
    await taker.start()
    try:
        async with engines(EngineConfig()) as (giver,):
            meta = published(tmp_path / "a", LARGE)
            giver.seed(meta, tmp_path / "a")
            await eventually(lambda: giver.transfers()[0].handle is not None)
            arriving = {"arriving": lambda: {meta.digest}, "hear_deletions": lambda told: None}
            there = SimpleNamespace(**arriving, **store)
            parts: Any = SimpleNamespace(store=there, engine=taker, tell_masters=lambda within: None)
            known: Any = SimpleNamespace(place=lambda digest: None)
            yield meta, SwarmTransfers(parts, known, lambda digest: [address(giver, complete=True)])
    finally:
        await taker.close()


def test_no_byte_comes_before_the_limit(tmp_path: Path) -> None:
    """If this fails, a small bundle arrives at full speed on a busy host, whatever its limit."""

    async def scenario() -> None:
        taker = LateEngine(EngineConfig())
        async with taking(taker, tmp_path) as (meta, transfers):
            transfers.share_limit([meta.digest], RATE)
            fetching = asyncio.create_task(transfers.fetch(meta, tmp_path / "b"))
            await eventually(lambda: taker.transfers() and taker.transfers()[0].handle is not None)
            handle = taker.transfers()[0].handle
            assert handle is not None
            await eventually(lambda: handle.status().total_payload_download > 0)
            assert handle.status().total_payload_download < 2 * MiB
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)

    run(scenario())


def test_a_limit_higher_than_libtorrent_knows_ends_no_fetch(tmp_path: Path) -> None:
    """If this fails, a bundle that is distributed with `--rate 3G` arrives nowhere."""

    async def room(_: int) -> None:
        pass

    async def scenario() -> None:
        taker = Engine(EngineConfig(download_limit=3 * 10**9))
        async with taking(taker, tmp_path, check_room=room) as (meta, transfers):
            transfers.limit(meta.digest, 2**50)
            await transfers.fetch(meta, tmp_path / "b")
            taker.set_rate(download=2**50)

    run(scenario())
