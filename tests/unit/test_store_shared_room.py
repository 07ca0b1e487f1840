"""Room for a bundle that shares blocks with older ones: only what will be written is reserved, and
a source is evicted last."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from reflink_disk import MIB, with_reflinks  # noqa: F401

from torrentdist.bundle.files.shared_blocks import can_clone, disk_use
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.store.retention import IDLE_SECS, KeepReason, StoreMarks
from torrentdist.bundle.store.store import Store
from torrentdist.bundle.store.store_state import StoreState
from torrentdist.bundle.store.store_values import RoomNeeded, StoredBundle
from torrentdist.host.host_store import HostStore
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.testing.sample_trees import some_bytes, write_tree

A, B, NEW = (Digest(letter * 64) for letter in "abc")


def nothing_claimed(digest: Digest) -> Collection[KeepReason]:
    return ()


def stored(digest: Digest, size: int, used_at: float) -> StoredBundle:
    return StoredBundle(digest, size, 1, Path("/none"), False, used_at, used_at)


def state_of(*bundles: StoredBundle, limit: int = 0) -> StoreState:
    state = StoreState(limit_bytes=limit)
    for bundle in bundles:
        state.now_published(bundle)
    return state


def reserve(state: StoreState, room: RoomNeeded, free: int, own: dict[Digest, int]) -> list[Digest] | None:
    return state.reserve(NEW, room, free=free, written={}, own=own, claims=nothing_claimed)


def test_shared_blocks_need_no_room() -> None:
    """A disk that is half full would never take the next version."""
    state = state_of(stored(A, 100, 1.0))

    assert reserve(state, RoomNeeded(100, shared=90), 10, {}) == []
    assert state.arriving() == {NEW: 100}


def test_the_packs_of_what_arrives_have_their_room() -> None:
    """Two environments that arrive together would fill the disk."""
    state = state_of()
    first = state.reserve(A, RoomNeeded(100, packs=80), free=300, written={}, own={}, claims=nothing_claimed)

    assert first == []
    assert reserve(state, RoomNeeded(100, packs=30), 300, {}) is None
    assert reserve(state, RoomNeeded(100, packs=20), 300, {}) == []


def test_what_an_eviction_frees_is_what_no_other_bundle_shares() -> None:
    """Bundles would be evicted for room that their removal does not make."""
    state = state_of(stored(A, 100, 1.0), stored(B, 100, 2.0))

    assert reserve(state, RoomNeeded(50), 0, {A: 5, B: 60}) == [B]


def test_nothing_goes_if_all_evictions_together_free_too_little() -> None:
    """Old versions would be lost, and the new one would still not fit."""
    state = state_of(stored(A, 100, 1.0), stored(B, 100, 2.0))

    assert reserve(state, RoomNeeded(50), 0, {A: 5, B: 5}) is None
    assert state.arriving() == {}


def test_the_limit_counts_whole_bundles() -> None:
    """A store with a limit would grow without end, since versions share almost everything."""
    state = state_of(stored(A, 100, 1.0), limit=150)

    assert reserve(state, RoomNeeded(100, shared=100), 1000, {A: 0}) == [A]


class Site:
    """A host's store with a limit, and bundles in it."""

    def __init__(self, work: Path, limit: int = 0, disk: Path | None = None) -> None:
        """`disk`: where the store is, if not in `work`."""
        self.work = work
        self.now = 1000.0
        self.store = Store.open((disk or work) / "data", limit_bytes=limit, clock=lambda: self.now)
        self.host = HostStore(self.store, nothing_claimed)

    def meta(self, name: str, *files: int) -> Metafile:
        """Makes a bundle of files of 100 kB, each with the content of its number."""
        write_tree(self.work / name, {f"{name}-{number}": some_bytes(100_000, number) for number in files})
        return make_metafile(self.work / name)

    def publish(self, name: str, *files: int) -> Metafile:
        meta = self.meta(name, *files)
        shutil.copytree(self.work / name, self.store.begin(meta) / "content", dirs_exist_ok=True)
        self.now += 1
        self.store.publish(meta.digest)
        return meta

    async def bring(self, name: str, content: dict[str, bytes]) -> Metafile:
        """Publishes a bundle as a host does that takes known files from its other bundles."""
        write_tree(self.work / name, content)
        meta = make_metafile(self.work / name)
        home = await self.host.begin(meta) / "content"
        await self.host.fill(meta, None, lambda done: None)
        write_tree(home, {path: data for path, data in content.items() if not (home / path).exists()})
        self.now += 1
        await self.host.publish(meta.digest)
        await self.host.catch_up()
        return meta


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[[int], Site]]:
    made: list[Site] = []

    def make(limit: int) -> Site:
        made.append(Site(tmp_path, limit))
        return made[-1]

    yield make
    for one in made:
        one.store.close()


@pytest.mark.case("H4")
def test_room_is_not_made_at_the_cost_of_the_old_version(site: Callable[[int], Site]) -> None:
    """The old version would be evicted for the new one, and then every byte would be fetched."""
    here = site(550_000)
    old = here.publish("old", 1, 2)
    other = here.publish("other", 8, 9)
    new = here.meta("new", 1, 3)
    asyncio.run(here.host.begin(new))

    assert here.store.get(old.digest) is not None
    assert here.store.get(other.digest) is None


@pytest.mark.case("H4")
def test_the_old_version_goes_if_there_is_no_other_way(site: Callable[[int], Site]) -> None:
    """A small disk could never take another version."""
    here = site(350_000)
    old = here.publish("old", 1, 2)
    asyncio.run(here.host.begin(here.meta("new", 1, 3)))

    assert here.store.get(old.digest) is None


def test_a_host_without_clones_reserves_everything(tmp_path: Path) -> None:
    """A copy would fill the disk although room was promised to others."""
    if can_clone(tmp_path):
        pytest.skip("this file system can clone")
    # Other processes free and fill the same disk meanwhile.
    store = Store.open(tmp_path / "data", reserve_bytes=shutil.disk_usage(tmp_path).total)
    write_tree(tmp_path / "bundle", {"file": some_bytes(100_000, 1)})
    with pytest.raises(TorrentdistError) as caught:
        store.begin(make_metafile(tmp_path / "bundle"), shared=100_000)
    store.close()

    assert caught.value.code == "disk_full"


def fill(disk: Path) -> None:
    """Leaves 130 MiB of the disk free, so that few bytes are many."""
    with (disk / "filler").open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, shutil.disk_usage(disk).free - 130 * MIB)


def test_two_versions_fit_where_one_and_a_half_would(with_reflinks: Path, tmp_path: Path) -> None:  # noqa: F811
    """A host with reflinks would refuse a version that needs almost no room."""
    fill(with_reflinks)
    content = {f"{number}": os.urandom(4 * MIB) for number in range(20)}
    write_tree(tmp_path / "old", content)
    write_tree(tmp_path / "new", {**content, "new": os.urandom(MIB)})
    old, new = make_metafile(tmp_path / "old"), make_metafile(tmp_path / "new")
    here = Site(with_reflinks)
    try:
        write_tree(here.store.begin(old) / "content", content)
        here.store.publish(old.digest)
        free = shutil.disk_usage(with_reflinks).free
        asyncio.run(here.host.begin(new))
        filling = asyncio.run(here.host.fill(new, None, lambda done: None))
        os.sync()
        left = shutil.disk_usage(with_reflinks).free
        own = disk_use(here.store.object_dir(old.digest) / "content", clones=True).own
    finally:
        here.store.close()

    assert free < new.size
    assert filling.size == old.size
    assert own < MIB
    assert left > free - 10 * MIB


def test_a_block_that_versions_share_counts_once_for_the_mark(tmp_path: Path) -> None:
    """If this fails, a host removes bundles for a mark that it is far below, since its versions
    share almost everything."""
    here = Site(tmp_path)
    tree = {"same": os.urandom(MIB)}

    async def story() -> tuple[int, list[int]]:
        metas = [await here.bring("old", tree), await here.bring("new", {**tree, "second": os.urandom(MIB)})]
        one, other = (here.store.object_dir(meta.digest) / "content" / "same" for meta in metas)
        other.unlink()
        other.hardlink_to(one)
        here.now += 10 * IDLE_SECS
        restarted = HostStore(here.store, nothing_claimed)
        await restarted.catch_up()
        goes = [len(await restarted.plan_to_low(StoreMarks(high))) for high in (int(2.5 * MIB), int(1.5 * MIB))]
        return await restarted.taken_bytes(), goes

    try:
        taken, goes = asyncio.run(story())
    finally:
        here.store.close()

    assert 2 * MIB <= taken < 2.1 * MIB
    assert [0, 1] == goes


def test_a_store_below_its_mark_asks_for_no_claims() -> None:
    """If this fails, each look at the mark costs a look at all locks of programs, for each bundle,
    and everybody who asks for a bundle waits meanwhile."""

    def unwanted(digest: Digest) -> Collection[KeepReason]:
        raise AssertionError(digest)

    state = state_of(stored(A, MIB, 1.0), stored(B, MIB, 1.0))
    plans = [
        state.plan_to_low(StoreMarks(high), taken=2 * MIB, own={}, now=10 * IDLE_SECS, claims=unwanted)
        for high in (0, 2 * MIB)
    ]

    assert [[], []] == plans


def test_own_bytes_follow_what_is_published_and_removed(with_reflinks: Path, tmp_path: Path) -> None:  # noqa: F811
    """`bundle ls` would show the room that a version took on the day of its publication."""
    here = Site(tmp_path, disk=with_reflinks)
    tree = {name: os.urandom(MIB) for name in ("same", "first")}

    async def story() -> tuple[list[int | None], list[int | None]]:
        metas = [await here.bring("old", tree), await here.bring("new", {**tree, "second": os.urandom(MIB)})]
        before = [here.host.own_bytes(meta.digest) for meta in metas]
        await here.host.discard(metas[0].digest)
        await here.host.catch_up()
        return before, [here.host.own_bytes(meta.digest) for meta in metas]

    try:
        before, after = asyncio.run(story())
    finally:
        here.store.close()

    assert before == [0, MIB]
    assert after == [None, 3 * MIB]


def test_room_is_made_by_what_an_eviction_frees(with_reflinks: Path, tmp_path: Path) -> None:  # noqa: F811
    """Bundles would be evicted that share all their blocks, and the new one would find no room."""
    fill(with_reflinks)
    here = Site(tmp_path, disk=with_reflinks)
    large = {f"{number}": os.urandom(4 * MIB) for number in range(12)}
    alone = {f"alone {number}": os.urandom(4 * MIB) for number in range(10)}
    new = {f"new {number}": os.urandom(4 * MIB) for number in range(18)}

    async def story() -> set[Digest]:
        versions = [await here.bring("one", large), await here.bring("two", {**large, "more": b"2"})]
        await here.bring("three", alone)
        os.sync()
        write_tree(here.work / "new", new)
        await here.host.begin(make_metafile(here.work / "new"))
        return {meta.digest for meta in versions}

    try:
        versions = asyncio.run(story())
        left = here.store.published_digests()
    finally:
        here.store.close()

    assert left == versions
