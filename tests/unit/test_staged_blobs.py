"""Blobs that were pushed to a host and belong to no image yet."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from torrentdist.bundle.images.image_layout import digest_of
from torrentdist.bundle.images.push_room import StoreRoom
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.images import staged_blobs
from torrentdist.supervisor.images.blob_uploads import BlobUploads
from torrentdist.supervisor.images.staged_blobs import StagedBlobs

pytestmark = pytest.mark.anyio


async def opened(directory: Path) -> StagedBlobs:
    blobs = StagedBlobs(directory)
    await blobs.open()
    return blobs


async def test_a_blob_is_hashed_anew_by_the_next_process(tmp_path: Path) -> None:
    """If this fails, a disk that lost a write makes an image that nobody can run."""
    before = await opened(tmp_path)
    digests = [digest_of(data) for data in (b"one", b"two")]
    for data, digest in zip((b"one", b"two"), digests, strict=True):
        await before.put_manifest(data, digest, "app", "me")
    before.path(digests[1]).write_bytes(b"owt")
    after = await opened(tmp_path)

    assert [True, False] == [await after.is_sound(digest) for digest in digests]
    assert [digests[0]] == [blob.digest for blob in after.all()]


async def test_a_blob_that_cannot_be_read_is_pushed_again(tmp_path: Path) -> None:
    """If this fails, a bad sector below one layer makes each push of an image with that layer fail
    with `disk_error`, for a day."""
    digest = digest_of(b"one")
    await (await opened(tmp_path)).put_manifest(b"one", digest, "app", "me")
    blobs = await opened(tmp_path)
    blobs.path(digest).unlink()

    assert not await blobs.is_sound(digest)
    await blobs.put_manifest(b"one", digest, "app", "me")
    assert await blobs.is_sound(digest)


async def test_a_blob_that_comes_anew_while_the_old_one_is_read_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a blob that was taken a moment ago goes, because what an earlier process left
    under its digest was wrong, and the push of its image fails."""
    digest = digest_of(b"one")
    await (await opened(tmp_path)).put_manifest(b"one", digest, "app", "me")
    blobs = await opened(tmp_path)
    blobs.path(digest).write_bytes(b"owt")
    monkeypatch.setattr(staged_blobs, "hash_of", read := ReadFirst())
    looking = asyncio.create_task(blobs.is_sound(digest))
    await asyncio.to_thread(read.has_read.wait, 10)
    await blobs.put_manifest(b"one", digest, "app", "me")
    read.may_end.set()

    assert await looking
    assert blobs.get(digest) is not None


class ReadFirst:
    """Reads a file at once, and tells its hash later."""

    def __init__(self) -> None:
        self.has_read, self.may_end = threading.Event(), threading.Event()

    def __call__(self, path: Path) -> str:
        found = digest_of(path.read_bytes())
        self.has_read.set()
        self.may_end.wait(10)
        return found


async def test_large_blobs_of_one_sender_keep_nobody_else_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a sender whose large layers are hashed keeps its host from parsing metafiles
    and masters' answers for minutes, and other senders from pushing."""
    before = await opened(tmp_path)
    greedy, modest = [digest_of(data) for data in (b"one", b"two", b"three")], digest_of(b"four")
    for data in (b"one", b"two", b"three"):
        await before.put_manifest(data, digest_of(data), "app", "greedy")
    await before.put_manifest(b"four", modest, "app", "modest")
    uploads = BlobUploads(await opened(tmp_path), cast(StoreRoom, None))
    left = await uploads.begin("app", "greedy")
    left.hash = None  # as if an earlier process had taken its bytes
    hashed, may_end = list[str](), threading.Event()

    def hash_of(path: Path) -> str:
        hashed.append(path.name)
        if path != uploads.staged.path(modest):
            may_end.wait(10)
        return digest_of(path.read_bytes())

    monkeypatch.setattr(staged_blobs, "hash_of", hash_of)
    reads = [asyncio.create_task(uploads.staged.is_sound(digest)) for digest in (*greedy, greedy[0])]
    ending = asyncio.create_task(uploads.finish(left, digest_of(b"")))
    async with asyncio.timeout(5):
        free = await in_heavy_thread(lambda: "free")
        sound = await uploads.staged.is_sound(modest)
        first = len(hashed)
        may_end.set()
        await ending

    assert ("free", True) == (free, sound)
    assert first <= 2
    assert [True] * 4 == await asyncio.gather(*reads)
    assert 5 == len(hashed)


async def test_their_number_and_names_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, whoever may push uses up a host's memory with blobs of one byte."""
    monkeypatch.setattr(staged_blobs, "MOST_BLOBS", 1)
    blobs, digest = await opened(tmp_path), digest_of(b"one")
    blobs.check_count("me")
    await blobs.put_manifest(b"one", digest, "first", "me")
    for number in range(staged_blobs.MOST_NAMES):
        await blobs.add_name(digest, f"name-{number}")
    with pytest.raises(TorrentdistError) as raised:
        blobs.check_count("me")
    found = blobs.get(digest)

    assert "too_many_uploads" == raised.value.code
    assert found is not None
    assert [f"name-{number}" for number in range(staged_blobs.MOST_NAMES)] == list(found.names)


def slowly(call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what does the same a moment later."""

    def late(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.1)
        return call(*args, **kwargs)

    return late


async def test_two_names_at_once_are_both_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, one of two pushes that share a layer ends with `disk_error`."""
    blobs, digest = await opened(tmp_path), digest_of(b"one")
    await blobs.put_manifest(b"one", digest, "first", "me")
    monkeypatch.setattr(os, "replace", slowly(os.replace))
    await asyncio.gather(blobs.add_name(digest, "second"), blobs.add_name(digest, "third"))
    found = (await opened(tmp_path)).get(digest)

    assert found is not None
    assert ("first", "second", "third") == found.names


async def test_a_blob_that_comes_while_it_is_dropped_is_here_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a blob counts as here whose file is gone, and each push of its image fails."""
    blobs, digest, file = await opened(tmp_path), digest_of(b"one"), tmp_path / "uploads" / "one"
    await blobs.put_manifest(b"one", digest, "app", "me")
    file.write_bytes(b"one")
    monkeypatch.setattr(Path, "unlink", slowly(Path.unlink))
    await asyncio.gather(blobs.drop(digest), blobs.put(file, digest, 3, "app", "me"))

    assert (True, True) == (blobs.get(digest) is not None, blobs.path(digest).exists())
    await blobs.drop(digest)
    assert not await blobs.add_name(digest, "other")


async def test_a_clock_that_is_put_back_drops_no_blob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a push ends with `MANIFEST_BLOB_UNKNOWN` when the time of its host is
    corrected, though each of its blobs was taken; or such blobs stay for as long as the clock was
    ahead."""
    blobs, digest, now = await opened(tmp_path), digest_of(b"one"), time.time()
    await blobs.put_manifest(b"one", digest, "app", "me")
    monkeypatch.setattr(time, "time", lambda: now - 10 * staged_blobs.KEEP_SECS)
    await blobs.expire()
    kept = blobs.get(digest) is not None
    monkeypatch.setattr(time, "time", lambda: now - 9 * staged_blobs.KEEP_SECS)
    await blobs.expire()

    assert (True, None) == (kept, blobs.get(digest))


async def test_a_blob_that_is_used_again_just_as_its_day_ends_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a client is told that a blob is here, which then goes, and its push fails."""
    blobs, digest, now = await opened(tmp_path), digest_of(b"one"), time.time()
    await blobs.put_manifest(b"one", digest, "app", "me")
    monkeypatch.setattr(time, "time", lambda: now + staged_blobs.KEEP_SECS + 1)
    async with blobs.alone([digest]):  # an image takes it
        expiring = asyncio.create_task(blobs.expire())
        await asyncio.sleep(0)
        await blobs.add_name(digest, "other")
    await expiring

    assert blobs.get(digest) is not None
