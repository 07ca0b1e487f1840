"""Makes a bundle of a pushed image and publishes it in the cluster.

Always: the bundle is a complete OCI layout, and each of its blobs is what its digest says. A bundle
of the same image is the same bundle. The masters decide whether the pusher may publish it, before
anything of this host's store changes. Returns when as many masters hold it as the cluster wants.
Never: move a tag.
"""

import asyncio
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from torrentdist.bundle.files.durability import disk_failures
from torrentdist.bundle.images.image_content import ImageContent
from torrentdist.bundle.images.image_layout import INDEX, INDEX_FILE, Descriptor, blob_path, parse_manifest
from torrentdist.bundle.images.image_names import Image
from torrentdist.bundle.images.layer_unpacking import LAYERS
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile_and_recipe
from torrentdist.client.bundles.chunked_upload import opened_with_proof
from torrentdist.client.bundles.known_bundle import packed_if_read
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.host.process.heavy_work import until_ended
from torrentdist.host.runtime import HostRuntime
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.removals import REMOVED_KEEPS_ID
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.images.registry_errors import RegistryError
from torrentdist.supervisor.images.staged_blobs import StagedBlobs

log = get_logger()

WAIT_SECS: Final = 300.0
"""How long a push waits for masters to hold its image. Later they go on without it."""


class PushedImage(msgspec.Struct, frozen=True):
    image: Image
    digest: str
    """The digest of its manifest."""
    content: ImageContent
    elsewhere: dict[str, Path]
    """Copies of the blobs that come from other images of this host, by digest. Their directory is
    removed before the bundle is published."""


class Publication:
    def __init__(self, runtime: HostRuntime, keeper: Keeper, staged: StagedBlobs) -> None:
        self._runtime = runtime
        self._keeper = keeper
        self._staged = staged

    def workplace(self) -> Path:
        """Makes a directory for one image."""
        path = self._staged.directory / "layouts" / secrets.token_hex(8)
        with disk_failures(path):
            (path / "blobs" / "sha256").mkdir(parents=True)
        return path

    async def publish(self, client: MasterClient, pushed: PushedImage, layout: Path) -> BundleView:
        """Publishes an image whose layout is made in this directory. The caller keeps its blobs
        alone. Returns when this host has its bundle."""
        await self._lay_out(pushed, layout)

        async def opened(packed: bool) -> tuple[BundleView, Metafile]:
            meta, recipe = await asyncio.to_thread(make_metafile_and_recipe, layout, packed=packed)
            return await self._opened(client, pushed.image, meta, recipe, layout), meta

        view, meta = await packed_if_read(opened)
        await self._keep(client, view.id, meta, layout, pushed)
        log.info("an image was pushed", bundle=view.id, digest=meta.digest, size=meta.size)
        return view

    async def wait(self, client: MasterClient, view: BundleView) -> None:
        """Returns when enough masters hold a bundle."""
        found = await client.wait_replicas(view.id, view.min_replicas, WAIT_SECS)
        if found.replicas < view.min_replicas:
            raise TorrentdistError(
                "timed_out", what=f"copying {view.id} to {view.min_replicas} masters", seconds=WAIT_SECS
            )

    async def _lay_out(self, pushed: PushedImage, layout: Path) -> None:
        """Brings the image's blobs to their places in a layout."""
        content = pushed.content
        parsed = parse_manifest(content.manifests[pushed.digest])
        index = {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [Descriptor(parsed.kind, pushed.digest, len(content.manifests[pushed.digest]))],
        }
        files = {INDEX_FILE: msgspec.json.encode(index), "oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}
        files |= {blob_path(digest): data for digest, data in content.manifests.items()}
        places: dict[Path, Path] = {}
        links: list[tuple[Path, str]] = []
        plain = [digest for digest in content.plain_layers if digest in content.blobs]
        for digest in content.blobs:
            if digest not in pushed.elsewhere and not await self._staged.is_sound(digest):
                raise RegistryError("MANIFEST_BLOB_UNKNOWN", 400, f"the blob {digest} of this manifest")
            place = layout / blob_path(digest)
            if digest in plain:  # a name that the next version has too, see layer_unpacking.py
                links.append((place, f"../../{LAYERS}/{plain.index(digest):03}.tar"))
                place = layout / LAYERS / f"{plain.index(digest):03}.tar"
            places[pushed.elsewhere.get(digest, self._staged.path(digest))] = place
        with disk_failures(layout):
            await asyncio.to_thread(_arrange, layout, files, places, links)

    async def _opened(
        self, client: MasterClient, image: Image, meta: Metafile, recipe: bytes | None, layout: Path
    ) -> BundleView:
        """Opens the upload under the first id of the tag that no removed bundle keeps."""
        for bundle in image.generations:

            async def attempt(bundle: BundleId = bundle) -> BundleView:
                told = await client.offer_recipe(bundle, recipe) if recipe else ""
                return await client.open_upload(bundle, meta.raw, None, told)

            try:
                return await opened_with_proof(client, bundle, meta, layout, lambda offset: None, attempt)
            except TorrentdistError as error:
                if error.code != "conflict":
                    raise
                if error.fields.get("note") != REMOVED_KEEPS_ID:
                    raise tag_taken(image, "another one was pushed meanwhile") from None
        raise TorrentdistError(
            "tag_taken", tag=f"{image.name}:{image.tag}", detail="it was deleted too often this week"
        )

    async def _keep(
        self, client: MasterClient, bundle: BundleId, meta: Metafile, layout: Path, pushed: PushedImage
    ) -> None:
        """Takes the layout into this host's store, from which the masters get it. Manifests stay
        staged until they are found in the bundle: another index may need them."""
        runtime, digest, content = self._runtime, meta.digest, pushed.content
        async with runtime.turn(digest):
            if digest in runtime.fetches.under_way():
                await runtime.fetches.stop(digest)
            if runtime.store.get(digest) is None:
                home = await runtime.store.begin(meta)
                moving = asyncio.ensure_future(asyncio.to_thread(_move_files, meta, layout, home / "content"))
                await until_ended(moving)
                with disk_failures(home):
                    moving.result()
                    for copy in pushed.elsewhere.values():
                        await asyncio.to_thread(copy.unlink, missing_ok=True)
                # Nothing outside the store leads to the files of a bundle.
                await self._drop_staged(content.blobs)
                await runtime.fetches.publish(meta)
            self._keeper.hear_given(digest, client.zxid)
            # Until it has its id, nobody wants it: the lock keeps it here.
            await runtime.store.bind(bundle, digest)
        await self._drop_staged((*content.blobs, *content.manifests))

    async def _drop_staged(self, digests: Iterable[str]) -> None:
        for digest in digests:
            await self._staged.drop(digest)


def tag_taken(image: Image, detail: str) -> TorrentdistError:
    """Makes the error of a tag that stands for another image."""
    return TorrentdistError("tag_taken", tag=f"{image.name}:{image.tag}", detail=detail)


def _arrange(
    layout: Path, files: Mapping[str, bytes], places: Mapping[Path, Path], links: Sequence[tuple[Path, str]]
) -> None:
    (layout / LAYERS).mkdir(exist_ok=True)
    for name, data in files.items():
        (layout / name).write_bytes(data)
    for source, place in places.items():
        os.link(source, place)
        place.chmod(0o644)
    for place, target in links:
        place.symlink_to(target)
    if not any((layout / LAYERS).iterdir()):
        (layout / LAYERS).rmdir()


def _move_files(meta: Metafile, layout: Path, content: Path) -> None:
    for file in meta.files:
        place = content / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(layout / file.path, place)
    shutil.rmtree(layout, ignore_errors=True)
