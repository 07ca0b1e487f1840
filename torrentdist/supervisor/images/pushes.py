"""Pushed images on their way from a client into the cluster: who may push, the blobs that have
come, and the bundle that is made of them.

Always: an image is published only when every manifest and blob that it leads to is here, with the
size that its descriptor gives. A manifest without a tag waits for a day for an index that names it.
A blob is dropped for the sender that pushed it first, or for an operator, and not while an image
takes it.
"""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from starlette.requests import Request

from torrentdist.bundle.files.durability import disk_failures
from torrentdist.bundle.images.image_content import MOST_MANIFEST_BYTES, ImageContent, content_of
from torrentdist.bundle.images.image_layout import digest_of
from torrentdist.bundle.images.image_names import Image, is_digest
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.security.authorization import Principal, Role, check_role
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.images.blob_uploads import BlobUploads
from torrentdist.supervisor.images.checked_blobs import Blob, CheckedBlobs
from torrentdist.supervisor.images.image_store import ImageStore
from torrentdist.supervisor.images.publication import WAIT_SECS, Publication, PushedImage, tag_taken
from torrentdist.supervisor.images.pushers import Pusher, Pushers
from torrentdist.supervisor.images.registry_errors import RegistryError

EXPIRE_SECS: Final = 60.0
DEEPEST: Final = 8
"""How deep indexes may be nested."""


class Pushes:
    def __init__(
        self,
        pushers: Pushers,
        images: ImageStore,
        checked: CheckedBlobs,
        uploads: BlobUploads,
        publication: Publication,
        keeper: Keeper,
    ) -> None:
        self.uploads = uploads
        self.on_change: Callable[[], None] = lambda: None
        """Called when a tag was published or deleted."""
        self._pushers = pushers
        self._images = images
        self._checked = checked
        self._publication = publication
        self._staged = uploads.staged
        self._keeper = keeper

    async def open(self) -> None:
        await self._staged.open()
        await self.uploads.open()

    async def run(self) -> None:
        """Drops what was abandoned, for ever."""
        while True:
            await asyncio.sleep(EXPIRE_SECS)
            await self.uploads.expire()
            await self._staged.expire()

    async def pusher(self, request: Request, needed: Role = Role.UPLOADER) -> Pusher:
        return await self._pushers.pusher(request, f"{request.method} of an image", needed)

    async def mount(self, name: str, digest: str, source: str, caller: Principal) -> bool:
        """Shows a blob of this host under another name. False: the caller can read none."""
        found = await self._images.blob(source or name, digest, caller)
        if found is not None and found.content is None:
            return await self._staged.add_name(digest, name)
        return found is not None

    async def keep_manifest(self, name: str, data: bytes, digest: str, pusher: Pusher, caller: Principal) -> None:
        content = await self._content(name, data, caller)
        async with self._staged.alone(content.blobs):
            await self._check_blobs(name, content, caller)
        sender = pusher.principal.name
        self._staged.check_count(sender)
        await self.uploads.check_room(len(data), sender)
        await self._staged.put_manifest(data, digest, name, sender)

    async def publish(self, image: Image, data: bytes, pusher: Pusher, caller: Principal) -> None:
        """Publishes an image. Returns when enough masters hold it."""
        digest = digest_of(data)
        async with self._pushers.client(pusher.token) as client:
            live = await _live(client, image)
            if live is not None and live.state is BundleState.AVAILABLE:  # a lost one comes back by being pushed
                if (await self._images.by_tag(image)).digest != digest:
                    raise tag_taken(image, "push this one under another tag")
                await client.wait_replicas(live.id, live.min_replicas, WAIT_SECS)
                return
            content = await self._content(image.name, data, caller)
            layout = await asyncio.to_thread(self._publication.workplace)
            try:
                # Another image with one of these blobs takes it before this one looks, or later.
                async with self._staged.alone(content.blobs):
                    await self._check_blobs(image.name, content, caller)
                    there = sum(size for one, size in content.blobs.items() if self._staged.get(one) is not None)
                    await self.uploads.check_room(content.size - there, pusher.principal.name)
                    copies = await self._copies(image.name, content, layout, caller, pusher.principal.name)
                    made = PushedImage(image, digest, content, copies)
                    view = await self._publication.publish(client, made, layout)
                await self._publication.wait(client, view)
            finally:
                for folder in (layout, layout.with_suffix(".copies")):
                    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
                self.on_change()

    async def delete(self, name: str, reference: str, pusher: Pusher, caller: Principal) -> bool:
        """Deletes a tag, or all tags of a manifest. False: there is none."""
        found = False
        images = [Image(name, reference)]
        if is_digest(reference):
            images = await self._images.tags_of(name, reference)
            staged = self._staged.get(reference)
            if staged is not None and staged.is_manifest and name in staged.names:
                await self._staged.drop(reference)
                found = True
        async with self._pushers.client(pusher.token) as client:
            for image in images:
                live = await _live(client, image)
                if live is not None:
                    await client.remove(live.id)
                    await self._keeper.forget(live.id)
                    found = True
        self.on_change()
        return found

    async def drop_blob(self, name: str, digest: str, pusher: Pusher, caller: Principal) -> bool:
        """Drops a blob that no image needs yet. False: there is none."""
        async with self._staged.alone([digest]):
            found = await self._images.blob(name, digest, caller)
            if found is None:
                return False
            if found.content is not None:
                raise RegistryError("UNSUPPORTED", 405, "blobs of a published image go with its tags")
            if (staged := self._staged.get(digest)) is None:
                return False
            if staged.sender != pusher.principal.name:
                check_role(pusher.principal, Role.OPERATOR, "DELETE of a blob that another sender pushed")
            await self._staged.drop(digest)
            return True

    async def _content(self, name: str, data: bytes, caller: Principal) -> ImageContent:
        """Returns what an image consists of. Raises an error if a manifest is not here."""
        known: dict[str, bytes] = {}
        together = len(data)
        for _ in range(DEEPEST):
            content = await in_heavy_thread(content_of, data, known.get)
            if not content.missing:
                break
            for digest in content.missing:
                child = await self._images.by_digest(name, digest, caller)
                if child is None:
                    raise _unknown(digest)
                known[digest] = child.data
                if (together := together + len(child.data)) > MOST_MANIFEST_BYTES:
                    detail = f"its manifests have more than {MOST_MANIFEST_BYTES} bytes together"
                    raise TorrentdistError("invalid_request", detail=detail)
        else:
            raise TorrentdistError("invalid_request", detail=f"its indexes are nested more than {DEEPEST} deep")
        return content

    async def _check_blobs(self, name: str, content: ImageContent, caller: Principal) -> None:
        """Raises an error if a blob of an image is not here, or has another size than its
        descriptor says."""
        for digest, size in content.blobs.items():
            if await self._images.blob(name, digest, caller, size) is not None:
                continue
            found = await self._images.blob(name, digest, caller)
            if found is None:
                raise _unknown(digest)
            detail = f"{digest} has {found.size} bytes, and its descriptor says {size}"
            raise TorrentdistError("invalid_request", detail=detail)

    async def _copies(
        self, name: str, content: ImageContent, layout: Path, caller: Principal, sender: str
    ) -> dict[str, Path]:
        """Copies the blobs that are in other images of this host."""
        made: dict[str, Path] = {}
        folder = layout.with_suffix(".copies")
        for digest, size in content.blobs.items():
            if self._staged.get(digest) is not None:
                continue
            made[digest] = folder / digest.removeprefix("sha256:")
            with disk_failures(layout, needed=size):
                await asyncio.to_thread(folder.mkdir, exist_ok=True)
                while (found := await self._images.blob(name, digest, caller, size)) is not None:
                    await _copy(found, made[digest])
                    if await self._staged.hashed(made[digest], sender) == digest:
                        break
                    if found.content is None:
                        raise _unknown(digest)
                    self._checked.note_wrong(found.content, digest)
            if found is None:
                raise _unknown(digest)
        return made


async def _live(client: MasterClient, image: Image) -> BundleView | None:
    """Returns the bundle that a tag stands for, also while it is uploaded."""

    async def asked(bundle: BundleId) -> BundleView | None:
        try:
            params = {"uploading": "true"}
            return await client.ask_patiently("GET", f"/v1/bundles/{bundle}", BundleView, params=params)
        except TorrentdistError as error:
            if error.code != "bundle_not_found":
                raise
            return None

    found = await asyncio.gather(*map(asked, image.generations))
    return next((view for view in found if view is not None), None)


async def _copy(blob: Blob, place: Path) -> None:
    with await asyncio.to_thread(open, place, "wb") as stream:
        async for data in blob.read(0, blob.size):
            await asyncio.to_thread(stream.write, data)


def _unknown(digest: str) -> RegistryError:
    return RegistryError("MANIFEST_BLOB_UNKNOWN", 400, f"{digest}, which this manifest names, was not pushed")
