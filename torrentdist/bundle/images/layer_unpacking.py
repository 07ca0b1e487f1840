"""Unpacks the compressed layers of an image in its layout, so that versions of an image share what
did not change.

A layer is a file of a name that the next version has too, `layers/000.tar`, since parts of a file
are taken from an older file of the same path. Where the layout wants the layer is a symlink to it.
Always: the image's configuration stays as it is, and so do the hashes of unpacked layers in it,
with which each layer is compared. The new manifest names the digest of the original one. Whatever a
layout holds, this ends: each manifest and layer is read once, and KEPT_FREE stays free of the disk.
Never: change a layer that it cannot unpack.
"""

import hashlib
import json
import os
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torrentdist.bundle.files.durability import disk_failures, free_bytes
from torrentdist.bundle.images.image_layout import INDEX_FILE, MOST_BYTES, blob_path, digest_of
from torrentdist.bundle.images.image_names import is_digest
from torrentdist.model.errors import TorrentdistError

ORIGINAL: Final = "io.torrentdist.original.digest"
"""The annotation of a manifest that names the one it was made from."""
_PACKED: Final = {
    "application/vnd.oci.image.layer.v1.tar+gzip": "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip": (
        "application/vnd.oci.image.layer.nondistributable.v1.tar"
    ),
}
LAYERS: Final = "layers"
DEEPEST: Final = 8
"""How deep indexes may be nested."""
KEPT_FREE: Final = 256 * 1024 * 1024
"""Bytes that unpacking leaves free on its disk."""
_LOOK_BYTES: Final = 32 * 1024 * 1024
"""Bytes after which it looks how many are free."""
_CHUNK: Final = 1024 * 1024
_PACKED_CHUNK: Final = 32 * 1024
"""Bytes of gzip at a time. What follows a member in them is copied, and there may be many small
members."""
_Json = dict[str, Any]


@dataclass
class UnpackedLayers:
    """What was done to a layout."""

    unpacked: int = 0
    kept: int = 0
    """Layers that are packed in a way that is not known here."""
    packed_bytes: int = 0
    unpacked_bytes: int = 0


def unpack_layers(layout: Path, stopping: threading.Event | None = None) -> UnpackedLayers:
    """Unpacks the layers of all images of a layout. Raises `interrupted` soon after `stopping` is
    set. Blocks."""
    unpacking = _Unpacking(layout, stopping or threading.Event())
    with disk_failures(layout):
        unpacking.run()
    return unpacking.done


class _Unpacking:
    """The unpacking of one layout."""

    def __init__(self, layout: Path, stopping: threading.Event) -> None:
        self.done = UnpackedLayers()
        self._layout = layout
        self._stopping = stopping
        self._manifests: dict[str, _Json] = {}
        """What descriptors say of manifests that were made, by the digests of the originals."""
        self._layers: dict[tuple[str, str], _Json] = {}
        """What descriptors say of unpacked layers, by their packed and unpacked digests."""
        self._named: set[str] = set()

    def run(self) -> None:
        layout = self._layout
        (layout / LAYERS).mkdir(exist_ok=True)
        index = _read(layout, layout / INDEX_FILE)
        index["manifests"] = [self._manifest(one, 0) for one in _list(layout, index, "manifests")]
        (layout / INDEX_FILE).write_bytes(json.dumps(index).encode())
        self._note_named(index)
        replaced = {*self._manifests, *(packed for packed, _ in self._layers)}
        for digest in replaced - self._named:
            _blob(layout, digest).unlink(missing_ok=True)

    def _manifest(self, named: _Json, depth: int) -> _Json:
        """Returns the descriptor of the manifest, or index, that stands for the given one."""
        layout, digest = self._layout, _digest(self._layout, named)
        made = self._manifests.get(digest)
        if made is None:
            manifest = _read(layout, _blob(layout, digest))
            if "manifests" in manifest and depth == DEEPEST:
                raise _broken(layout, f"its indexes are nested more than {DEEPEST} deep")
            if "manifests" in manifest:
                children = _list(layout, manifest, "manifests")
                changed = {**manifest, "manifests": [self._manifest(child, depth + 1) for child in children]}
            else:
                changed = {**manifest, "layers": self._unpacked_layers(manifest)}
            made = self._manifests[digest] = self._written(changed, digest) if changed != manifest else {}
        return {**named, **made}

    def _written(self, manifest: _Json, original: str) -> _Json:
        """Writes a manifest, and returns what its descriptor says of it."""
        annotations = manifest.get("annotations") or {}
        if not isinstance(annotations, dict) or not all(isinstance(text, str) for text in annotations.values()):
            raise _broken(self._layout, "its annotations are no texts by their names")
        data = json.dumps({**manifest, "annotations": {**annotations, ORIGINAL: original}}).encode()
        digest = digest_of(data)
        _blob(self._layout, digest).write_bytes(data)
        return {"digest": digest, "size": len(data)}

    def _unpacked_layers(self, manifest: _Json) -> list[_Json]:
        layout, layers = self._layout, _list(self._layout, manifest, "layers")
        if not any(_is_packed(layer) for layer in layers):
            self.done.kept += sum("+" in str(layer.get("mediaType")) for layer in layers)
            return layers
        config = _read(layout, _blob(layout, _digest(layout, manifest.get("config"))))
        system = config.get("rootfs")
        hashes = system.get("diff_ids") if isinstance(system, dict) else None
        if not isinstance(hashes, list) or len(hashes) != len(layers):
            raise _broken(layout, "its configuration names other layers than its manifest")
        return [self._unpacked(layer, wanted) for layer, wanted in zip(layers, hashes, strict=True)]

    def _unpacked(self, layer: _Json, wanted: object) -> _Json:
        if not _is_packed(layer):
            self.done.kept += "+" in str(layer.get("mediaType"))
            return layer
        packed, plain = _digest(self._layout, layer), _digest(self._layout, {"digest": wanted})
        made = self._layers.get((packed, plain))
        if made is None:
            size = self._write_plain(packed, plain)
            made = self._layers[packed, plain] = {"digest": plain, "size": size}
            self.done.unpacked += 1
            self.done.packed_bytes += _blob(self._layout, packed).stat().st_size
            self.done.unpacked_bytes += size
        return {**layer, "mediaType": _PACKED[layer["mediaType"]], **made}

    def _write_plain(self, packed: str, plain: str) -> int:
        """Unpacks a layer to its place. Returns its size."""
        layout, made = self._layout, _blob(self._layout, plain)
        file = layout / LAYERS / f"{len(os.listdir(layout / LAYERS)):03}.tar"
        size, found, looked = 0, hashlib.sha256(), 0
        try:
            with open(file, "wb") as stream:
                for data in _plain_parts(_blob(layout, packed)):
                    if self._stopping.is_set():
                        raise TorrentdistError("interrupted")
                    found.update(data)
                    size += stream.write(data)
                    if size - looked >= _LOOK_BYTES:
                        looked = size
                        _check_room(layout)
        except BaseException:
            file.unlink()
            raise
        if f"sha256:{found.hexdigest()}" != plain:
            file.unlink()
            raise _broken(layout, f"the layer {packed} does not unpack to {plain}")
        if os.path.lexists(made):
            file.unlink()  # two layers have the same files
        else:
            made.symlink_to(os.path.relpath(file, made.parent))
        return size

    def _note_named(self, manifest: _Json) -> None:
        """Notes the digests of everything that an index or a manifest leads to."""
        layout = self._layout
        for one in _list(layout, manifest, "manifests"):
            if (digest := _digest(layout, one)) not in self._named:
                self._named.add(digest)
                self._note_named(_read(layout, _blob(layout, digest)))
        config = [] if manifest.get("config") is None else [manifest["config"]]
        self._named.update(_digest(layout, one) for one in [*config, *_list(layout, manifest, "layers")])


def _check_room(layout: Path) -> None:
    if (free := free_bytes(layout)) < KEPT_FREE:
        raise TorrentdistError("disk_full", path=str(layout), needed=KEPT_FREE, free=free)


def _is_packed(layer: _Json) -> bool:
    return str(layer.get("mediaType")) in _PACKED


def _plain_parts(path: Path) -> Iterator[bytes]:
    """Yields what a file of gzip holds, which may have several members."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        with open(path, "rb") as stream:
            while data := stream.read(_PACKED_CHUNK):
                while data:
                    yield unpacker.decompress(data, _CHUNK)
                    data = unpacker.unconsumed_tail
                    if unpacker.eof:
                        data, unpacker = unpacker.unused_data, zlib.decompressobj(wbits=31)
    except zlib.error as exc:
        raise TorrentdistError("corrupt", path=str(path), detail=str(exc)) from exc


def _list(layout: Path, manifest: _Json, name: str) -> list[_Json]:
    """Returns the descriptors in a field of a manifest."""
    found = manifest.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise _broken(layout, f"{name} is no list of descriptors")
    return found


def _digest(layout: Path, named: object) -> str:
    """Returns the digest in a descriptor."""
    digest = named.get("digest") if isinstance(named, dict) else None
    if not isinstance(digest, str) or not is_digest(digest):
        raise _broken(layout, f"{str(digest)[:100]!r} is no digest of SHA-256")
    return digest


def _blob(layout: Path, digest: str) -> Path:
    return layout / blob_path(digest)


def _read(layout: Path, path: Path) -> _Json:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise _broken(layout, f"{path.name} is too large for a manifest")
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as exc:
        raise _broken(layout, f"{path.name} cannot be read: {exc}") from exc
    if not isinstance(found, dict):
        raise _broken(layout, f"{path.name} is no manifest")
    return found


def _broken(layout: Path, detail: str) -> TorrentdistError:
    return TorrentdistError("invalid_bundle", path=str(layout), detail=detail)
