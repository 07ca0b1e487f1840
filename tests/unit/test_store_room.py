"""Room in a store: reserved before the first byte, made by evicting unneeded bundles, or
refused."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.store import objects
from torrentdist.bundle.store.retention import StoreMarks, why_full
from torrentdist.bundle.store.store import KeepReason, Store, claim_everything
from torrentdist.bundle.store.store_values import StoreUsage
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest

KIB = 1024


def nothing_claimed(digest: Digest) -> Collection[KeepReason]:
    return ()


@pytest.mark.parametrize(
    ("free", "arriving", "high", "expected"),
    [
        (257, 0, 0, ""),
        (256, 0, 0, "no more than store.reserve_bytes is free on its disk"),
        (257, 20, 100, ""),
        (257, 21, 100, "its bundles take more than store.high"),
    ],
)
def test_a_store_says_when_it_is_full(free: int, arriving: int, high: int, expected: str) -> None:
    """If this fails, a full disk is not named before a fetch fails, or one with room is named."""
    usage = StoreUsage(
        published=1, published_bytes=80, arriving=1, arriving_bytes=arriving, limit_bytes=0, reserve_bytes=256,
        free_bytes=free,
    )  # fmt: skip

    assert expected == why_full(usage, StoreMarks(high), 80)


def claimed(which: Metafile, claim: KeepReason) -> Callable[[Digest], Collection[KeepReason]]:
    return lambda digest: {claim} if digest == which.digest else ()


@dataclass
class Bundles:
    """Makes bundles of one file each, and puts them into a store. Its clock ticks with every
    publication."""

    tmp_path: Path
    now: float = 1000.0
    stores: list[Store] = field(default_factory=list)

    def open(self, *, limit_bytes: int = 0, reserve_bytes: int = 0, as_bytes_come: bool = False) -> Store:
        store = Store.open(
            self.tmp_path / "data", limit_bytes=limit_bytes, reserve_bytes=reserve_bytes,
            as_bytes_come=as_bytes_come, clock=lambda: self.now,
        )  # fmt: skip
        self.stores.append(store)
        return store

    def make(self, name: str, size: int) -> Metafile:
        folder = self.tmp_path / "sources" / name
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(name.encode()[:1] * size)
        return make_metafile(folder)

    def put(self, store: Store, name: str, size: int) -> Metafile:
        meta = self.make(name, size)
        shutil.copy(self.tmp_path / "sources" / name / "file", store.begin(meta) / "content")
        self.now += 1
        store.publish(meta.digest)
        return meta


@pytest.fixture
def bundles(tmp_path: Path) -> Iterator[Bundles]:
    bundles = Bundles(tmp_path)
    yield bundles
    for store in bundles.stores:
        store.close()


def state_of(store: Store) -> tuple[object, ...]:
    names = sorted(str(path.relative_to(store.data_dir)) for path in store.data_dir.rglob("*"))
    return store.published(), store.arriving(), store.usage().arriving_bytes, names


def test_least_recently_used_bundle_goes_first(bundles: Bundles) -> None:
    """A bundle that jobs use every day would be fetched again every day."""
    store = bundles.open(limit_bytes=30 * KIB)
    old, older = bundles.put(store, "a", 10 * KIB), bundles.put(store, "b", 10 * KIB)
    bundles.now += 1
    store.touch(old.digest)
    new = bundles.make("c", 15 * KIB)
    store.begin(new, claims=nothing_claimed)

    assert ([old.digest], [new.digest]) == (list(store.published()), store.arriving())
    assert not (store.data_dir / "objects" / older.digest).exists()


def test_pinned_bundle_is_never_evicted(bundles: Bundles) -> None:
    """A pin would protect nothing."""
    store = bundles.open(limit_bytes=20 * KIB)
    pinned, other = bundles.put(store, "a", 10 * KIB), bundles.put(store, "b", 10 * KIB)
    store.pin(pinned.digest)
    store.begin(bundles.make("c", 10 * KIB), claims=nothing_claimed)

    assert [pinned.digest] == list(store.published())
    assert store.get(other.digest) is None


@pytest.mark.parametrize("claim", [KeepReason.IN_USE, KeepReason.LAST_COPY])
def test_a28_claimed_bundle_is_never_evicted(bundles: Bundles, claim: KeepReason) -> None:
    """A28: room for one job would be made from the bundle of another, or from the last copy in the
    cluster."""
    store = bundles.open(limit_bytes=20 * KIB)
    needed, _ = bundles.put(store, "a", 10 * KIB), bundles.put(store, "b", 10 * KIB)
    store.begin(bundles.make("c", 10 * KIB), claims=claimed(needed, claim))

    assert [needed.digest] == list(store.published())


def test_nothing_is_evicted_for_a_caller_who_knows_no_claims(bundles: Bundles) -> None:
    """A caller that does not say which bundles are in use would have them deleted."""
    store = bundles.open(limit_bytes=20 * KIB)
    bundles.put(store, "a", 15 * KIB)
    meta = bundles.make("b", 10 * KIB)
    with pytest.raises(TorrentdistError) as failure:
        store.begin(meta)

    assert failure.value.code == "disk_full"


def test_a_refused_begin_leaves_the_store_as_it_was(bundles: Bundles) -> None:
    """A fetch that cannot succeed would cost the bundles that were evicted for it, or block room
    for ever."""
    store = bundles.open(limit_bytes=20 * KIB)
    pinned, _ = bundles.put(store, "a", 10 * KIB), bundles.put(store, "b", 10 * KIB)
    store.pin(pinned.digest)
    before = state_of(store)
    meta = bundles.make("c", 15 * KIB)
    with pytest.raises(TorrentdistError) as failure:
        store.begin(meta, claims=nothing_claimed)

    assert (failure.value.code, failure.value.exit_code) == ("disk_full", 8)
    assert {"needed": 15 * KIB, "free": 0, "path": str(store.data_dir)} == failure.value.fields
    assert before == state_of(store)


def test_what_is_arriving_counts_in_full(bundles: Bundles) -> None:
    """Two fetches begun together would fill the disk before either ends."""
    store = bundles.open(limit_bytes=20 * KIB)
    store.begin(bundles.make("a", 15 * KIB))
    late = bundles.make("b", 10 * KIB)
    with pytest.raises(TorrentdistError) as failure:
        store.begin(late)

    assert failure.value.code == "disk_full"


def test_two_who_begin_at_once_do_not_both_get_the_last_room(bundles: Bundles) -> None:
    """Room would be promised twice, and the disk limit exceeded."""
    store = bundles.open(limit_bytes=15 * KIB)
    metas = [bundles.make(name, 10 * KIB) for name in "abcd"]
    ready = threading.Barrier(len(metas))
    codes: list[str] = []

    def begin(meta: Metafile) -> None:
        ready.wait(10)
        try:
            store.begin(meta, claims=nothing_claimed)
            codes.append("ok")
        except TorrentdistError as exc:
            codes.append(exc.code)

    threads = [threading.Thread(target=begin, args=[meta]) for meta in metas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert sorted(codes) == ["disk_full", "disk_full", "disk_full", "ok"]


def test_disk_reserve_is_kept_free(bundles: Bundles) -> None:
    """The store would take the last bytes of a disk that others need, too."""
    store = bundles.open(reserve_bytes=1 << 62)
    meta = bundles.make("a", KIB)
    with pytest.raises(TorrentdistError) as failure:
        store.begin(meta)

    assert failure.value.code == "disk_full"


def test_room_of_an_abandoned_bundle_is_free_again(bundles: Bundles) -> None:
    """Every failed fetch would make the store smaller until the next start."""
    store = bundles.open(limit_bytes=15 * KIB)
    first, second = bundles.make("a", 10 * KIB), bundles.make("b", 10 * KIB)
    store.begin(first)
    store.abandon(first.digest)
    store.begin(second)

    assert [second.digest] == store.arriving()


@pytest.mark.parametrize("fails_at", [3, 4, 5])
def test_what_a_failing_disk_left_goes_when_room_is_measured(
    bundles: Bundles, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """If this fails, a disk that failed once keeps the bytes of a removed bundle until its daemon
    starts again."""
    store, calls = bundles.open(), count(1)
    meta = bundles.put(store, "a", KIB)

    def once(_: Path) -> None:
        if next(calls) == fails_at:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(objects, "fsync_dir", once)
    with pytest.raises(TorrentdistError, match="Input/output error"):
        store.discard(meta.digest)
    left = os.listdir(store.data_dir / "transit")
    store.measure()

    assert left
    assert [] == os.listdir(store.data_dir / "transit")


def test_full_disk_during_publish_leaves_the_bundle_arriving(bundles: Bundles) -> None:
    """A full disk would look like a bug, publish half a bundle, or throw away what was fetched."""
    store = bundles.open()
    meta = bundles.make("a", 10 * KIB)
    directory = store.begin(meta)
    shutil.copy(bundles.tmp_path / "sources" / "a" / "file", directory / "content")
    (directory / "index").symlink_to("/dev/full")
    with pytest.raises(TorrentdistError) as failure:
        store.publish(meta.digest)
    (directory / "index").unlink()

    assert (failure.value.code, failure.value.fields["needed"]) == ("disk_full", 10 * KIB)
    assert (None, [meta.digest]) == (store.get(meta.digest), store.arriving())
    assert list((store.data_dir / "bundles").iterdir()) == []
    assert meta.digest == store.publish(meta.digest).digest


def test_a_bundle_that_cannot_be_deleted_stays_published(bundles: Bundles) -> None:
    """If this fails, a removed bundle that a broken disk kept counts as a part that somebody may
    still want, and stays for minutes after the disk is sound."""
    store = bundles.open()
    kept = bundles.put(store, "a", KIB)
    transit = store.data_dir / "transit"
    transit.rename(store.data_dir / "away")
    with pytest.raises(TorrentdistError):
        store.discard(kept.digest)
    (store.data_dir / "away").rename(transit)

    assert (kept.digest, []) == (store.published()[kept.digest].digest, store.arriving())
    assert store.check_quick(kept.digest) == []
    assert store.discard(kept.digest)
    assert {} == store.published()


def test_prune_removes_what_nobody_used_lately(bundles: Bundles) -> None:
    """`prune` would remove a bundle in use, or nothing at all."""
    store = bundles.open()
    old, used, pinned, claim = (
        bundles.put(store, name, size * KIB) for name, size in zip("abcd", (1, 2, 3, 4), strict=True)
    )
    store.pin(pinned.digest)
    bundles.now += 3600
    store.touch(used.digest)
    claims = claimed(claim, KeepReason.LAST_COPY)
    planned = store.plan_prune(older_than=3600, claims=claims)
    pruned = store.prune(older_than=3600, claims=claims)

    assert [old.digest] == [stored.digest for stored in planned]
    assert (tuple(planned), KIB, 3) == (pruned.removed, pruned.freed_bytes, pruned.kept)
    assert {used.digest, pinned.digest, claim.digest} == set(store.published())


def test_planning_to_prune_removes_nothing(bundles: Bundles) -> None:
    """A dry run would delete."""
    store = bundles.open()
    meta = bundles.put(store, "a", KIB)
    store.plan_prune(older_than=0, claims=nothing_claimed)

    assert [meta.digest] == list(store.published())
    assert store.plan_prune(older_than=0, claims=claim_everything) == []


def test_last_use_outlives_a_restart(bundles: Bundles) -> None:
    """After a restart the bundle that was used last would be the first to go."""
    store = bundles.open()
    first, second = bundles.put(store, "a", KIB), bundles.put(store, "b", KIB)
    bundles.now += 5
    store.touch(first.digest)
    store.close()
    found = bundles.open().published()

    assert bundles.now == found[first.digest].used_at
    assert found[first.digest].used_at > found[second.digest].used_at


def test_usage_tells_what_is_held(bundles: Bundles) -> None:
    """An operator would not see why a store is full."""
    store = bundles.open(limit_bytes=100 * KIB, reserve_bytes=5)
    bundles.put(store, "a", 3 * KIB)
    store.begin(bundles.make("b", 4 * KIB))
    usage = store.usage()

    assert (
        usage.published,
        usage.published_bytes,
        usage.arriving,
        usage.arriving_bytes,
    ) == (1, 3 * KIB, 1, 4 * KIB)
    assert (usage.limit_bytes, usage.reserve_bytes) == (100 * KIB, 5)


def test_names_and_pins_outlive_a_restart(bundles: Bundles) -> None:
    """A download could not go on without ZooKeeper, and a pin would be gone after a crash."""
    store = bundles.open()
    meta = bundles.put(store, "a", KIB)
    for name in ("etl-1", "etl-2", "etl-3"):
        store.bind(BundleId(name), meta.digest)
    store.unbind(BundleId("etl-2"))
    store.pin(meta.digest)
    store.close()
    again = bundles.open()

    assert {BundleId("etl-1"): meta.digest, BundleId("etl-3"): meta.digest} == dict(again.bindings())
    assert {BundleId("etl-1"), BundleId("etl-3")} == again.names(meta.digest)
    assert again.published()[meta.digest].pinned


def test_a_name_means_what_it_was_bound_to_last(bundles: Bundles) -> None:
    """A host would keep an id's old meaning after its cluster was founded anew."""
    store = bundles.open()
    store.bind(BundleId("etl-1"), Digest("a" * 64))
    store.bind(BundleId("etl-1"), Digest("b" * 64))

    assert store.lookup(BundleId("etl-1")) == "b" * 64
    assert set() == store.names(Digest("a" * 64))


def test_a_pin_can_be_taken_back(bundles: Bundles) -> None:
    """A pinned bundle could never be evicted again."""
    store = bundles.open()
    meta = bundles.put(store, "a", KIB)
    store.pin(meta.digest)
    store.unpin(meta.digest)

    assert not store.published()[meta.digest].pinned
    assert [meta.digest] == [stored.digest for stored in store.plan_prune(older_than=0, claims=nothing_claimed)]


def test_a_name_that_could_not_be_written_is_not_bound(bundles: Bundles) -> None:
    """A store would use a binding that the next start does not know."""
    store = bundles.open()
    (store.data_dir / "catalog.log").mkdir()
    with pytest.raises(TorrentdistError) as failure:
        store.bind(BundleId("etl-1"), Digest("a" * 64))

    assert (failure.value.code, store.lookup(BundleId("etl-1"))) == ("disk_error", None)
    (store.data_dir / "catalog.log").rmdir()


@pytest.mark.parametrize("come", [0, 20, 40, 80])
def test_a_master_keeps_as_much_room_as_has_come(come: int, bundles: Bundles) -> None:
    """If this fails, one uploader declares a bundle as large as the disk, sends nothing, and nobody
    else can upload; or an upload that has come by half finds the disk full."""
    store = bundles.open(limit_bytes=100 * KIB, as_bytes_come=True)
    declared, other = bundles.make("declared", 80 * KIB), bundles.make("other", 50 * KIB)
    (store.begin(declared) / "content" / "file").write_bytes(b"x" * (come * KIB))
    fits = min(80, 2 * come) + 50 <= 100
    if fits:
        store.begin(other)
    else:
        with pytest.raises(TorrentdistError, match="not enough room"):
            store.begin(other)

    assert fits == (other.digest in store.arriving())
