"""A supervisor's room of bundles at work on a real store, with a master that a script plays."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from scripted_masters import Answer, Heard, Master

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.host.process.background_loops import repeated
from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.model.configuration.config import ClientConfig, CodeDistributorConfig, Config, SupervisorConfig
from torrentdist.model.ids import BundleId
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.bundles.room import bundle_room
from torrentdist.supervisor.daemon import Supervisor
from torrentdist.testing.sample_trees import SMALL, Tree, write_tree

ETL = BundleId("etl-1")
LOCAL = CodeDistributorConfig(class_="torrentdist.distributor.local:LocalCodeDistributor")


def unknown(heard: Heard) -> Answer:
    return 404, {"error": "bundle_not_found", "fields": {"id": "etl-1"}}


@asynccontextmanager
async def keeping(
    directory: Path,
    script: Callable[[Heard], Answer] = unknown,
    distributor: CodeDistributorConfig = LOCAL,
    ids_dir: str = "",
) -> AsyncIterator[tuple[HostDaemon, Keeper]]:
    """Yields a host and its keeper at work, and `script` plays its only master."""
    master = Master(script)
    await master.start()
    config = Config(
        supervisor=SupervisorConfig(id="s1", data_dir=str(directory), ids_dir=ids_dir, gateway_port=0),
        client=ClientConfig(masters=[master.url]),
        codedistributor=distributor,
    )
    host = await Supervisor(config).open_host()
    keeper = bundle_room(host).keeper
    keeper.knows_assignment = True
    loop = asyncio.create_task(repeated("keeper", keeper.run, Counter()))
    try:
        yield host, keeper
    finally:
        loop.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loop
        await host.close()
        await master.stop()


async def arrived(host: HostDaemon, source: Path, tree: Tree = SMALL) -> Metafile:
    """Lets a bundle arrive, and leaves it unpublished."""
    write_tree(source, tree)
    meta = make_metafile(source)
    write_tree(await host.runtime.store.begin(meta) / "content", tree)
    await host.runtime.store.bind(ETL, meta.digest)
    return meta
