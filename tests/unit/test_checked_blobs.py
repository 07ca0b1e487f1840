"""Blobs of images that are hashed while a client reads them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from torrentdist.bundle.images.image_layout import digest_of
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.bundles.host_content import HostContent
from torrentdist.supervisor.images import checked_blobs
from torrentdist.supervisor.images.checked_blobs import WRONG_SECS, Blob, CheckedBlobs

pytestmark = pytest.mark.anyio
DATA = b"the bytes of a layer"
RIGHT, WRONG = digest_of(DATA), digest_of(b"others")


class Layer:
    """A blob of a bundle that tells which of its parts were read, a few bytes at a time."""

    def __init__(self, meta: Metafile | None, *, is_here: bool = True) -> None:
        self.reads: list[tuple[int, int]] = []
        self.is_here = is_here
        self.content = None if meta is None else content_of(meta, self)
        self.blob = Blob(len(DATA), self._read, self.content)

    async def _read(self, start: int, end: int) -> AsyncIterator[bytes]:
        self.reads.append((start, end))
        for place in range(start, end, 6):
            await asyncio.sleep(0)
            yield DATA[place : min(end, place + 6)]


async def is_sound(path: str) -> bool:
    return True


def content_of(meta: Metafile, layer: Layer) -> HostContent:
    return HostContent(meta, Path("unused"), lambda: layer.is_here, lambda: None, lambda: None, is_sound)


@pytest.fixture
def meta(tmp_path: Path) -> Metafile:
    (tmp_path / "blob").write_bytes(DATA)
    return make_metafile(tmp_path)


async def read(checked: CheckedBlobs, layer: Layer, digest: str, start: int = 0, end: int = len(DATA)) -> list[bytes]:
    return [data async for data in checked.read(layer.blob, digest, start, end)]


async def test_a_whole_blob_is_hashed_while_it_is_sent_and_never_again(meta: Metafile) -> None:
    """If this fails, a host reads each layer twice from its disk for every container that
    starts."""
    checked, layer = CheckedBlobs(), Layer(meta)
    before = checked.is_right(layer.blob, RIGHT)
    first = await read(checked, layer, RIGHT)
    later = await read(checked, layer, RIGHT, 3, 8)

    assert (DATA, [DATA[3:8]]) == (b"".join(first), later)
    assert (False, True) == (before, checked.is_right(layer.blob, RIGHT))
    assert [(0, len(DATA)), (3, 8)] == layer.reads


async def test_a_wrong_blob_ends_before_its_last_bytes(meta: Metafile) -> None:
    """If this fails, a runtime gets the whole of a blob that is not what its digest says."""
    checked, layer = CheckedBlobs(), Layer(meta)
    stream = checked.read(layer.blob, WRONG, 0, len(DATA))
    came = [await anext(stream) for _ in range(3)]
    with pytest.raises(TorrentdistError) as refused:
        await anext(stream)

    assert ("corrupt", WRONG) == (refused.value.code, refused.value.fields["path"])
    assert [DATA[:6], DATA[6:12], DATA[12:18]] == came
    assert not checked.is_right(layer.blob, WRONG)
    assert layer.content is not None
    assert checked.is_wrong(layer.content, WRONG)
    assert not checked.is_wrong(layer.content, RIGHT)


@pytest.mark.parametrize(("start", "end"), [(3, 8), (0, 8), (3, len(DATA))])
async def test_a_part_is_given_only_of_a_blob_that_is_right(meta: Metafile, start: int, end: int) -> None:
    """If this fails, a client that reads in parts gets bytes of a blob that nobody has hashed."""
    checked, layer = CheckedBlobs(), Layer(meta)
    with pytest.raises(TorrentdistError) as refused:
        await read(checked, layer, WRONG, start, end)
    part = await read(checked, layer, RIGHT, start, end)

    assert "corrupt" == refused.value.code
    assert DATA[start:end] == b"".join(part)
    assert [(0, len(DATA)), (0, len(DATA)), (start, end)] == layer.reads


async def test_parts_that_are_asked_for_together_cost_one_hash(meta: Metafile) -> None:
    """If this fails, a client with ten connections reads a layer ten times from the disk."""
    checked, layer = CheckedBlobs(), Layer(meta)
    await asyncio.gather(*[read(checked, layer, RIGHT, start, start + 2) for start in (0, 2, 4)])

    assert 1 == layer.reads.count((0, len(DATA)))


async def test_a_part_of_a_bundle_that_arrives_does_not_wait_for_the_rest(meta: Metafile) -> None:
    """If this fails, the first part of a large layer comes only after all of it has arrived."""
    checked, layer = CheckedBlobs(), Layer(meta, is_here=False)
    part = await read(checked, layer, RIGHT, 0, 4)

    assert ([DATA[:4]], [(0, 4)]) == (part, layer.reads)


async def test_a_blob_that_was_pushed_is_not_hashed_again() -> None:
    """If this fails, each layer that was pushed is read twice to make its image."""
    checked, layer = CheckedBlobs(), Layer(None)
    part = await read(checked, layer, WRONG, 0, 4)

    assert (True, [DATA[:4]], [(0, 4)]) == (checked.is_right(layer.blob, WRONG), part, layer.reads)


async def test_a_wrong_blob_is_tried_again_after_some_minutes(meta: Metafile, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, an image stays unreadable after its bundle was repaired, until a restart."""
    checked, layer, now = CheckedBlobs(), Layer(meta), time.monotonic()
    assert layer.content is not None
    monkeypatch.setattr(time, "monotonic", lambda: now)
    checked.note_wrong(layer.content, WRONG)
    at_once = checked.is_wrong(layer.content, WRONG)
    monkeypatch.setattr(time, "monotonic", lambda: now + WRONG_SECS - 0.5)
    shortly_before = checked.is_wrong(layer.content, WRONG)
    monkeypatch.setattr(time, "monotonic", lambda: now + WRONG_SECS)

    assert (True, True, False) == (at_once, shortly_before, checked.is_wrong(layer.content, WRONG))


async def test_what_is_remembered_of_blobs_is_bounded(meta: Metafile, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, whoever asks for many blobs uses up the memory of a host."""
    monkeypatch.setattr(checked_blobs, "KEPT", 2)
    checked, layer = CheckedBlobs(), Layer(meta)
    assert layer.content is not None
    for digest in ("sha256:1", "sha256:2", "sha256:3"):
        checked.note_wrong(layer.content, digest)

    found = [checked.is_wrong(layer.content, digest) for digest in ("sha256:1", "sha256:2", "sha256:3")]
    assert [False, True, True] == found
