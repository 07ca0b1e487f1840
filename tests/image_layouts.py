"""Makes small OCI image layouts for tests, without any tool."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def put_blob(layout: Path, data: bytes) -> dict[str, Any]:
    """Returns the descriptor of a blob, without its media type."""
    hexdigest = hashlib.sha256(data).hexdigest()
    folder = layout / "blobs" / "sha256"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hexdigest).write_bytes(data)
    return {"digest": f"sha256:{hexdigest}", "size": len(data)}


def layer_of(files: Mapping[str, bytes]) -> bytes:
    """Returns the tar of one layer."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def put_image(layout: Path, layers: Sequence[Mapping[str, bytes]], **more: Any) -> dict[str, Any]:
    """Returns the descriptor of an image's manifest. `more`: further fields of the manifest."""
    tars = [layer_of(files) for files in layers]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}" for tar in tars]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, **put_blob(layout, json.dumps(config).encode())},
        "layers": [{"mediaType": LAYER, **put_blob(layout, gzip.compress(tar, mtime=0))} for tar in tars],
        **more,
    }
    return {"mediaType": MANIFEST, **put_blob(layout, json.dumps(manifest).encode())}


def finish(layout: Path, manifests: list[dict[str, Any]], tag: str = "") -> Path:
    """Writes the layout's index. `tag`: of the first manifest."""
    if tag:
        manifests = [{**manifests[0], "annotations": {"org.opencontainers.image.ref.name": tag}}, *manifests[1:]]
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}))
    return layout


def assert_same_blobs(one: Path, other: Path) -> None:
    found = [
        {path.name: path.read_bytes() for path in (layout / "blobs" / "sha256").iterdir()} for layout in (one, other)
    ]

    assert found[0] == found[1]
