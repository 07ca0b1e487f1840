"""A supervisor gives back the room of what nobody wants, and has its plug-in forget what was
removed: the room of its bundles, on a real store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from scripted_masters import Master
from zookeeper_fixtures import eventually

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.distributor.plugin_files import keep_metafile
from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.model.configuration.config import ClientConfig, CodeDistributorConfig, Config, SupervisorConfig
from torrentdist.model.ids import BundleId
from torrentdist.model.removals import removal_mark
from torrentdist.supervisor.bundles import keeping_plan
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.bundles.room import bundle_room
from torrentdist.supervisor.daemon import Supervisor
from torrentdist.testing.sample_trees import SMALL, Tree, write_tree

pytestmark = pytest.mark.anyio
ETL = BundleId("etl-1")
PLUGIN = "torrentdist.distributor.local:LocalCodeDistributor"


@asynccontextmanager
async def keeping(directory: Path) -> AsyncIterator[tuple[HostDaemon, Keeper]]:
    """Yields a host and its keeper at work. Its only master knows no bundle."""
    master = Master(lambda heard: (404, {"error": "bundle_not_found", "fields": {"id": "etl-1"}}))
    await master.start()
    config = Config(
        supervisor=SupervisorConfig(id="s1", data_dir=str(directory), ids_dir="", gateway_port=0),
        client=ClientConfig(masters=[master.url]),
        codedistributor=CodeDistributorConfig(class_=PLUGIN),
    )
    host = await Supervisor(config).open_host()
    keeper = bundle_room(host).keeper
    keeper.knows_assignment = True
    loop = asyncio.create_task(keeper.run())
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


async def test_the_room_of_a_failed_fetch_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a host fills up with parts of bundles that nobody wants, until it restarts and
    after that too."""
    async with keeping(tmp_path / "data") as (host, keeper):
        meta = await arrived(host, tmp_path / "source")
        reserved = host.runtime.store.usage().arriving_bytes
        monkeypatch.setattr(keeping_plan, "UNWANTED_SECS", 0.0)
        keeper.poke()
        await eventually(lambda: not host.runtime.store.arriving())

        assert meta.size == reserved
        assert 0 == host.runtime.store.usage().arriving_bytes


async def test_the_only_copy_of_a_bundle_is_not_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a bundle of which one file was damaged here is lost although the rest of it
    may be its last copy."""
    async with keeping(tmp_path / "data") as (host, keeper):
        store, meta = host.runtime.store, await arrived(host, tmp_path / "source")
        await store.publish(meta.digest)
        await host.runtime.set_aside(meta.digest, "a file is damaged")
        monkeypatch.setattr(keeping_plan, "UNWANTED_SECS", 0.0)
        for _ in range(2):  # the second ends after a round that began with both
            await arrived(host, tmp_path / "other", {"other": b"content"})
            keeper.poke()
            await eventually(lambda: len(store.arriving()) == 1)

        assert [meta.digest] == store.arriving()


async def test_a_plugin_forgets_a_removed_bundle(tmp_path: Path) -> None:
    """If this fails, what a plug-in keeps for a bundle stays on every host for ever."""
    async with keeping(tmp_path / "data") as (host, keeper):
        meta = await arrived(host, tmp_path / "source")
        await host.runtime.store.publish(meta.digest)
        kept = keep_metafile(host.runtime.store.data_dir / "distributor", ETL, meta.digest, meta.raw)
        keeper.hear_removed(frozenset({meta.digest}))
        await eventually(lambda: not kept.exists())

        assert host.runtime.store.get(meta.digest) is None


async def test_a_removal_that_the_disk_refuses_is_heard_again(tmp_path: Path) -> None:
    """If this fails, a removal that meets a full disk ends the supervisor, or the host goes on
    giving out the bundle."""
    async with keeping(tmp_path / "data") as (host, keeper):
        store, meta = host.runtime.store, await arrived(host, tmp_path / "source")
        await store.publish(meta.digest)
        bindings, aside = store.data_dir / "catalog.log", tmp_path / "aside"
        bindings.rename(aside)
        bindings.mkdir()  # nothing can be written there
        await keeper.hear_removals([removal_mark(ETL, meta.digest)])
        refused = store.lookup(ETL)
        bindings.rmdir()
        aside.rename(bindings)
        await keeper.hear_removals([removal_mark(ETL, meta.digest)])

        assert meta.digest == refused
        assert store.lookup(ETL) is None
