"""Room and uploads of the registry at a gateway, without a cluster."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from torrentdist.bundle.files.durability import free_bytes
from torrentdist.bundle.images.blob_upload import BlobChunk
from torrentdist.bundle.images.image_layout import digest_of
from torrentdist.bundle.store.store_values import StoreUsage
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.images import staged_blobs
from torrentdist.supervisor.images.blob_uploads import ABANDONED_SECS, BlobUpload, BlobUploads
from torrentdist.supervisor.images.staged_blobs import StagedBlobs

pytestmark = pytest.mark.anyio
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="mounts take root")
KIB = 1024


class Room:
    """A disk of so many bytes, of which bundles that nobody needs take some."""

    def __init__(self, directory: Path, size: int, unneeded: int = 0) -> None:
        self.directory, self.size, self.unneeded = directory, size, unneeded
        self.asked: list[int] = []

    async def measure(self) -> StoreUsage:
        await asyncio.sleep(0)
        pushed = sum(file.stat().st_size for file in self.directory.rglob("*") if file.is_file() and not file.suffix)
        free = self.size - self.unneeded - pushed
        return StoreUsage(
            published=0, published_bytes=0, arriving=0, arriving_bytes=0, limit_bytes=0, reserve_bytes=0,
            free_bytes=free,
        )  # fmt: skip

    async def unneeded_bytes(self) -> int:
        return self.unneeded

    async def give_way(self, needed: int) -> None:
        self.asked.append(needed)
        self.unneeded -= needed


async def opened(room: Room) -> BlobUploads:
    uploads = BlobUploads(StagedBlobs(room.directory), room)
    await uploads.staged.open()
    await uploads.open()
    return uploads


async def body(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def pushed(uploads: BlobUploads, size: int, sender: str, said: int | None = None) -> BlobUpload:
    upload = await uploads.begin("app", sender)
    await uploads.receive(upload, BlobChunk(None, said or size), body(bytes(size)))
    return upload


async def refusal(uploads: BlobUploads, size: int, sender: str) -> TorrentdistError:
    with pytest.raises(TorrentdistError) as refused:
        await pushed(uploads, size, sender)
    return refused.value


async def test_one_sender_leaves_room_to_others(tmp_path: Path) -> None:
    """One program of a host would keep all others from pushing for a day, by a push that it never
    ends."""
    uploads = await opened(Room(tmp_path, 1000 * KIB))
    await pushed(uploads, 700 * KIB, "greedy")

    assert ("disk_full", 507) == ((found := await refusal(uploads, 100 * KIB, "greedy")).code, found.http_status)
    await pushed(uploads, 200 * KIB, "modest")


async def test_uploads_that_begin_together_share_the_room_of_their_sender(tmp_path: Path) -> None:
    """If this fails, a sender that begins several uploads at once takes the room of all others."""
    uploads = await opened(Room(tmp_path, 1000 * KIB))
    begun = [await uploads.begin("app", "greedy") for _ in "ab"]
    chunk, parts = BlobChunk(None, 400 * KIB), body(bytes(400 * KIB))
    ended = await asyncio.gather(*[uploads.receive(one, chunk, parts) for one in begun], return_exceptions=True)
    codes = [one.code for one in ended if isinstance(one, TorrentdistError)]

    assert (["disk_full"], 2) == (codes, len(ended))
    await pushed(uploads, 200 * KIB, "modest")


async def test_what_is_announced_is_given_back(tmp_path: Path) -> None:
    """Room that was promised to a broken connection would be lost until the next start."""
    uploads = await opened(Room(tmp_path, 1000 * KIB))
    for _ in range(5):
        upload = await pushed(uploads, 10 * KIB, "me", said=600 * KIB)
        await uploads.cancel(upload)
    abandoned = [await pushed(uploads, 100 * KIB, "me") for _ in range(7)]
    await refusal(uploads, 100 * KIB, "me")
    for upload in abandoned:
        upload.touched -= ABANDONED_SECS + 1
    await uploads.expire()

    latest = await pushed(uploads, 700 * KIB, "me")
    assert (700 * KIB, 700 * KIB) == (latest.written, latest.file.stat().st_size)
    assert not any(upload.file.exists() for upload in abandoned)


async def test_bundles_that_nobody_needs_give_way(tmp_path: Path) -> None:
    """A host that keeps bundles as long as there is room would take no push; or an upload that
    cannot fit would cost it all of them."""
    room = Room(tmp_path, 1000 * KIB, unneeded=900 * KIB)
    uploads = await opened(room)
    await refusal(uploads, 10**9, "me")
    assert [] == room.asked

    await pushed(uploads, 500 * KIB, "me")

    assert [400 * KIB] == room.asked


async def test_a_sender_has_a_share_of_the_blobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One program would use up the number of blobs, and nobody could push for a day."""
    monkeypatch.setattr(staged_blobs, "MOST_OF_SENDER", 3)
    uploads = await opened(Room(tmp_path, 1000 * KIB))
    for number in range(3):
        await uploads.finish(await pushed(uploads, number + 1, "greedy"), digest_of(bytes(number + 1)))
    await uploads.staged.add_name(digest_of(bytes(1)), "other")

    assert "too_many_uploads" == (await refusal(uploads, 4, "greedy")).code
    await uploads.finish(await pushed(uploads, 4, "modest"), digest_of(bytes(4)))


@needs_root
async def test_a_full_disk_is_told_and_harms_nothing(small_disk: Callable[[int], Path]) -> None:
    """A manifest that is pushed again while the disk is full would be cut short, and handed out
    so."""
    disk = small_disk(1024 * KIB)
    uploads = await opened(Room(disk, 100_000 * KIB))
    manifest = b"{" + b" " * 20_000 + b"}"
    digest = digest_of(manifest)
    await uploads.staged.put_manifest(manifest, digest, "app", "me")
    (disk / "others").write_bytes(bytes(free_bytes(disk)))

    upload = await uploads.begin("app", "me") if free_bytes(disk) else None
    with pytest.raises(TorrentdistError) as refused:
        await uploads.staged.put_manifest(manifest, digest, "app", "me")
    full = await refusal(uploads, 500 * KIB, "me")

    assert ["disk_full"] * 2 == [refused.value.code, full.code]
    assert manifest == await uploads.staged.manifest(digest)
    assert upload is None
    (disk / "others").unlink()
    await uploads.finish(await pushed(uploads, 500 * KIB, "me"), digest_of(bytes(500 * KIB)))
    assert sorted(["uploads", "blobs", "layouts"]) == sorted(one.name for one in disk.iterdir())


async def test_an_upload_whose_end_fails_is_finished_again_or_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error of the disk, all bytes of a blob would have to be sent again, and those that
    came would stay on the disk, counted by nobody, until the next start."""
    uploads = await opened(Room(tmp_path, 1000 * KIB))
    upload, other = await pushed(uploads, 10 * KIB, "me"), await pushed(uploads, 20 * KIB, "me")
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", rename := BrokenRename())
        for one in (upload, other):
            with pytest.raises(TorrentdistError):
                await uploads.finish(one, digest_of(bytes(one.written)))
    await uploads.finish(uploads.get(upload.id, "app", "me"), digest_of(bytes(10 * KIB)))
    other.touched -= ABANDONED_SECS + 1
    await uploads.expire()

    assert 2 == rename.count
    assert [] == [*(tmp_path / "uploads").iterdir()]
    assert [10 * KIB] == [blob.size for blob in uploads.staged.all()]


class BrokenRename:
    """Stands for a rename on a disk that fails."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, source: Path, target: Path) -> None:
        self.count += 1
        raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_notes_without_a_file_go_at_the_next_start(tmp_path: Path) -> None:
    """Each process that died in the wrong moment would leave files for ever."""
    await opened(Room(tmp_path, KIB))
    for folder in ("blobs", "uploads"):
        for name in ("ab.json", "cd.new"):
            (tmp_path / folder / name).write_text("{}")
    await opened(Room(tmp_path, KIB))

    assert [] == files_of(tmp_path)


def files_of(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]
