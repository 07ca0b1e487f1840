"""Unpacks the compressed layers of an image in its layout, so that versions of an image share what
did not change.

A layer is a file of a name that the next version has too, `layers/000.tar`, since parts of a file
are taken from an older file of the same path. Where the layout wants the layer is a symlink to it.
Always: the image's configuration stays as it is, and so do the hashes of unpacked layers in it,
with which each layer is compared. The new manifest names the digest of the original one.
Never: change a layer that it cannot unpack.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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
_CHUNK: Final = 1024 * 1024
_Json = dict[str, Any]


@dataclass
class UnpackedLayers:
    """What was done to a layout."""

    unpacked: int = 0
    kept: int = 0
    """Layers that are packed in a way that is not known here."""
    packed_bytes: int = 0
    unpacked_bytes: int = 0


def unpack_layers(layout: Path) -> UnpackedLayers:
    """Unpacks the layers of all images of a layout. Blocks."""
    done = UnpackedLayers()
    (layout / LAYERS).mkdir(exist_ok=True)
    index = _read(layout, layout / INDEX_FILE)
    old: set[str] = set()
    index["manifests"] = [_unpacked_manifest(layout, one, done, old) for one in index.get("manifests", [])]
    (layout / INDEX_FILE).write_bytes(json.dumps(index).encode())
    for digest in old - set(_named(layout, index)):
        _blob(layout, digest).unlink(missing_ok=True)
    return done


def _unpacked_manifest(layout: Path, named: _Json, done: UnpackedLayers, old: set[str]) -> _Json:
    """Returns the descriptor of the manifest, or index, that stands for the given one. `old` gets
    the digests of what it replaces."""
    manifest = _read(layout, _blob(layout, named["digest"]))
    if "manifests" in manifest:
        changed = {**manifest, "manifests": [_unpacked_manifest(layout, m, done, old) for m in manifest["manifests"]]}
    else:
        changed = {**manifest, "layers": _unpacked_layers(layout, manifest, done, old)}
    if changed == manifest:
        return named
    changed["annotations"] = {**(manifest.get("annotations") or {}), ORIGINAL: named["digest"]}
    old.add(named["digest"])
    data = json.dumps(changed).encode()
    digest = digest_of(data)
    _blob(layout, digest).write_bytes(data)
    return {**named, "digest": digest, "size": len(data)}


def _unpacked_layers(layout: Path, manifest: _Json, done: UnpackedLayers, old: set[str]) -> list[_Json]:
    layers: list[_Json] = manifest.get("layers") or []
    if not any(layer.get("mediaType") in _PACKED for layer in layers):
        done.kept += sum("+" in str(layer.get("mediaType")) for layer in layers)
        return layers
    config = _read(layout, _blob(layout, manifest["config"]["digest"]))
    hashes = (config.get("rootfs") or {}).get("diff_ids") or []
    if len(hashes) != len(layers):
        raise _broken(layout, "its configuration names other layers than its manifest")
    return [_unpacked(layout, layer, wanted, done, old) for layer, wanted in zip(layers, hashes, strict=True)]


def _unpacked(layout: Path, layer: _Json, wanted: str, done: UnpackedLayers, old: set[str]) -> _Json:
    kind = _PACKED.get(str(layer.get("mediaType")))
    if kind is None:
        done.kept += "+" in str(layer.get("mediaType"))
        return layer
    packed, made = _blob(layout, layer["digest"]), _blob(layout, wanted)
    file = layout / LAYERS / f"{len(os.listdir(layout / LAYERS)):03}.tar"
    size, found = 0, hashlib.sha256()
    with open(file, "wb") as stream:
        for data in _plain_parts(packed):
            found.update(data)
            size += stream.write(data)
    if f"sha256:{found.hexdigest()}" != wanted:
        file.unlink()
        raise _broken(layout, f"the layer {layer['digest']} does not unpack to {wanted}")
    if os.path.lexists(made):
        file.unlink()  # two layers have the same files
    else:
        made.symlink_to(os.path.relpath(file, made.parent))
    done.unpacked += 1
    done.packed_bytes += packed.stat().st_size
    done.unpacked_bytes += size
    old.add(layer["digest"])
    return {**layer, "mediaType": kind, "digest": wanted, "size": size}


def _plain_parts(path: Path) -> Iterator[bytes]:
    """Yields what a file of gzip holds, which may have several members."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        with open(path, "rb") as stream:
            while data := stream.read(_CHUNK):
                while data:
                    yield unpacker.decompress(data, _CHUNK)
                    data = unpacker.unconsumed_tail
                    if unpacker.eof:
                        data, unpacker = unpacker.unused_data, zlib.decompressobj(wbits=31)
    except zlib.error as exc:
        raise TorrentdistError("corrupt", path=str(path), detail=str(exc)) from exc


def _named(layout: Path, manifest: _Json) -> Iterator[str]:
    """Yields the digests of everything that an index or a manifest leads to."""
    for one in manifest.get("manifests") or []:
        yield one["digest"]
        yield from _named(layout, _read(layout, _blob(layout, one["digest"])))
    for one in (manifest.get("config"), *(manifest.get("layers") or [])):
        if one:
            yield one["digest"]


def _blob(layout: Path, digest: object) -> Path:
    if not isinstance(digest, str) or not is_digest(digest):
        raise _broken(layout, f"{str(digest)[:100]!r} is no digest of SHA-256")
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
