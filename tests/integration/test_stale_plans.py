"""What changes between a supervisor's plan and its action, or between a look and what follows from
it: on a real store."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from keeping_hosts import ETL, arrived, keeping, unknown
from scripted_masters import Answer, Heard
from zookeeper_fixtures import eventually

from torrentdist.bundle.content_check import Damage
from torrentdist.host.http.declared_routes import DeclaredRoutes
from torrentdist.host.http.operation import api_app, operations_of
from torrentdist.host.http.web import PRINCIPAL
from torrentdist.model.configuration.config import CodeDistributorConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.fleet_messages import HostState
from torrentdist.security.authorization import LOCAL
from torrentdist.supervisor.bundles import keeping_plan
from torrentdist.supervisor.bundles.host_bundle_api import HostBundleApi
from torrentdist.supervisor.ids.room import ids_room

pytestmark = pytest.mark.anyio
DIGEST = Digest("d" * 64)
PLAIN = CodeDistributorConfig()


async def test_what_is_being_published_is_not_dropped_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, the push of an image to a host whose disk is full fails after all its bytes
    have come."""
    async with keeping(tmp_path / "data") as (host, keeper):
        meta = await arrived(host, tmp_path / "source")
        await host.runtime.store.unbind(ETL)  # An image gets its id last.
        monkeypatch.setattr(keeping_plan, "UNWANTED_SECS", 0.0)
        async with host.runtime.turn(meta.digest):
            keeper.poke()
            await asyncio.sleep(0.3)
            during = host.runtime.store.arriving()
        keeper.poke()
        await eventually(lambda: not host.runtime.store.arriving())

        assert [meta.digest] == list(during)


async def test_what_is_uploaded_again_while_others_are_dropped_stays(tmp_path: Path) -> None:
    """If this fails, the only copy of an image that was pushed again is deleted because the host
    had meant to drop the old one."""
    async with keeping(tmp_path / "data") as (host, keeper):
        store, meta = host.runtime.store, await arrived(host, tmp_path / "source")
        await store.publish(meta.digest)
        async with host.runtime.turn(meta.digest):
            keeper.hear_removed({meta.digest: 0})
            await asyncio.sleep(0.3)
            keeper.hear_given(meta.digest, 9)
        keeper.poke()
        await asyncio.sleep(0.3)
        stays = store.get(meta.digest) is not None
        keeper.hear_removed({meta.digest: 10})
        await eventually(lambda: store.get(meta.digest) is None)

        assert stays


async def test_a_bundle_waits_between_the_order_and_the_plan(tmp_path: Path) -> None:
    """If this fails, who asks a host about a bundle that it was just told to keep is told that
    there is no such bundle."""
    async with keeping(tmp_path / "data") as (_, keeper):
        keeper.assign(frozenset({ETL}), {})
        view = await keeper.view(ETL)

        assert HostState.WAITING == view.state


def local_user(api: DeclaredRoutes) -> httpx.AsyncClient:
    """Returns a client of these operations that any program of the host could be."""
    app = api_app(operations_of(api))

    async def as_local(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, PRINCIPAL: LOCAL}, receive, send)

    return httpx.AsyncClient(transport=httpx.ASGITransport(app=as_local), base_url="http://h")


@pytest.mark.parametrize(("query", "fetches"), [("&asked=0", 2), ("", 1)], ids=["now", "unknown when"])
async def test_what_others_had_asked_for_is_no_answer(tmp_path: Path, query: str, fetches: int) -> None:
    """If this fails, a program that starts just after a bundle was signed or uploaded is told that
    it is not, because another one had asked a moment earlier."""
    asked: list[Heard] = []
    later: list[asyncio.Task[httpx.Response]] = []

    def script(heard: Heard) -> Answer:
        if "metafile" in heard.path:
            asked.append(heard)
            if not later:  # Another program asks while the first one waits for this answer.
                later.append(asyncio.create_task(client.get(f"/v1/host/bundles/{ETL}?wait=2{query}")))
        return unknown(heard)

    async with keeping(tmp_path / "data", script) as (host, keeper):
        async with local_user(HostBundleApi(host.runtime, keeper)) as client:
            keeper.request(ETL)
            await eventually(lambda: bool(later))
            answer = await later[0]

        assert (404, "bundle_not_found") == (answer.status_code, answer.json()["error"])
        assert fetches == len(asked)


async def test_a_bundle_whose_place_was_told_is_used(tmp_path: Path) -> None:
    """If this fails, `prune` and a full disk take the bundle first that was downloaded last."""
    async with keeping(tmp_path / "data") as (host, keeper):
        meta = await arrived(host, tmp_path / "source")
        published = await host.runtime.store.publish(meta.digest)
        async with local_user(HostBundleApi(host.runtime, keeper)) as client:
            answer = await client.get(f"/v1/host/bundles/{ETL}")
        stored = host.runtime.store.get(meta.digest)

        assert (200, "done") == (answer.status_code, answer.json()["state"])
        assert stored is not None
        assert stored.used_at > published.used_at


async def test_a_bundle_that_is_deleted_while_it_is_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, an operator is told of damage where a bundle was evicted, and a fetch of it
    that has begun since is cut off."""
    async with keeping(tmp_path / "data", distributor=PLAIN) as (host, _):
        store, meta = host.runtime.store, await arrived(host, tmp_path / "source")
        await host.runtime.fetches.publish(meta)
        read = store.verify

        async def evicted_meanwhile(digest: Digest) -> list[Damage]:
            shutil.rmtree(store.object_dir(digest) / "content")
            damage = await read(digest)
            await store.discard(digest)
            return damage

        monkeypatch.setattr(store, "verify", evicted_meanwhile)
        assert [] == await host.runtime.verify(meta.digest)
        assert [] == list(store.arriving())


async def test_masters_that_do_not_answer_are_asked_once_for_all_removed_bundles(tmp_path: Path) -> None:
    """If this fails, a master that is off is waited for as often as bundles were removed, and those
    that were removed last are forgotten last."""
    asked: list[str] = []

    def silent(heard: Heard) -> Answer:
        asked.append(heard.path)
        return None

    async with keeping(tmp_path / "data", silent) as (_, keeper):
        for number in range(20):
            keeper._forgetting.note(BundleId(f"gone-{number}"), DIGEST)
        keeper.poke()
        await eventually(lambda: asked)
        await asyncio.sleep(0.3)

    assert 1 == len(asked)


async def test_one_link_that_cannot_be_checked_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, one bundle on a bad part of the disk ends the supervisor."""
    async with keeping(tmp_path / "data", ids_dir=str(tmp_path / "ids")) as (host, keeper):
        loop = ids_room(host, keeper).loops[0]
        meta = await arrived(host, tmp_path / "source")
        await host.runtime.store.publish(meta.digest)
        await host.runtime.store.bind(BundleId("other"), meta.digest)
        keeper.assign(frozenset({ETL, BundleId("other")}), {})
        checked = keeper.checked

        async def failing(bundle: BundleId) -> object:
            if bundle == ETL:
                raise TorrentdistError("disk_error", path=str(tmp_path), detail="Input/output error")
            return await checked(bundle)

        monkeypatch.setattr(keeper, "checked", failing)
        running = asyncio.create_task(loop.run())
        await eventually(lambda: (tmp_path / "ids" / "other").is_symlink())
        ended = running.done()
        running.cancel()

        assert not ended
        assert ["other"] == [name for name in os.listdir(tmp_path / "ids") if not name.startswith(".")]
