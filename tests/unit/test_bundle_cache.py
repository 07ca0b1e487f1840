"""Bundles in a user's cache directory, for hosts without a supervisor: when they are fetched, and
what of them is believed."""

from __future__ import annotations

import asyncio
import fcntl
import shutil
import stat
from pathlib import Path

import pytest

from torrentdist.api.bundle_cache import BundleCache
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.access.envelope import Envelope
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import bundle_id

pytestmark = pytest.mark.anyio
ETL = bundle_id("etl-1")
MASTERS = ["http://m1:1"]
SIGNED = (Envelope(payload_type="t", payload=b"p", signatures=()),)


class CachedContent:
    """A bundle of two files, or of one, and the fetch that brings it."""

    def __init__(self, directory: Path, *, single: bool = False) -> None:
        self.source = directory / "source"
        if single:
            self.source.write_bytes(b"one")
        else:
            (self.source / "bin").mkdir(parents=True)
            (self.source / "bin" / "run").write_bytes(b"run")
            (self.source / "bin" / "run").chmod(0o755)
            (self.source / "data").write_bytes(b"data")
        self.meta = make_metafile(self.source)
        self.fetched: list[float] = []

    async def fetch(self, dest: Path, secs: float) -> None:
        self.fetched.append(secs)
        if self.source.is_dir():
            shutil.copytree(self.source, dest, dirs_exist_ok=True)
        else:
            shutil.copy(self.source, dest)

    async def get(self, timeout: float = 5.0, signatures: tuple[Envelope, ...] = ()) -> Path:
        return await BundleCache(MASTERS).get(ETL, self.meta, timeout, self.fetch, signatures)


async def test_a_bundle_is_fetched_once_and_kept(tmp_path: Path) -> None:
    """Each job on a host without a supervisor would fetch everything again."""
    bundle = CachedContent(tmp_path)
    first, second = await bundle.get(), await bundle.get()
    known = BundleCache(MASTERS).known(ETL)

    assert (1, first) == (len(bundle.fetched), second)
    assert 4.0 < bundle.fetched[0] <= 5.0
    assert b"data" == (first / "data").read_bytes()
    assert known is not None
    assert (bundle.meta.digest, first, ()) == known
    assert BundleCache(["http://other:1"]).known(ETL) is None, "another cluster's bundle of this id"


async def test_the_files_are_read_only_and_stay_executable(tmp_path: Path) -> None:
    """One job would change what the next one reads, or a program could not be started."""
    content = await CachedContent(tmp_path).get()

    assert [0o555, 0o444] == [stat.S_IMODE((content / name).stat().st_mode) for name in ("bin/run", "data")]


async def test_a_single_file_has_its_name(tmp_path: Path) -> None:
    """A job would look for the file under another name."""
    bundle = CachedContent(tmp_path, single=True)

    assert b"one" == (await bundle.get() / bundle.meta.name).read_bytes()
    assert BundleCache(MASTERS).content(bundle.meta.digest) is not None


@pytest.mark.parametrize("damage", ["changed", "shorter", "gone", "no mark", "other mark"])
async def test_a_damaged_bundle_is_fetched_again(tmp_path: Path, damage: str) -> None:
    """A job would run with files that somebody has changed."""
    bundle = CachedContent(tmp_path)
    content = await bundle.get()
    data, mark = content / "data", content.parent / "metafile"
    data.chmod(0o644)
    if damage in ("changed", "shorter"):
        data.write_bytes(b"DATA" if damage == "changed" else b"d")
    elif damage == "gone":
        data.unlink()
    else:
        mark.unlink() if damage == "no mark" else mark.write_bytes(b"something else")

    assert BundleCache(MASTERS).content(bundle.meta.digest) is None
    assert BundleCache(MASTERS).known(ETL) is None
    shutil.rmtree(content)
    assert b"data" == (await bundle.get() / "data").read_bytes()
    assert 2 == len(bundle.fetched)


async def test_a_file_that_was_only_touched_is_verified_once(tmp_path: Path) -> None:
    """A backup that sets a file's mode would cost a download, or a verification for each job."""
    bundle = CachedContent(tmp_path)
    content = await bundle.get()
    mark = content.parent / "metafile"
    await asyncio.sleep(0.03)  # The clock of a file system ticks every few milliseconds only.
    (content / "data").chmod(0o400)
    marked = mark.stat().st_mtime_ns

    assert content == BundleCache(MASTERS).content(bundle.meta.digest)
    assert marked < mark.stat().st_mtime_ns
    marked = mark.stat().st_mtime_ns
    assert content == await bundle.get()
    assert (1, marked) == (len(bundle.fetched), mark.stat().st_mtime_ns)


async def test_signatures_are_kept_for_times_without_masters(tmp_path: Path) -> None:
    """A host that wants signed bundles only would refuse what it has while no master answers."""
    bundle = CachedContent(tmp_path)
    content = await bundle.get(signatures=SIGNED)
    await bundle.get()
    known = BundleCache(MASTERS).known(ETL)
    names = next(path for path in content.parents[1].iterdir() if (path / ETL).is_symlink())

    assert known is not None
    assert SIGNED == known.signatures
    (names / f".{ETL}.signatures").write_bytes(b"damaged")
    damaged = BundleCache(MASTERS).known(ETL)
    assert damaged is not None
    assert () == damaged.signatures


async def test_only_one_process_fetches_and_the_others_wait(tmp_path: Path) -> None:
    """Two jobs that begin at once would write into the same files."""
    bundle = CachedContent(tmp_path)
    lock = (await bundle.get()).parent / "lock"
    with lock.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TorrentdistError) as caught:
            await bundle.get(timeout=0.05)
        waits = asyncio.create_task(bundle.get())
        await asyncio.sleep(0.05)
        is_waiting = not waits.done()

    assert ("timed_out", True) == (caught.value.code, "the download of etl-1" in caught.value.message)
    assert is_waiting
    assert lock.parent / "content" == await waits


async def test_a_fetch_that_fails_leaves_nothing_that_is_believed(tmp_path: Path) -> None:
    """The next job would run with half of its files."""
    bundle = CachedContent(tmp_path)

    async def breaks(dest: Path, _: float) -> None:
        await asyncio.to_thread(dest.mkdir)
        raise TorrentdistError("interrupted")

    cache = BundleCache(MASTERS)
    with pytest.raises(TorrentdistError):
        await cache.get(ETL, bundle.meta, 5.0, breaks)

    assert (None, None) == (cache.known(ETL), cache.content(bundle.meta.digest))
