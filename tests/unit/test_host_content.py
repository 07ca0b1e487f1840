"""Reading a bundle that is still arriving, and archives made of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.packs.pack_files import write_packs
from torrentdist.bundle.packs.pack_plan import FEWEST
from torrentdist.bundle.store.store import StoreUsage
from torrentdist.host.http.file_answers import CHUNK, read_part
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.bundles.host_content import HostContent
from torrentdist.supervisor.gateway.archive_cache import ArchiveCache, allowance
from torrentdist.supervisor.gateway.archives import ArchiveFormat, size_of

pytestmark = pytest.mark.anyio

PIECE = 32 * 1024
SIZE = 5 * PIECE + 100


@dataclass
class Swarm:
    """A fetch that the test controls."""

    there: set[int] = field(default_factory=set)
    hurried: list[int] = field(default_factory=list)
    published: bool = False
    damaged: bool = False
    """The published file has changed."""
    error: TorrentdistError | None = None
    arrives: dict[int, bytes] = field(default_factory=dict)
    path: Path = Path()
    refused: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a reader looked at a piece that is there, and did not take it."""

    def run_from(self, piece: int, most: int) -> int:
        return next((n for n in range(most) if piece + n not in self.there), most)

    def hurry(self, piece: int) -> None:
        self.hurried.append(piece)
        if piece in self.arrives:
            self.put(piece, self.arrives[piece])

    def save(self) -> None:
        self.refused.set()

    def put(self, piece: int, data: bytes) -> None:
        with open(self.path, "r+b") as file:
            os.pwrite(file.fileno(), data, piece * PIECE)
        self.there.add(piece)


@dataclass
class Bench:
    swarm: Swarm
    content: HostContent
    data: bytes
    meta: Metafile

    def piece(self, number: int) -> bytes:
        return self.data[number * PIECE : (number + 1) * PIECE]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    source, arriving = tmp_path / "source", tmp_path / "arriving"
    source.mkdir()
    data = os.urandom(SIZE)
    (source / "a").write_bytes(data)
    meta = make_metafile(source, piece_length=PIECE)
    arriving.mkdir()
    (arriving / "a").write_bytes(bytes(SIZE))
    swarm = Swarm(path=arriving / "a")

    async def checked(path: str) -> bool:
        swarm.published = swarm.published and not swarm.damaged
        return swarm.published

    content = HostContent(meta, arriving, lambda: swarm.published, lambda: swarm.error, lambda: swarm, checked)
    return Bench(swarm, content, data, meta)


async def read(bench: Bench, start: int = 0, end: int = SIZE) -> bytes:
    [file] = bench.meta.files
    return b"".join([part async for part in bench.content.read_part(file, start, end)])


async def test_pieces_are_given_as_they_come(bench: Bench) -> None:
    """A reader would get nothing until everything has arrived, and give up."""
    [file] = bench.meta.files
    stream = bench.content.read_all(file)
    bench.swarm.put(0, bench.piece(0))

    assert bench.piece(0) == await anext(stream)


async def test_what_is_there_is_given_at_once(bench: Bench) -> None:
    """Each piece of a large bundle would cost several turns of threads, on all hosts at once."""
    [file] = bench.meta.files
    for number in (0, 1, 2, 4):
        bench.swarm.put(number, bench.piece(number))

    assert bench.data[: 3 * PIECE] == await anext(bench.content.read_all(file))


async def test_a_wrong_piece_is_never_given(bench: Bench) -> None:
    """A reader would get bytes that were never uploaded."""
    for number in range(6):
        bench.swarm.put(number, bench.piece(number))
    bench.swarm.put(2, bytes(PIECE))
    reading = asyncio.create_task(read(bench))
    async with asyncio.timeout(10):
        await bench.swarm.refused.wait()
    bench.swarm.put(2, bench.piece(2))

    assert bench.data == await reading


async def test_a_part_of_a_bundle_is_asked_for_by_its_pieces(bench: Bench) -> None:
    """If this fails, a reader of a small part of a large bundle waits for all of it."""
    bench.swarm.arrives = {4: bench.piece(4)}

    assert bench.data[4 * PIECE + 5 : 4 * PIECE + 9] == await read(bench, 4 * PIECE + 5, 4 * PIECE + 9)
    assert [4] == bench.swarm.hurried


@pytest.mark.case("G2")
async def test_a_published_file_that_was_changed_arrives_again(bench: Bench) -> None:
    """An archive would be made of what a job wrote into the store."""
    for number in range(1, 6):
        bench.swarm.put(number, bench.piece(number))
    bench.swarm.arrives[0] = bench.piece(0)
    bench.swarm.published = bench.swarm.damaged = True
    [file] = bench.meta.files

    assert bench.data == b"".join([part async for part in bench.content.read(file, 0, SIZE, patience=0.1)])
    assert [0] == bench.swarm.hurried


@pytest.mark.case("G2")
async def test_a_file_that_is_written_to_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    """A reader would get the first half of one file and the second half of another."""
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * CHUNK))
    reading = read_part(path, 0, 3 * CHUNK)
    first = await anext(reading)
    os.utime(path, ns=(0, 0))
    with pytest.raises(TorrentdistError, match="while it was read"):
        await anext(reading)

    assert CHUNK == len(first)


async def test_small_files_that_a_plugin_brings_are_read_as_they_come(bench: Bench, tmp_path: Path) -> None:
    """If this fails, no executor can read a bundle of many small files before a plug-in has all of
    it."""
    source = tmp_path / "many"
    source.mkdir()
    for number in range(FEWEST + 1):
        (source / f"f{number}").write_bytes(b"%d" % number)
    meta = make_metafile(source)
    write_packs(meta, source, tmp_path / "home")
    (tmp_path / "home" / "content").mkdir()
    content = msgspec.structs.replace(
        bench.content, meta=meta, directory=tmp_path / "home" / "content", pieces=lambda: None
    )
    async with asyncio.timeout(10.0):
        read = {file.path: [part async for part in content.read_all(file)] for file in meta.files}

    assert any(file.is_pack for file in meta.wire_files)
    assert {path.name: [path.read_bytes()] for path in source.iterdir()} == read


async def test_a_fetch_that_fails_ends_the_reading_with_its_error(bench: Bench) -> None:
    """A short answer would pass for the whole file."""
    bench.swarm.put(0, bench.piece(0))
    bench.swarm.error = TorrentdistError("bundle_lost", id="b")

    with pytest.raises(TorrentdistError, match="lost"):
        await read(bench)


# archives


def usage(**values: int) -> StoreUsage:
    known = dict.fromkeys(("published", "published_bytes", "arriving", "arriving_bytes", "limit_bytes"), 0)
    return StoreUsage(**{**known, "reserve_bytes": 0, "free_bytes": 1 << 30, **values})


def measuring(found: StoreUsage) -> Callable[[], Awaitable[StoreUsage]]:
    async def measure() -> StoreUsage:
        return found

    return measure


@pytest.mark.parametrize(
    ("given", "held", "coming", "expected"),
    [
        (usage(free_bytes=100), 50, 0, 150),
        (usage(free_bytes=100, reserve_bytes=30, arriving_bytes=20), 0, 10, 40),
        (usage(limit_bytes=100, published_bytes=60), 30, 0, 40),
        (usage(limit_bytes=100, published_bytes=60), 30, 30, 10),
        (usage(limit_bytes=100, published_bytes=90), 30, 30, 0),
    ],
)
def test_archives_have_what_bundles_leave(given: StoreUsage, held: int, coming: int, expected: int) -> None:
    """A bundle would be refused while archives take up room, or the disk would fill up."""
    assert expected == allowance(given, held, coming)


async def follow_all(cache: ArchiveCache, bench: Bench, kind: ArchiveFormat = ArchiveFormat.TAR_GZ) -> bytes:
    growing = await cache.get(bench.content, kind)
    assert growing is not None
    return b"".join([part async for part in growing.follow()])


async def test_many_readers_have_one_archive_made(bench: Bench, tmp_path: Path) -> None:
    """Every executor of a host would have its own archive made."""
    cache = ArchiveCache(tmp_path / "archives", measuring(usage()))
    readers = [asyncio.create_task(follow_all(cache, bench)) for _ in range(5)]
    for number in range(6):
        await asyncio.sleep(0)
        bench.swarm.put(number, bench.piece(number))
    read = await asyncio.gather(*readers)

    assert {size_of(bench.meta, ArchiveFormat.TAR_GZ)} == {len(data) for data in read}
    assert 1 == len(set(read)) == len(list((tmp_path / "archives").iterdir()))
    await cache.close()


async def test_a_bundle_that_comes_takes_the_room_of_archives(bench: Bench, tmp_path: Path) -> None:
    """A host with many archives could take no more bundles."""
    limits = usage(limit_bytes=400_000, published_bytes=SIZE)
    bench.swarm.published = True
    (bench.content.directory / "a").write_bytes(bench.data)
    cache = ArchiveCache(tmp_path / "archives", measuring(limits))
    await follow_all(cache, bench)
    cache.make_room(100_000, limits)

    assert [] == list((tmp_path / "archives").iterdir())
    await cache.close()


async def test_a_reader_does_not_wait_until_others_archives_are_deleted(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole gateway would stand still while a slow disk deletes large archives."""
    bench.swarm.published = True
    (bench.content.directory / "a").write_bytes(bench.data)
    limits, tight = (usage(limit_bytes=limit, published_bytes=SIZE) for limit in (600_000, 360_000))
    rooms = [limits, limits, tight]

    async def measure() -> StoreUsage:
        return rooms.pop(0)

    cache = ArchiveCache(tmp_path / "archives", measure)
    for kind in (ArchiveFormat.TAR_GZ, ArchiveFormat.ZIP):
        await follow_all(cache, bench, kind)
    deleting, go_on, deleted = threading.Event(), threading.Event(), list[int]()
    unlink = Path.unlink

    def slow_unlink(path: Path, missing_ok: bool = False) -> None:
        deleting.set()
        go_on.wait(5.0)
        deleted.append(threading.get_ident())
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", slow_unlink)
    making_room = asyncio.create_task(asyncio.to_thread(cache.make_room, 200_000, limits))
    await asyncio.to_thread(deleting.wait, 5.0)
    found = await cache.get(bench.content, ArchiveFormat.ZIP)
    in_time = not deleted
    go_on.set()
    await making_room
    await follow_all(cache, bench, ArchiveFormat.TAR)

    assert (True, True) == (in_time, found is not None)
    assert {"tar"} == {path.suffix.removeprefix(".") for path in (tmp_path / "archives").iterdir()}
    assert threading.get_ident() not in deleted
    await cache.close()


async def test_without_room_nothing_is_kept(bench: Bench, tmp_path: Path) -> None:
    """An archive would use room that the operator forbade."""
    cache = ArchiveCache(tmp_path / "archives", measuring(usage(free_bytes=1000)))

    assert await cache.get(bench.content, ArchiveFormat.TAR) is None


async def test_an_archive_that_fails_in_any_way_keeps_nobody_waiting(bench: Bench, tmp_path: Path) -> None:
    """An executor would wait for ever, as would all who ask for this archive later; and its room
    would stay taken."""

    def broken() -> Swarm:
        raise RuntimeError("invalid torrent handle used")

    cache = ArchiveCache(tmp_path / "archives", measuring(usage()))
    failing = replace(bench, content=msgspec.structs.replace(bench.content, pieces=broken))
    async with asyncio.timeout(20.0):
        with pytest.raises(TorrentdistError, match="RuntimeError"):
            await follow_all(cache, failing)

    assert 0 == cache.held_bytes()
    await cache.close()


async def test_who_follows_an_archive_that_fails_is_told(bench: Bench, tmp_path: Path) -> None:
    """An executor would wait for ever, or unpack half an archive."""
    cache = ArchiveCache(tmp_path / "archives", measuring(usage()))
    bench.swarm.put(0, bench.piece(0))
    reading = asyncio.create_task(follow_all(cache, bench))
    await asyncio.sleep(0)
    bench.swarm.error = TorrentdistError("bundle_lost", id="b")

    with pytest.raises(TorrentdistError, match="lost"):
        await reading
    shutil.rmtree(tmp_path / "archives")
