"""Uploads of blobs that are too many, too slow, too long, broken off or somebody else's."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.requests import ClientDisconnect

from torrentdist.bundle.images.blob_upload import BlobChunk
from torrentdist.bundle.images.image_layout import digest_of
from torrentdist.bundle.store.store_values import StoreUsage
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.images import blob_uploads
from torrentdist.supervisor.images.blob_uploads import ABANDONED_SECS, BlobUpload, BlobUploads
from torrentdist.supervisor.images.registry_errors import code_of
from torrentdist.supervisor.images.staged_blobs import StagedBlobs

pytestmark = pytest.mark.anyio
ANY = BlobChunk()


class Disk:
    """The room of a store, as the test says."""

    def __init__(
        self, free: int = 10**9, *, reserve: int = 0, arriving: int = 0, published: int = 0, limit: int = 0
    ) -> None:
        self.usage = StoreUsage(
            published=0, published_bytes=published, arriving=0, arriving_bytes=arriving, limit_bytes=limit,
            reserve_bytes=reserve, free_bytes=free,
        )  # fmt: skip

    async def measure(self) -> StoreUsage:
        return self.usage

    async def unneeded_bytes(self) -> int:
        return 0

    async def give_way(self, needed: int) -> None:
        raise AssertionError("no bundle is unneeded here")


async def opened(directory: Path, disk: Disk | None = None) -> BlobUploads:
    uploads = BlobUploads(StagedBlobs(directory), disk or Disk())
    await uploads.staged.open()
    await uploads.open()
    return uploads


async def body(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def failure(uploads: BlobUploads, upload: BlobUpload, chunk: BlobChunk, parts: AsyncIterator[bytes]) -> str:
    with pytest.raises(TorrentdistError) as refused:
        await uploads.receive(upload, chunk, parts)
    return refused.value.code


async def test_an_upload_belongs_to_its_sender_and_its_image(tmp_path: Path) -> None:
    """If this fails, one user of a host adds bytes to the layer that another one pushes."""
    uploads = await opened(tmp_path)
    upload = await uploads.begin("app", "me")
    told = []
    for id_, name, sender in ((upload.id, "app", "other"), (upload.id, "else", "me"), ("none", "app", "me")):
        with pytest.raises(TorrentdistError) as refused:
            uploads.get(id_, name, sender)
        told.append(code_of(refused.value))

    assert [("BLOB_UPLOAD_UNKNOWN", 404)] * 3 == told
    assert upload is uploads.get(upload.id, "app", "me")


async def test_the_uploads_of_one_sender_and_of_all_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, one sender opens so many uploads that no other one can push."""
    monkeypatch.setattr(blob_uploads, "MOST_OF_SENDER", 2)
    monkeypatch.setattr(blob_uploads, "MOST_OPEN", 3)
    uploads = await opened(tmp_path)
    for sender in ("me", "me", "you"):
        await uploads.begin("app", sender)
    told = []
    for sender in ("me", "third"):
        with pytest.raises(TorrentdistError) as refused:
            await uploads.begin("app", sender)
        told.append((refused.value.code, refused.value.fields["own"], refused.value.fields["count"]))

    assert [("too_many_uploads", 2, 3), ("too_many_uploads", 0, 3)] == told


async def test_an_upload_that_could_not_begin_takes_no_share(tmp_path: Path) -> None:
    """If this fails, a sender may not push for an hour after its disk was full for a moment."""
    uploads = await opened(tmp_path)
    (tmp_path / "uploads").rmdir()
    with pytest.raises(TorrentdistError) as refused:
        await uploads.begin("app", "me")
    (tmp_path / "uploads").mkdir()
    await uploads.begin("app", "me")

    assert "disk_error" == refused.value.code
    assert 2 == len([*(tmp_path / "uploads").iterdir()])
    assert 1 == len(uploads._open)


async def test_a_wrong_blob_is_refused_and_gone(tmp_path: Path) -> None:
    """If this fails, a blob is stored under the digest of another one."""
    uploads = await opened(tmp_path)
    upload = await uploads.begin("app", "me")
    await uploads.receive(upload, ANY, body(b"one"))
    with pytest.raises(TorrentdistError) as refused:
        await uploads.finish(upload, digest_of(b"two"))
    with pytest.raises(TorrentdistError) as unknown:
        uploads.get(upload.id, "app", "me")

    assert [("DIGEST_INVALID", 400), ("BLOB_UPLOAD_UNKNOWN", 404)] == [*map(code_of, (refused.value, unknown.value))]
    assert digest_of(b"one") in str(refused.value.fields["detail"])
    assert ([], []) == (uploads.staged.all(), [*(tmp_path / "uploads").iterdir()])


async def test_parts_are_put_together_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a layer that comes in several requests is refused at its end."""
    monkeypatch.setattr(blob_uploads, "_WRITE_BYTES", 4)
    uploads = await opened(tmp_path)
    upload = await uploads.begin("app", "me")
    await uploads.receive(upload, BlobChunk(0, 7), body(b"abc", b"", b"defg"))
    place = upload.state.range
    await uploads.receive(upload, BlobChunk(7, 2), body(b"hi"))
    await uploads.finish(upload, digest_of(b"abcdefghi"))
    staged = uploads.staged.get(digest_of(b"abcdefghi"))

    assert "0-6" == place
    assert staged is not None
    assert (9, ("app",), "me") == (staged.size, staged.names, staged.sender)
    assert [] == [*(tmp_path / "uploads").iterdir()]


async def test_what_came_before_a_connection_broke_is_kept(tmp_path: Path) -> None:
    """If this fails, a client sends a large layer from its begin after each broken connection."""
    uploads = await opened(tmp_path)
    upload = await uploads.begin("app", "me")

    async def broken() -> AsyncIterator[bytes]:
        yield b"abc"
        raise ClientDisconnect

    code = await failure(uploads, upload, BlobChunk(None, 100), broken())
    kept = (upload.state.offset, upload.state.is_busy, upload.promised, upload.file.read_bytes())
    await uploads.receive(upload, BlobChunk(3, 1), body(b"d"))

    assert ("interrupted", (3, False, 0, b"abc")) == (code, kept)
    assert b"abcd" == upload.file.read_bytes()


async def test_more_than_was_announced_is_refused(tmp_path: Path) -> None:
    """If this fails, a sender takes room of the disk that nobody has promised to it."""
    uploads = await opened(tmp_path)
    upload = await uploads.begin("app", "me")

    assert "invalid_request" == await failure(uploads, upload, BlobChunk(None, 3), body(b"ab", b"cd"))
    assert b"ab" == upload.file.read_bytes()


async def test_a_slow_sender_is_cut_off_and_a_quick_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a sender that sends nothing keeps an upload for ever, or a long upload ends
    though it is quick."""
    monkeypatch.setattr(blob_uploads, "SLOW_SECS", 0.05)
    monkeypatch.setattr(blob_uploads, "LEAST_RATE", 100)
    uploads = await opened(tmp_path)
    slow, quick = await uploads.begin("app", "me"), await uploads.begin("app", "me")

    async def paused(first: bytes) -> AsyncIterator[bytes]:
        yield first
        await asyncio.sleep(0.12)
        yield b"b"

    assert "invalid_request" == await failure(uploads, slow, ANY, paused(b"a"))
    await uploads.receive(quick, ANY, paused(bytes(100)))
    assert (1, 101) == (slow.written, quick.written)


async def test_an_upload_goes_on_in_the_next_process(tmp_path: Path) -> None:
    """If this fails, a client whose host was restarted sends its layer anew, or gets an image that
    lacks its first bytes."""
    before = await opened(tmp_path)
    upload = await before.begin("app", "me")
    await before.receive(upload, ANY, body(b"abc"))
    uploads = await opened(tmp_path)
    again = uploads.get(upload.id, "app", "me")
    state = (again.state.offset, again.written)
    await uploads.receive(again, BlobChunk(3, 3), body(b"def"))
    await uploads.finish(again, digest_of(b"abcdef"))

    assert (3, 3) == state
    assert [digest_of(b"abcdef")] == [blob.digest for blob in uploads.staged.all()]


@pytest.mark.parametrize(("age", "is_kept"), [(ABANDONED_SECS - 60, True), (ABANDONED_SECS + 60, False)])
async def test_an_upload_that_was_abandoned_goes_at_the_next_start(tmp_path: Path, age: float, is_kept: bool) -> None:
    """If this fails, broken uploads fill the disk of a host that is often restarted."""
    before = await opened(tmp_path)
    upload = await before.begin("app", "me")
    dated = time.time() - age
    os.utime(upload.file, (dated, dated))
    uploads = await opened(tmp_path)

    assert is_kept == (upload.id in uploads._open)
    assert 2 * is_kept == len([*(tmp_path / "uploads").iterdir()])


@pytest.mark.parametrize(("idle", "is_kept"), [(ABANDONED_SECS - 60, True), (ABANDONED_SECS + 60, False)])
async def test_an_upload_that_nobody_continues_ends_after_an_hour(tmp_path: Path, idle: float, is_kept: bool) -> None:
    """If this fails, a pause of a client ends its push, or what it gave up stays on the disk."""
    uploads = await opened(tmp_path)
    upload = await uploads.begin("app", "me")
    upload.touched -= idle
    await uploads.expire()

    assert (is_kept, is_kept) == (upload.id in uploads._open, upload.file.exists())


async def test_an_upload_that_still_sends_is_not_taken_away(tmp_path: Path) -> None:
    """If this fails, a second request of a client ends or cancels what its first one sends."""
    uploads = await opened(tmp_path)
    upload, has_begun, may_end = await uploads.begin("app", "me"), asyncio.Event(), asyncio.Event()

    async def waiting() -> AsyncIterator[bytes]:
        yield b"abc"
        has_begun.set()
        await may_end.wait()

    sending = asyncio.create_task(uploads.receive(upload, ANY, waiting()))
    await has_begun.wait()
    with pytest.raises(TorrentdistError) as refused:
        await uploads.finish(upload, digest_of(b"abc"))
    second = await failure(uploads, upload, BlobChunk(3, 1), body(b"d"))
    await uploads.cancel(upload)
    may_end.set()
    await sending
    await uploads.finish(uploads.get(upload.id, "app", "me"), digest_of(b"abc"))

    assert ["range_not_satisfiable"] * 2 == [refused.value.code, second]
    assert 1 == len(uploads.staged.all())


@pytest.mark.parametrize(
    ("disk", "most"),
    [
        (Disk(1000), 750), (Disk(1000, reserve=200), 600), (Disk(1000, arriving=200), 600),
        (Disk(10**6, limit=1000), 750), (Disk(10**6, limit=1000, published=400), 450),
        (Disk(10**6, limit=1000, arriving=400), 450), (Disk(400, limit=1000), 300),
    ],
)  # fmt: skip
async def test_the_room_of_a_push_is_what_bundles_and_the_reserve_leave(tmp_path: Path, disk: Disk, most: int) -> None:
    """If this fails, pushes fill the disk that the bundles of jobs need, or are refused though
    there is room."""
    uploads = await opened(tmp_path, disk)
    await uploads.check_room(most, "me")
    with pytest.raises(TorrentdistError) as refused:
        await uploads.check_room(most + 1, "me")

    assert ("disk_full", most + 1, most) == (
        refused.value.code, refused.value.fields["needed"], refused.value.fields["free"],
    )  # fmt: skip


async def test_what_others_push_counts_as_taken(tmp_path: Path) -> None:
    """If this fails, several senders together push more than the store may hold."""
    uploads = await opened(tmp_path, Disk(10**6, limit=1000))
    upload = await uploads.begin("app", "other")
    await uploads.receive(upload, ANY, body(bytes(300)))
    await uploads.finish(upload, digest_of(bytes(300)))
    running = await uploads.begin("app", "other")
    await uploads.receive(running, ANY, body(bytes(200)))
    await uploads.check_room(500, "me")
    with pytest.raises(TorrentdistError) as refused:
        await uploads.check_room(501, "me")
    with pytest.raises(TorrentdistError) as own:
        await uploads.check_room(251, "other")

    assert [500, 250] == [refused.value.fields["free"], own.value.fields["free"]]


async def test_a_body_without_a_size_is_stopped_where_the_room_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a sender that does not announce a size fills the disk of its host."""
    monkeypatch.setattr(blob_uploads, "_WRITE_BYTES", 50)
    monkeypatch.setattr(blob_uploads, "_LOOK_BYTES", 100)
    uploads = await opened(tmp_path, Disk(10**6, limit=400))
    upload = await uploads.begin("app", "me")

    assert "disk_full" == await failure(uploads, upload, ANY, body(*[bytes(50)] * 20))
    assert 300 == upload.written
    assert (300, 0) == (upload.state.offset, upload.promised)
