"""Which push of an image brings its bundle anew."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torrentdist.bundle.images.image_layout import INDEX
from torrentdist.bundle.images.image_names import Image
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.records import BundleState
from torrentdist.security.authorization import TOKEN_HOLDER
from torrentdist.supervisor.images.checked_blobs import CheckedBlobs
from torrentdist.supervisor.images.pushes import Pushes
from torrentdist.supervisor.images.staged_blobs import StagedBlobs

pytestmark = pytest.mark.anyio
MANIFEST = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}).encode()


class Masters:
    """They know the image `app:1` in some state. None of its content is on this host."""

    def __init__(self, state: BundleState, work: Path) -> None:
        self.state, self.work = state, work
        self.published: list[Image] = []

    @asynccontextmanager
    async def client(self, token: str) -> AsyncIterator[Any]:
        yield self

    async def ask_patiently(self, method: str, path: str, kind: object, params: object) -> Any:
        if not path.endswith(Image("app", "1").bundle):
            raise TorrentdistError("bundle_not_found", id=BundleId("other"), note="")
        return SimpleNamespace(id=Image("app", "1").bundle, state=self.state, min_replicas=1)

    async def by_tag(self, image: Image) -> Any:
        raise TorrentdistError("bundle_lost", id=image.bundle)

    def workplace(self) -> Path:
        return self.work

    async def publish(self, client: object, pushed: Any, layout: Path) -> None:
        self.published.append(pushed.image)

    async def wait(self, client: object, view: object) -> None:
        pass

    async def check_room(self, size: int, sender: str) -> None:
        pass


@pytest.mark.parametrize("state", [BundleState.LOST, BundleState.UPLOADING])
async def test_an_image_that_nobody_has_any_more_is_pushed_again(state: BundleState, tmp_path: Path) -> None:
    """If this fails, an image that the masters have lost cannot be brought back, although whoever
    built it still has it: its push ends with the error that it is lost."""
    parts: Any = Masters(state, tmp_path / "work")
    uploads: Any = SimpleNamespace(staged=StagedBlobs(tmp_path), check_room=parts.check_room)
    pushes = Pushes(parts, parts, CheckedBlobs(), uploads, parts, parts)
    pusher: Any = SimpleNamespace(token="", principal=SimpleNamespace(name="me"))
    await pushes.publish(Image("app", "1"), MANIFEST, pusher, TOKEN_HOLDER)

    assert [Image("app", "1")] == parts.published
