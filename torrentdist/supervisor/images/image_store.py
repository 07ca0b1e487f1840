"""Finds images, their manifests and their blobs in the bundles of this host, and in what was pushed
to it and is not published yet.

Always: a manifest is what its digest says, whatever its bundle holds under that name. Bundles that
the caller may not read are not there.
Never: fetch a bundle, unless an image is asked for by its tag.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from torrentdist.bundle.images.image_layout import (
    INDEX_FILE,
    MOST_BYTES,
    ManifestFile,
    blob_path,
    digest_of,
    parse_manifest,
    tagged,
)
from torrentdist.bundle.images.image_names import PREFIX, Image, image_of, is_referrer_tag
from torrentdist.bundle.metafile import FileEntry
from torrentdist.host.http.file_answers import read_part
from torrentdist.host.master_links import MasterLinks
from torrentdist.host.recent_results import RecentResults
from torrentdist.host.runtime import HostRuntime
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.model.ids import BundleId
from torrentdist.security.authorization import Principal, may_read
from torrentdist.supervisor.bundles.host_content import HostContent
from torrentdist.supervisor.gateway.bundle_reader import BundleReader
from torrentdist.supervisor.images.staged_blobs import StagedBlobs

Files = Mapping[str, FileEntry]
"""The files of a bundle by path, and by the symlinks that lead to them."""
KEPT = 256
"""Images whose files are known without their metafiles."""


@dataclass(frozen=True)
class ImageManifest:
    data: bytes
    digest: str
    file: ManifestFile


@dataclass(frozen=True)
class Blob:
    size: int
    read: Callable[[int, int], AsyncIterator[bytes]]
    """Yields the bytes from a place to another."""
    content: HostContent | None = None
    """The image's bundle; None: it is not published yet."""
    file: FileEntry | None = None
    """Its place in that bundle."""


class ImageStore:
    def __init__(self, runtime: HostRuntime, reader: BundleReader, staged: StagedBlobs, links: MasterLinks) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._reader = reader
        self._staged = staged
        self._links = links
        self._files: RecentResults[Files] = RecentResults(KEPT)

    async def by_tag(self, image: Image) -> ImageManifest:
        """Returns the manifest of an image. A bundle that is not here is fetched."""
        content = await self._content(image)
        files = await self._files_of(content)
        data = await self._read(content, files.get(INDEX_FILE), INDEX_FILE)
        index = parse_manifest(data)
        if index.manifests is None:
            raise TorrentdistError("not_found", what=f"an image index in {image.bundle}")
        digest = tagged(index, image.tag)
        if digest is None:
            return ImageManifest(data, digest_of(data), index)
        return await self._manifest(content, files.get(blob_path(digest)), digest)

    async def _content(self, image: Image) -> HostContent:
        """Returns the bundle that the tag stands for: the first one that is here, or that the
        masters know."""
        under_way = self._runtime.fetches.under_way()
        for bundle in image.generations:
            digest = self._store.lookup(bundle)
            if digest is not None and (digest in under_way or self._store.get(digest) is not None):
                return await self._reader.content(bundle)
        known = await asyncio.gather(*map(self._links.exists, image.generations), return_exceptions=True)
        if not any(known):  # told at once, and nothing is fetched
            raise TorrentdistError("bundle_not_found", id=image.bundle, note="")
        there = (bundle for bundle, found in zip(image.generations, known, strict=True) if found is True)
        return await self._reader.content(next(there, image.bundle))

    async def by_digest(self, name: str, digest: str, caller: Principal) -> ImageManifest | None:
        """Returns the manifest of this digest from the images of this host; None if none has it."""
        async for content, files in self._images(name, caller):
            if (file := files.get(blob_path(digest))) is not None and file.size <= MOST_BYTES:
                return await self._manifest(content, file, digest)
            index = files.get(INDEX_FILE)
            if index is not None and index.size <= MOST_BYTES:
                data = await self._read(content, index, INDEX_FILE)
                if digest_of(data) == digest:
                    return ImageManifest(data, digest, parse_manifest(data))
        if self._may_see(digest, caller) and (data := await self._staged.manifest(digest) or b""):
            return ImageManifest(data, digest, parse_manifest(data))
        return None

    async def blob(self, name: str, digest: str, caller: Principal) -> Blob | None:
        """Returns a blob from the images of this host; None if none has it."""
        async for content, files in self._images(name, caller):
            if (file := files.get(blob_path(digest))) is not None:
                return Blob(file.size, partial(content.read_part, file), content, file)
        if self._may_see(digest, caller) and await self._staged.is_sound(digest):
            staged = self._staged.get(digest)
            return None if staged is None else Blob(staged.size, partial(read_part, self._staged.path(digest)))
        return None

    def _may_see(self, digest: str, caller: Principal) -> bool:
        """Whether a caller may read what was pushed: it may read images of one of its names."""
        staged = self._staged.get(digest)
        return staged is not None and any(may_read(caller, Image(name, "any").bundle) for name in staged.names)

    def tags(self, name: str, bundles: Iterable[BundleId], caller: Principal) -> list[str]:
        """Returns the tags of an image among these bundles, whose ids tell them."""
        images = (image_of(bundle) for bundle in bundles if may_read(caller, bundle))
        found = {image.tag for image in images if image is not None and image.name == name}
        return sorted(tag for tag in found if not is_referrer_tag(tag))

    async def tags_of(self, name: str, digest: str) -> list[Image]:
        """Returns the images of this host under a name that are the manifest of this digest."""
        found = []
        for bundle in self._store.bindings():
            image = image_of(bundle)
            if image is not None and image.name == name:
                with suppress(TorrentdistError):
                    found += [image] if (await self.by_tag(image)).digest == digest else []
        return sorted(set(found), key=lambda image: image.tag)

    async def referrers(self, name: str, digest: str, caller: Principal) -> list[ImageManifest]:
        """Returns the manifests of this host that name another one as their subject."""
        found: dict[str, ImageManifest] = {}
        async for content, files in self._images(name, caller):
            index = files.get(INDEX_FILE)
            if index is None or index.size > MOST_BYTES:
                continue
            listed = parse_manifest(await self._read(content, index, INDEX_FILE)).manifests or []
            for one in listed:
                manifest = await self._manifest(content, files.get(blob_path(one.digest)), one.digest)
                if manifest.file.subject is not None and manifest.file.subject.digest == digest:
                    found[manifest.digest] = manifest
        return list(found.values())

    def _readable(self, caller: Principal) -> Iterator[BundleId]:
        return (bundle for bundle in self._store.bindings() if bundle.startswith(PREFIX) and may_read(caller, bundle))

    async def _images(self, name: str, caller: Principal) -> AsyncIterator[tuple[HostContent, Files]]:
        """Yields the images that are here or arrive, those of this name first."""
        under_way = self._runtime.fetches.under_way()
        for bundle in sorted(self._readable(caller), key=lambda bundle: _name_in(bundle) != name):
            digest = self._store.lookup(bundle)
            if digest is not None and (digest in under_way or self._store.get(digest) is not None):
                content = await self._reader.content(bundle)
                yield content, await self._files_of(content)

    async def _files_of(self, content: HostContent) -> Files:
        async def listed() -> Files:
            tree = await self._reader.tree(content)
            links = ((link.path, tree.find(link.path)) for link in content.meta.symlinks)
            led = {path: node.file for path, node in links if node is not None and node.file is not None}
            return {file.path: file for file in content.meta.files} | led

        return await self._files.get(content.meta.digest, listed)

    async def _manifest(self, content: HostContent, file: FileEntry | None, digest: str) -> ImageManifest:
        data = await self._read(content, file, digest)
        if digest_of(data) != digest:
            raise TorrentdistError("invalid_request", detail=f"the image's bundle holds something else as {digest}")
        return ImageManifest(data, digest, parse_manifest(data))

    async def _read(self, content: HostContent, file: FileEntry | None, what: str) -> bytes:
        found = required(file, "not_found", what=f"{what[:100]!r} in this image")
        if found.size > MOST_BYTES:
            raise TorrentdistError("too_large", what=f"{what[:100]!r}", size=found.size, limit=MOST_BYTES)
        return b"".join([data async for data in content.read_part(found, 0, found.size)])


def _name_in(bundle: BundleId) -> str:
    image = image_of(bundle)
    return image.name if image is not None else ""
