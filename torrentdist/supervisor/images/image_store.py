"""Finds images, their manifests and their blobs in the bundles of this host, and in what was pushed
to it and is not published yet.

Always: a manifest is what its digest says, whatever its bundle holds under that name. Bundles that
the caller may not read are not there. An image that lies, or cannot be read, hides no other one.
What is remembered of an image is small, and images without a blob cost nothing when it is looked
for.
Never: fetch a bundle, unless an image is asked for by its tag.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import msgspec

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
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.host.recent_results import RecentResults
from torrentdist.host.runtime import HostRuntime
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.model.ids import BundleId, Digest
from torrentdist.security.authorization import Principal, may_read
from torrentdist.supervisor.bundles.host_content import HostContent
from torrentdist.supervisor.gateway.bundle_reader import BundleReader
from torrentdist.supervisor.images.checked_blobs import Blob, CheckedBlobs
from torrentdist.supervisor.images.staged_blobs import StagedBlobs

KEPT = 1024
"""Images whose blobs are known without their metafiles."""
MOST_KEPT = 2000
"""Files of an image whose blobs are remembered. One with more is read again each time."""
MOST_LISTED = 100
"""Manifests of one layout of which is looked whether they are about another one."""
_OF_CONTENT = ("invalid_request", "too_large", "not_found")
"""Errors about what a bundle holds, which never changes."""
_SOON_PARSED = 64 * 1024
"""Bytes of a manifest that is parsed on the event loop."""


class ImageManifest(msgspec.Struct, frozen=True):
    data: bytes
    digest: str
    file: ManifestFile


class ImageStore:
    def __init__(
        self, runtime: HostRuntime, reader: BundleReader, staged: StagedBlobs, links: MasterLinks, checked: CheckedBlobs
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._reader = reader
        self._staged = staged
        self._links = links
        self._checked = checked
        self._blobs: RecentResults[frozenset[str] | None] = RecentResults(KEPT)
        """The paths of each image's blobs."""
        self._indexes: RecentResults[str] = RecentResults(KEPT)
        """The digest of each image's index.json."""
        self._about: RecentResults[dict[str, str]] = RecentResults(KEPT)
        """The manifests of each image that name another one as their subject, with that one."""

    async def by_tag(self, image: Image) -> ImageManifest:
        """Returns the manifest of an image. A bundle that is not here is fetched."""
        content = await self._content(image)
        data = await self._read(content, await self._file(content, INDEX_FILE), INDEX_FILE)
        index = await _parsed(data)
        if index.manifests is None:
            raise TorrentdistError("not_found", what=f"an image index in {image.bundle}")
        digest = tagged(index, image.tag)
        if digest is None:
            return ImageManifest(data, digest_of(data), index)
        return await self._manifest(content, await self._file(content, blob_path(digest)), digest)

    async def _content(self, image: Image) -> HostContent:
        """Returns the bundle that the tag stands for: the first one that is here, or that the
        masters know."""
        for bundle in image.generations:
            if self._here(bundle) is not None:
                return await self._reader.content(bundle)
        known = await asyncio.gather(*map(self._links.exists, image.generations), return_exceptions=True)
        if not any(known):  # told at once, and nothing is fetched
            raise TorrentdistError("bundle_not_found", id=image.bundle, note="")
        there = (bundle for bundle, found in zip(image.generations, known, strict=True) if found is True)
        return await self._reader.content(next(there, image.bundle))

    async def by_digest(self, name: str, digest: str, caller: Principal) -> ImageManifest | None:
        """Returns the manifest of this digest from the images of this host; None if none has it."""
        failure: TorrentdistError | None = None
        async for content, file in self._holding(name, blob_path(digest), caller):
            try:
                return await self._manifest(content, file, digest)
            except TorrentdistError as error:
                failure = error
        async for bundle, content_digest in self._readable(name, caller):
            with suppress(TorrentdistError):
                if digest == await self._indexes.get(content_digest, partial(self._index_digest, bundle)):
                    content = await self._reader.content(bundle)
                    return await self._manifest(content, await self._file(content, INDEX_FILE), digest)
        if self._may_see(digest, caller) and (data := await self._staged.manifest(digest) or b""):
            return ImageManifest(data, digest, await _parsed(data))
        if failure is not None:
            raise failure
        return None

    async def blob(self, name: str, digest: str, caller: Principal, size: int | None = None) -> Blob | None:
        """Returns a blob from the images of this host; None if none has it. `size`: that it must
        have."""
        async for content, file in self._holding(name, blob_path(digest), caller):
            if not self._checked.is_wrong(content, digest) and size in (None, file.size):
                return Blob(file.size, partial(content.read_part, file), content, file)
        if self._may_see(digest, caller) and await self._staged.is_sound(digest):
            staged = self._staged.get(digest)
            if staged is not None and size in (None, staged.size):
                return Blob(staged.size, partial(read_part, self._staged.path(digest)))
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
        async for bundle, content_digest in self._readable(name, caller):
            with suppress(TorrentdistError):
                about = await self._about.get(content_digest, partial(self._subjects, bundle))
                for one in (one for one, subject in about.items() if subject == digest and one not in found):
                    content = await self._reader.content(bundle)
                    found[one] = await self._manifest(content, await self._file(content, blob_path(one)), one)
        return list(found.values())

    def _here(self, bundle: BundleId) -> Digest | None:
        """Returns the digest of a bundle that is here or arrives."""
        digest = self._store.lookup(bundle)
        is_here = digest is not None and (self._store.get(digest) or digest in self._runtime.fetches.under_way())
        return digest if is_here else None

    async def _readable(self, name: str, caller: Principal) -> AsyncIterator[tuple[BundleId, Digest]]:
        """Yields the images that are here, and those of this name that arrive. Others that arrive
        may keep a reader waiting."""
        for bundle in self._images(name, caller):
            digest = self._here(bundle)
            if digest is not None and (self._store.get(digest) is not None or _name_in(bundle) == name):
                yield bundle, digest

    async def _holding(self, name: str, path: str, caller: Principal) -> AsyncIterator[tuple[HostContent, FileEntry]]:
        """Yields the images that are here or arrive and have this file, those of this name
        first."""
        for bundle in self._images(name, caller):
            digest = self._here(bundle)
            if digest is None:
                continue
            with suppress(TorrentdistError):
                known = await self._blobs.get(digest, partial(self._blob_paths, bundle))
                if known is not None and path not in known:
                    continue
                content = await self._reader.content(bundle)
                if (file := await self._file(content, path)) is not None:
                    yield content, file

    def _images(self, name: str, caller: Principal) -> list[BundleId]:
        readable = (one for one in self._store.bindings() if one.startswith(PREFIX) and may_read(caller, one))
        return sorted(readable, key=lambda bundle: _name_in(bundle) != name)

    async def _blob_paths(self, bundle: BundleId) -> frozenset[str] | None:
        """Returns the paths of an image's blobs; None if they are too many to be remembered."""
        meta = (await self._reader.content(bundle)).meta
        paths = [*(file.path for file in meta.files), *(link.path for link in meta.symlinks)]
        return frozenset(paths) if len(paths) <= MOST_KEPT else None

    async def _index_digest(self, bundle: BundleId) -> str:
        content = await self._reader.content(bundle)
        file = await self._file(content, INDEX_FILE)
        if file is None or file.size > MOST_BYTES:
            return ""
        return digest_of(await self._read(content, file, INDEX_FILE))

    async def _subjects(self, bundle: BundleId) -> dict[str, str]:
        """Returns the manifests of a layout that are about another one, and which one that is."""
        content = await self._reader.content(bundle)
        found: dict[str, str] = {}
        with _unless_passing():
            index = await _parsed(await self._read(content, await self._file(content, INDEX_FILE), INDEX_FILE))
            listed = dict.fromkeys(one.digest for one in index.manifests or [])
            for digest in list(listed)[:MOST_LISTED]:
                with _unless_passing():
                    one = await self._manifest(content, await self._file(content, blob_path(digest)), digest)
                    if one.file.subject is not None:
                        found[digest] = one.file.subject.digest
        return found

    async def _file(self, content: HostContent, path: str) -> FileEntry | None:
        """Returns the file at a path, which may be a symlink to it."""
        node = (await self._reader.tree(content)).find(path)
        return None if node is None else node.file

    async def _manifest(self, content: HostContent, file: FileEntry | None, digest: str) -> ImageManifest:
        data = await self._read(content, file, digest)
        if digest_of(data) != digest:
            raise TorrentdistError("invalid_request", detail=f"the image's bundle holds something else as {digest}")
        return ImageManifest(data, digest, await _parsed(data))

    async def _read(self, content: HostContent, file: FileEntry | None, what: str) -> bytes:
        found = required(file, "not_found", what=f"{what[:100]!r} in this image")
        if found.size > MOST_BYTES:
            raise TorrentdistError("too_large", what=f"{what[:100]!r}", size=found.size, limit=MOST_BYTES)
        return b"".join([data async for data in content.read_part(found, 0, found.size)])


@contextmanager
def _unless_passing() -> Iterator[None]:
    """Passes over what is wrong with the content of a bundle. Other errors, such as those of a disk
    or of a bundle that arrives, may be over soon: what follows from them is not remembered."""
    try:
        yield
    except TorrentdistError as error:
        if error.code not in _OF_CONTENT:
            raise


async def _parsed(data: bytes) -> ManifestFile:
    return parse_manifest(data) if len(data) < _SOON_PARSED else await in_heavy_thread(parse_manifest, data)


def _name_in(bundle: BundleId) -> str:
    image = image_of(bundle)
    return image.name if image is not None else ""
