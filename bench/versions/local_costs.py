"""What one host spends on versions besides the network: matching files, and making a recipe."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measures.metafile import write_random
from bench.results import Row, paired
from bench.versions.environments import Versions
from torrentdist.bundle.content_difference import file_changes
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile, make_metafile_and_recipe
from torrentdist.bundle.reuse.store_reuse import StoreReuse
from torrentdist.bundle.store.store import Store

FILES = 10_000


def new_bytes(versions: Versions) -> int:
    return file_changes(make_metafile(versions.old), make_metafile(versions.new)).new_bytes


def random_bundle(path: Path, size: int) -> Path:
    """Makes a bundle of `size` bytes that nobody has."""
    path.mkdir(exist_ok=True)
    (path / "random.bin").write_bytes(os.urandom(size))
    return path


def _secs(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


@contextmanager
def _store(top: Path) -> Iterator[Store]:
    with tempfile.TemporaryDirectory(dir=top) as work:
        store = Store.open(Path(work))
        try:
            yield store
        finally:
            store.close()


def _publish(store: Store, tree: Path) -> Metafile:
    meta = make_metafile(tree)
    shutil.copytree(tree, store.begin(meta) / "content", dirs_exist_ok=True)
    store.publish(meta.digest)
    return meta


def matching(top: Path, runs: int) -> Row:
    """Finds the 10,000 files of a new version in a store that has been started again."""
    tree = top / "files"
    for number in range(FILES):
        path = tree / f"{number % 100}" / f"{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d" % number)
    with _store(top) as store:
        _publish(store, tree)
        (tree / "more").write_bytes(b"more")
        meta = make_metafile(tree)
        took = [_secs(lambda: StoreReuse(store).known(meta)) for _ in range(runs)]
    note = f"{runs} runs, {min(took):.2f}-{max(took):.2f} s"
    what = f"matching {FILES} files by root"
    return Row(key="files", what=what, ours=statistics.median(took), unit="s", bar=0.5, note=note)


def recipe(top: Path, runs: int) -> Row:
    path = top / "large.bin"
    write_random(path, 1024)
    pairs = []
    for turn in range(max(3, runs)):
        acts = [lambda: make_metafile_and_recipe(path), lambda: make_metafile(path)]
        took = [_secs(act) for act in (acts if turn % 2 else reversed(acts))]
        pairs.append((took[0], took[1]) if turn % 2 else (took[1], took[0]))
    path.unlink()
    return paired("recipe", "metafile and recipe of 1 GiB", pairs, against="the metafile alone", bar=1.6)
