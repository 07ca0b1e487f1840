"""Which push of an image brings its bundle anew."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torrentdist.bundle.images.image_layout import INDEX, digest_of
from torrentdist.bundle.images.image_names import Image
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.records import BundleState
from torrentdist.security.authorization import TOKEN_HOLDER, Principal, Proof, Role
from torrentdist.supervisor.images.checked_blobs import Blob, CheckedBlobs
from torrentdist.supervisor.images.pushers import Pusher
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

    async def blob(self, name: str, digest: str, caller: object, size: int | None = None) -> Blob:
        return Blob(3, lambda first, size: no_bytes())


async def no_bytes() -> AsyncIterator[bytes]:
    yield b""


def pushed_by(parts: Any, staged: StagedBlobs) -> Pushes:
    uploads: Any = SimpleNamespace(staged=staged, check_room=parts.check_room)
    return Pushes(parts, parts, CheckedBlobs(), uploads, parts, parts)


@pytest.mark.parametrize("state", [BundleState.LOST, BundleState.UPLOADING])
async def test_an_image_that_nobody_has_any_more_is_pushed_again(state: BundleState, tmp_path: Path) -> None:
    """If this fails, an image that the masters have lost cannot be brought back, although whoever
    built it still has it: its push ends with the error that it is lost."""
    parts = Masters(state, tmp_path / "work")
    pushes = pushed_by(parts, StagedBlobs(tmp_path))
    pusher: Any = SimpleNamespace(token="", principal=SimpleNamespace(name="me"))
    await pushes.publish(Image("app", "1"), MANIFEST, pusher, TOKEN_HOLDER)

    assert [Image("app", "1")] == parts.published


def holder(name: str, role: Role = Role.UPLOADER) -> Pusher:
    return Pusher(Principal(name, role, Proof.TOKEN), "")


async def with_blob(directory: Path) -> tuple[Pushes, StagedBlobs, str]:
    """A host to which ann has pushed a blob."""
    staged, digest = StagedBlobs(directory), digest_of(b"one")
    await staged.open()
    await staged.put_manifest(b"one", digest, "app", "ann")
    return pushed_by(Masters(BundleState.AVAILABLE, directory), staged), staged, digest


@pytest.mark.parametrize("pusher", [holder("ann"), holder("op", Role.OPERATOR)])
async def test_a_blob_is_dropped_for_its_sender_and_for_operators(pusher: Pusher, tmp_path: Path) -> None:
    """If this fails, any sender makes each push of the others fail, by deleting their layers."""
    pushes, staged, digest = await with_blob(tmp_path)
    with pytest.raises(TorrentdistError, match="operator"):
        await pushes.drop_blob("app", digest, holder("eve", Role.SUBMITTER), TOKEN_HOLDER)
    assert staged.get(digest) is not None

    assert await pushes.drop_blob("app", digest, pusher, TOKEN_HOLDER)
    assert staged.get(digest) is None


async def test_a_blob_that_an_image_takes_is_not_dropped_meanwhile(tmp_path: Path) -> None:
    """If this fails, an image is published without one of its layers, or its push fails with an
    error of the disk."""
    pushes, staged, digest = await with_blob(tmp_path)
    async with staged.alone([digest]):
        dropping = asyncio.create_task(pushes.drop_blob("app", digest, holder("ann"), TOKEN_HOLDER))
        for _ in range(20):
            await asyncio.sleep(0.01)
        is_there = staged.path(digest).exists()

    assert await dropping
    assert (True, False) == (is_there, staged.path(digest).exists())
