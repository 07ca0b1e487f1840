"""The signatures of an image on a host, without a cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torrentdist.bundle.images.image_layout import INDEX_FILE, MANIFEST, blob_path, digest_of
from torrentdist.bundle.images.image_names import Image
from torrentdist.bundle.metafile import FileEntry
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authorization import TOKEN_HOLDER
from torrentdist.supervisor.images.checked_blobs import CheckedBlobs
from torrentdist.supervisor.images.image_store import ImageStore
from torrentdist.supervisor.images.staged_blobs import StagedBlobs

pytestmark = pytest.mark.anyio
SUBJECT = digest_of(b"the image")
SIGNATURE = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "subject": {"digest": SUBJECT}}).encode()
INDEX = json.dumps({"manifests": [{"digest": digest_of(SIGNATURE)}, {"digest": digest_of(b"absent")}]}).encode()
FILES = {INDEX_FILE: INDEX, blob_path(digest_of(SIGNATURE)): SIGNATURE}


class OneImage:
    """A host with one image, of which one reading fails."""

    def __init__(self, failing: int) -> None:
        self.failing, self.reads = failing, 0

    def find(self, path: str) -> Any:
        data = FILES.get(path)
        return None if data is None else SimpleNamespace(file=FileEntry(path, len(data), b"", False))

    async def read_part(self, file: FileEntry, start: int, end: int) -> AsyncIterator[bytes]:
        self.reads += 1
        if self.reads == self.failing:
            raise TorrentdistError("timed_out", what="a piece", seconds=1)
        yield FILES[file.path][start:end]

    async def content(self, bundle: object) -> Any:
        return self

    async def tree(self, content: object) -> Any:
        return self


@pytest.mark.parametrize("failing", [1, 2])
async def test_signatures_that_could_not_be_read_once_are_found_later(failing: int, tmp_path: Path) -> None:
    """If this fails, a host that was asked for the signatures of an image while it arrived says
    until its restart that there are none, and refuses to run the image."""
    image, reader = Image("app", "1").bundle, OneImage(failing)
    store = SimpleNamespace(bindings=lambda: {image: "d"}, lookup=lambda bundle: "d", get=lambda digest: digest)
    parts: Any = SimpleNamespace(store=store)
    images = ImageStore(parts, reader, StagedBlobs(tmp_path), parts, CheckedBlobs())  # type: ignore[arg-type]
    found = [await images.referrers("app", SUBJECT, TOKEN_HOLDER) for _ in "ab"]

    assert [0, 1] == [len(one) for one in found]
    assert SIGNATURE == found[-1][0].data
