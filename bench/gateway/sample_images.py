"""Makes OCI image layouts with random content, without any tool.

Always: equal arguments give equal bytes. Layers are packed by gzip, as builds push them; random
bytes stay as long as they are.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
_TYPE = "application/vnd.oci.image"
Files = Sequence[tuple[str, bytes]]


def random_files(folder: str, mib: int, *, seed: int) -> list[tuple[str, bytes]]:
    """Returns files of a package, from 4 to 512 KiB each."""
    dice, left = random.Random(seed), mib * MIB
    found: list[tuple[str, bytes]] = []
    while left > 0:
        size = min(left, dice.randint(4, 512) * 1024 + dice.randint(0, 999))
        found.append((f"{folder}/{len(found):05}.so", dice.randbytes(size)))
        left -= size
    return found


def write_image(layout: Path, layers: Sequence[Files], tag: str) -> Path:
    """Writes an image whose layers hold these files."""
    (layout / "blobs" / "sha256").mkdir(parents=True)
    described, diff_ids = [], []
    for files in layers:
        tar = _tar(files)
        diff_ids.append(f"sha256:{hashlib.sha256(tar).hexdigest()}")
        packed = gzip.compress(tar, compresslevel=1, mtime=0)
        described.append({"mediaType": f"{_TYPE}.layer.v1.tar+gzip", **_put(layout, packed)})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": {"mediaType": f"{_TYPE}.config.v1+json", **_put(layout, _json(config))},
        "layers": described,
    }
    named = {
        "mediaType": manifest["mediaType"],
        **_put(layout, _json(manifest)),
        "annotations": {"org.opencontainers.image.ref.name": tag},
    }
    index = {"schemaVersion": 2, "mediaType": f"{_TYPE}.index.v1+json", "manifests": [named]}
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (layout / "index.json").write_bytes(_json(index))
    return layout


def two_builds(directory: Path, mib: int) -> tuple[Path, Path]:
    """Makes an image, and its next build: a package of a hundredth of its bytes, in the middle of
    its one large layer, is another release."""
    before, after = random_files("usr/a", mib // 2, seed=1), random_files("usr/z", mib // 2 - mib // 100, seed=2)
    base = random_files("base", max(1, mib // 50), seed=5)
    builds = []
    for number in (1, 2):
        package = random_files("usr/m", max(1, mib // 100), seed=2 + number)
        layers: list[Files] = [base, [*before, *package, *after]]
        builds.append(write_image(directory / f"build-{number}", layers, str(number)))
    return builds[0], builds[1]


def blobs(layout: Path) -> Iterator[Path]:
    yield from sorted((layout / "blobs" / "sha256").iterdir())


def _tar(files: Files) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def _put(layout: Path, data: bytes) -> dict[str, Any]:
    hexdigest = hashlib.sha256(data).hexdigest()
    (layout / "blobs" / "sha256" / hexdigest).write_bytes(data)
    return {"digest": f"sha256:{hexdigest}", "size": len(data)}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
