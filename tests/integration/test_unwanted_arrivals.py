"""A supervisor gives back the room of what nobody wants, and has its plug-in forget what was
removed: the room of its bundles, on a real store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from keeping_hosts import ETL, arrived, keeping, unknown
from scripted_masters import Answer, Heard
from zookeeper_fixtures import eventually

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.store.retention import KeepReason
from torrentdist.distributor.plugin_files import keep_metafile
from torrentdist.host.process import background_loops
from torrentdist.model.configuration.config import CodeDistributorConfig
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.bundle_terms import BundleTerms
from torrentdist.model.removals import removal_mark
from torrentdist.model.wire.headers import DIGEST, ZXID
from torrentdist.model.wire.swarm_messages import SwarmAnnounce
from torrentdist.supervisor.bundles import keeper as keeper_module
from torrentdist.supervisor.bundles import keeping_plan
from torrentdist.supervisor.bundles.keeping_plan import CancelFetch, FetchBundle
from torrentdist.swarm.directory.directory import SwarmDirectory, SwarmFacts
from torrentdist.testing.sample_trees import SMALL, write_tree

pytestmark = pytest.mark.anyio


def offered(
    source: Path, headers: Mapping[str, str] = MappingProxyType({})
) -> tuple[Metafile, Callable[[Heard], Answer]]:
    """Makes a bundle. Returns its metafile, and what a master that has it answers."""
    write_tree(source, SMALL)
    meta = make_metafile(source)

    def giving(heard: Heard) -> Answer:
        if "/metafile" not in heard.path:
            return unknown(heard)
        return 200, meta.raw, {DIGEST: meta.digest, **headers}

    return meta, giving


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


async def test_a_plugin_forgets_what_arrived_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, what a plug-in keeps for a bundle that was removed before it had arrived stays
    until the host restarts."""
    async with keeping(tmp_path / "data") as (host, keeper):
        meta = await arrived(host, tmp_path / "source")
        kept = keep_metafile(host.runtime.store.data_dir / "distributor", ETL, meta.digest, meta.raw)
        monkeypatch.setattr(keeping_plan, "UNWANTED_SECS", 0.0)
        keeper.poke()
        await eventually(lambda: not kept.exists())

        assert host.runtime.store.lookup(ETL) is None


async def test_a_mistake_ends_no_keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, one bundle ends the host's daemon again and again, or the host never fetches
    or drops anything any more."""
    monkeypatch.setattr(background_loops, "FIRST_PAUSE_SECS", 0.01)
    async with keeping(tmp_path / "data", distributor=CodeDistributorConfig()) as (host, keeper):
        meta = await arrived(host, tmp_path / "source")
        await host.runtime.fetches.publish(meta)
        mistakes: dict[str, int] = {"action": 0, "round": 0}

        def fails_once(what: str) -> bool:
            mistakes[what] += 1
            if mistakes[what] == 1:
                raise ZeroDivisionError
            return False

        keeper.is_content_leased = lambda _: fails_once("action")
        monkeypatch.setattr(keeper, "after_round", lambda: fails_once("round"))
        keeper.hear_removed({meta.digest: 1})
        await eventually(lambda: mistakes["action"] > 0)
        keeper.poke()
        await eventually(lambda: host.runtime.store.get(meta.digest) is None)
        await eventually(lambda: mistakes["round"] > 1)


async def test_what_the_store_deletes_leaves_its_swarm(tmp_path: Path) -> None:
    """If this fails, a host goes on to offer what it has evicted, and peers wait for it."""
    async with keeping(tmp_path / "data", distributor=CodeDistributorConfig()) as (host, _):
        meta = await arrived(host, tmp_path / "source")
        await host.runtime.fetches.publish(meta)
        assert host.runtime.engine.transfer(meta.digest) is not None

        assert await host.runtime.store.discard(meta.digest)
        await eventually(lambda: host.runtime.engine.transfer(meta.digest) is None)
        assert await host.runtime.transfers.seed(meta.digest) is None


async def test_a_fetch_that_is_given_up_before_it_began_can_be_made_again(tmp_path: Path) -> None:
    """If this fails, a host that is told to keep a bundle, and in the same moment not to, does not
    fetch it any more until it is restarted."""
    async with keeping(tmp_path / "data") as (_, keeper):
        await keeper._carry_out(FetchBundle(ETL))
        await keeper._carry_out(CancelFetch(ETL))

        assert not keeper.fetching(ETL)


@pytest.mark.parametrize("also", [False, True])
async def test_a_fetch_that_is_given_up_while_it_makes_room_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, also: bool
) -> None:
    """If this fails, a host goes on to fetch all of a bundle whose distribution was cancelled while
    it still made room; or another bundle with the same content does not arrive."""
    (meta, giving), other = offered(tmp_path / "source"), BundleId("other-1")
    async with keeping(tmp_path / "data", giving, CodeDistributorConfig()) as (host, keeper):
        store, has_room = host.runtime.store, asyncio.Event()
        begin = store.begin

        async def once_there_is_room(*args: Any) -> Path:
            await has_room.wait()
            return await begin(*args)

        monkeypatch.setattr(store, "begin", once_there_is_room)
        keeper.assign(frozenset({ETL, other} if also else {ETL}), {})
        await eventually(lambda: len(keeper._contents) == 1 + also)
        keeper.assign(frozenset({other} if also else ()), {})
        await eventually(lambda: not keeper.fetching(ETL))
        has_room.set()
        await asyncio.sleep(0.1)

        assert also is (meta.digest in host.runtime.fetches.under_way())


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


def with_a_copy(heard: Heard, *, pinned: bool = False) -> Answer:
    """Answers announces as a master that holds every bundle."""
    if heard.path != "/v1/swarm":
        return unknown(heard)
    announce = msgspec.json.decode(heard.body, type=SwarmAnnounce)
    facts = SwarmFacts(replicas=1, pinned=pinned)
    answer = SwarmDirectory().announce(announce, source_host="127.0.0.1", now=0.0, facts=lambda digest: facts)
    return 200, msgspec.json.encode(answer)


async def test_what_is_not_seeded_any_more_may_go_for_room(tmp_path: Path) -> None:
    """If this fails, a host with `supervisor.seed_secs` keeps every bundle that it ever had, and
    once its disk is full, nothing arrives there any more."""
    async with keeping(tmp_path / "data", with_a_copy, CodeDistributorConfig()) as (host, keeper):
        meta = await arrived(host, tmp_path / "source")
        await host.runtime.fetches.publish(meta)
        await host.runtime.transfers.stop_seeding(meta.digest)
        unheard = keeper.claims(meta.digest)
        await host.agent.announce()

        assert {KeepReason.COPIES_UNKNOWN} == unheard
        assert set() == keeper.claims(meta.digest)


async def test_a_host_keeps_what_masters_call_pinned(tmp_path: Path) -> None:
    """If this fails, a host with a full disk deletes a bundle that an operator has pinned."""
    async with keeping(tmp_path / "data", partial(with_a_copy, pinned=True), CodeDistributorConfig()) as (host, keeper):
        meta = await arrived(host, tmp_path / "source")
        await host.runtime.fetches.publish(meta)
        await host.agent.announce()

        assert {KeepReason.PINNED} == keeper.claims(meta.digest)


async def test_what_is_damaged_and_unwanted_goes_if_a_master_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a bundle of which a file was damaged takes its room for ever, also after it
    was removed from the cluster."""
    async with keeping(tmp_path / "data", with_a_copy, CodeDistributorConfig()) as (host, keeper):
        store, meta = host.runtime.store, await arrived(host, tmp_path / "source")
        await host.runtime.fetches.publish(meta)
        await host.runtime.set_aside(meta.digest, "a file is damaged")
        monkeypatch.setattr(keeping_plan, "UNWANTED_SECS", 0.0)
        await host.agent.announce()
        keeper.poke()
        await eventually(lambda: not store.arriving())


async def test_a_plugin_forgets_a_removed_bundle(tmp_path: Path) -> None:
    """If this fails, what a plug-in keeps for a bundle stays on every host for ever."""
    async with keeping(tmp_path / "data") as (host, keeper):
        meta = await arrived(host, tmp_path / "source")
        await host.runtime.store.publish(meta.digest)
        kept = keep_metafile(host.runtime.store.data_dir / "distributor", ETL, meta.digest, meta.raw)
        keeper.hear_removed({meta.digest: 0})
        await eventually(lambda: not kept.exists())

        assert host.runtime.store.get(meta.digest) is None


@pytest.mark.parametrize(("seen", "stays"), [(8, True), (9, False)])
async def test_a_master_that_has_seen_less_than_who_gave_a_bundle_ends_no_fetch(
    tmp_path: Path, seen: int, stays: bool
) -> None:
    """If this fails, a master that is cut off, and does not know it yet, has hosts drop what was
    removed and uploaded again."""
    meta, giving = offered(tmp_path / "source", {ZXID: "9"})
    async with keeping(tmp_path / "data", giving, CodeDistributorConfig()) as (host, keeper):
        keeper.request(ETL)
        await eventually(lambda: host.runtime.store.lookup(ETL) == meta.digest)
        for _ in range(2):
            keeper.hear_removed({})
            keeper.hear_removed({meta.digest: seen})
        keeper.poke()
        await asyncio.sleep(0.3)

        assert stays is (keeper.error(ETL) is None)


async def test_who_asks_while_a_removed_bundle_is_dropped_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a reader of the gateway waits for 40 s, and is told that it timed out."""
    async with keeping(tmp_path / "data") as (host, keeper):
        store, meta = host.runtime.store, await arrived(host, tmp_path / "source")
        await store.publish(meta.digest)
        drop = host.runtime.drop

        async def asked_meanwhile(*args: Any) -> bool:
            gone = await drop(*args)
            keeper.request(ETL)
            return gone

        monkeypatch.setattr(host.runtime, "drop", asked_meanwhile)
        keeper.hear_removed({meta.digest: 0})
        await eventually(lambda: keeper.error(ETL) is not None)

        assert "bundle_not_found" == getattr(keeper.error(ETL), "code", "")


async def test_who_waits_for_a_bundle_that_is_removed_meanwhile_is_answered(tmp_path: Path) -> None:
    """If this fails, a reader of a bundle that is removed while it arrives waits until its patience
    is over, and is told that peers send nothing."""
    meta, giving = offered(tmp_path / "source")
    async with keeping(tmp_path / "data", giving, CodeDistributorConfig()) as (host, keeper):
        keeper.request(ETL)
        await eventually(lambda: host.runtime.store.lookup(ETL) == meta.digest)
        await keeper.hear_removals([removal_mark(ETL, meta.digest)])
        await eventually(lambda: not keeper.fetching(ETL))

        assert "bundle_not_found" == getattr(keeper.error(ETL), "code", "")


async def test_the_removal_of_one_name_takes_nothing_from_another(tmp_path: Path) -> None:
    """If this fails, a host drops a new bundle, also under a worker that runs, because an older one
    with the same content was removed and one master is slow."""
    async with keeping(tmp_path / "data") as (host, keeper):
        store, meta = host.runtime.store, await arrived(host, tmp_path / "source")
        await store.publish(meta.digest)
        await store.bind(BundleId("new-1"), meta.digest)
        keeper.hear_given(meta.digest, 9)
        await keeper.hear_removals([removal_mark(ETL, meta.digest)])
        keeper.hear_removed({meta.digest: 8})
        keeper.poke()
        await asyncio.sleep(0.3)
        stays = store.get(meta.digest) is not None
        keeper.hear_removed({meta.digest: 10})
        await eventually(lambda: store.get(meta.digest) is None)

        assert stays


async def test_a_bundle_that_is_uploaded_again_arrives_although_slow_masters_call_it_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, somebody who removes a bundle and uploads it again is told that it does not
    exist, until the next announce of each host."""
    meta, giving = offered(tmp_path / "source")
    async with keeping(tmp_path / "data", giving, CodeDistributorConfig()) as (host, keeper):
        keeper.hear_removed({meta.digest: 0})
        keeper.request(ETL)
        await eventually(lambda: host.runtime.store.lookup(ETL) == meta.digest)
        keeper.hear_removed({meta.digest: 0})
        keeper.poke()
        await asyncio.sleep(0.3)
        given_up = keeper.error(ETL)
        monkeypatch.setattr(keeper_module, "GIVEN_AGAIN_SECS", 0.0)
        keeper.hear_removed({meta.digest: 0})
        await eventually(lambda: keeper.error(ETL) is not None)

        assert given_up is None
        removed_again = keeper.error(ETL)
        assert removed_again is not None
        assert "bundle_not_found" == removed_again.code


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


async def test_a_removal_that_fails_by_a_mistake_ends_no_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, one strange bundle that is removed ends the supervisor of each host that has
    it, at each start, or the host goes on giving out others that are removed."""
    async with keeping(tmp_path / "data") as (host, keeper):
        store, meta, other = host.runtime.store, await arrived(host, tmp_path / "source"), BundleId("z-other")
        await store.publish(meta.digest)
        await store.bind(other, meta.digest)
        unbind = store.unbind

        async def fails_once(bundle: BundleId) -> None:
            monkeypatch.setattr(store, "unbind", unbind)
            raise ZeroDivisionError

        monkeypatch.setattr(store, "unbind", fails_once)
        marks = [removal_mark(bundle, meta.digest) for bundle in (ETL, other)]
        await keeper.hear_removals(marks)
        after_the_first = store.lookup(ETL), store.lookup(other)
        await keeper.hear_removals(marks)

        assert (meta.digest, None) == after_the_first
        assert store.lookup(ETL) is None


async def test_a_worker_waits_for_no_limit(tmp_path: Path) -> None:
    """If this fails, a job starts hours late because its bundle is being distributed at a rate."""
    meta, giving = offered(tmp_path / "source")
    async with keeping(tmp_path / "data", giving, CodeDistributorConfig()) as (host, keeper):

        def limit() -> int:
            transfer = host.runtime.engine.transfer(meta.digest)
            return -1 if transfer is None else transfer.receive_limit

        keeper.assign(frozenset({ETL}), {ETL: BundleTerms(rate=1000)})
        await eventually(lambda: limit() == 1000)
        keeper.need(frozenset({ETL}))
        needed = limit()
        keeper.need(frozenset())

        assert (0, 1000) == (needed, limit())
