"""Whatever is done to a store, in whatever order and with restarts, it agrees with a simple
model."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from property_size import examples

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.store.store import Store
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest

LIMIT = 100
SIZES = (10, 20, 30, 40, 60)
which = st.integers(0, len(SIZES) - 1)


class StoreMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.top = Path(tempfile.mkdtemp())
        self.now = 1000.0
        self.metas = [self._make(size) for size in SIZES]
        self.published: dict[Digest, float] = {}
        self.arriving: set[Digest] = set()
        self.pinned: set[Digest] = set()
        self.names: dict[BundleId, Digest] = {}
        self.store = self._open()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.top)

    def _open(self) -> Store:
        return Store.open(self.top / "data", limit_bytes=LIMIT, clock=self._tick)

    def _tick(self) -> float:
        self.now += 1
        return self.now

    def _make(self, size: int) -> Metafile:
        path = self.top / str(size)
        path.write_bytes(b"x" * size)
        return make_metafile(path)

    def _size(self, digest: Digest) -> int:
        return next(meta.size for meta in self.metas if meta.digest == digest)

    @rule(name=st.sampled_from("abc"), number=which)
    def bind(self, name: str, number: int) -> None:
        self.store.bind(BundleId(name), self.metas[number].digest)
        self.names[BundleId(name)] = self.metas[number].digest

    @rule(name=st.sampled_from("abc"))
    def unbind(self, name: str) -> None:
        self.store.unbind(BundleId(name))
        self.names.pop(BundleId(name), None)

    @rule(number=which)
    def begin(self, number: int) -> None:
        meta = self.metas[number]
        free = {d for d in self.published if d not in self.pinned}
        held = sum(self._size(d) for d in {*self.published, *self.arriving} - free)
        known = meta.digest in self.published or meta.digest in self.arriving
        if not known and held + meta.size > LIMIT:
            with pytest.raises(TorrentdistError, match="not enough room"):
                self.store.begin(meta, claims=lambda digest: ())
            return
        self.store.begin(meta, claims=lambda digest: ())
        if not known:
            self.arriving.add(meta.digest)
            left = set(self.store.published())
            assert self.published.keys() - free <= left
            self.published = {d: at for d, at in self.published.items() if d in left}

    @rule(number=which)
    def publish(self, number: int) -> None:
        meta = self.metas[number]
        if meta.digest in self.arriving:
            target = self.store.begin(meta) / "content" / str(SIZES[number])
            shutil.copyfile(self.top / str(SIZES[number]), target)
            stored = self.store.publish(meta.digest)
            self.arriving.remove(meta.digest)
            self.published[meta.digest] = stored.used_at

    @rule(number=which)
    def discard(self, number: int) -> None:
        digest = self.metas[number].digest
        self.store.discard(digest)
        if digest in self.published or digest in self.arriving:
            self.pinned.discard(digest)
        self.published.pop(digest, None)
        self.arriving.discard(digest)

    @rule(number=which)
    def abandon(self, number: int) -> None:
        self.store.abandon(self.metas[number].digest)
        self.arriving.discard(self.metas[number].digest)

    @rule(number=which)
    def set_aside(self, number: int) -> None:
        digest = self.metas[number].digest
        self.store.set_aside(digest, "a test")
        if self.published.pop(digest, None) is not None:
            self.arriving.add(digest)

    @rule(number=which)
    def pin(self, number: int) -> None:
        self.store.pin(self.metas[number].digest)
        self.pinned.add(self.metas[number].digest)

    @rule(number=which)
    def unpin(self, number: int) -> None:
        self.store.unpin(self.metas[number].digest)
        self.pinned.discard(self.metas[number].digest)

    @rule(number=which)
    def touch(self, number: int) -> None:
        digest = self.metas[number].digest
        self.store.touch(digest)
        if digest in self.published:
            self.published[digest] = self.now

    @rule()
    def restart(self) -> None:
        before = self.store.id
        self.store.close()
        self.store = self._open()
        assert before == self.store.id

    @invariant()
    def is_as_the_model_says(self) -> None:
        if not hasattr(self, "store"):
            return
        found = self.store.published()
        assert self.published == {digest: stored.used_at for digest, stored in found.items()}
        assert found.keys() == self.store.published_digests()
        assert self.arriving == set(self.store.arriving())
        assert self.names == self.store.bindings()
        for meta in self.metas:
            assert {n for n, d in self.names.items() if d == meta.digest} == self.store.names(meta.digest)
        assert self.pinned & found.keys() == {digest for digest, stored in found.items() if stored.pinned}
        usage = self.store.usage()
        assert usage.published_bytes + usage.arriving_bytes <= LIMIT
        assert {path.name for path in (self.store.data_dir / "bundles").iterdir()} == set(found)
        assert all(not self.store.check_quick(digest) for digest in found)


StoreMachine.TestCase.settings = settings(
    max_examples=examples(30), stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestStoreMachine = StoreMachine.TestCase
