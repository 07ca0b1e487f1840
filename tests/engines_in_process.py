"""Engines for tests: several in one process, on loopback, with real libtorrent and real files.

Always: an engine that `engines` starts is closed at the end of the block.
Always: a scenario that `run` runs has a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from torrentdist.bundle.content_check import finish_content
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.packs.pack_files import write_packs
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.swarm.engine.engine import Engine, EngineConfig
from torrentdist.testing.sample_trees import Tree, some_bytes, write_tree

MiB = 1024 * 1024
DEADLINE_SECS = 60.0
LARGE: Tree = {"large.bin": some_bytes(8 * MiB, 5), "small.bin": some_bytes(10, 6)}


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Runs the scenario to its end, or fails at the deadline."""

    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_SECS):
            await scenario

    asyncio.run(limited())


def published(home: Path, tree: Tree, *, packed: bool = True) -> Metafile:
    """Makes a bundle as a store publishes it, in `home`/content and `home`/packs."""
    write_tree(home / "content", tree)
    meta = make_metafile(home / "content", packed=packed)
    finish_content(meta, home / "content")
    write_packs(meta, home / "content", home)
    return meta


@asynccontextmanager
async def engines(
    *configs: EngineConfig, on_blocked: Callable[[str], None] | None = None
) -> AsyncIterator[list[Engine]]:
    """Yields started engines, one for each configuration."""
    running = [Engine(config, on_blocked=on_blocked) for config in configs]
    try:
        for engine in running:
            await engine.start()
        yield running
    finally:
        for engine in running:
            await engine.close()


def some(count: int) -> list[EngineConfig]:
    """Returns default configurations for `count` engines."""
    return [EngineConfig()] * count


def address(engine: Engine, role: PeerRole = PeerRole.MASTER, *, complete: bool = False) -> PeerAddress:
    """Returns the address by which other engines find this one."""
    return PeerAddress(host=engine.host, port=engine.port, role=role, complete=complete, tls_port=engine.tls_port)
