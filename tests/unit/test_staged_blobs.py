"""Blobs that were pushed to a host and belong to no image yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from torrentdist.bundle.images.image_layout import digest_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.images import staged_blobs
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
