"""What the index.json of an OCI image layout says of its images.

Always: whatever the file holds, reading it ends with its descriptors or with `invalid_request`, and
takes little more memory than the file has bytes.
Pure: no I/O.
"""

from hashlib import sha256
from typing import Final

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json

MOST_BYTES: Final = 4 * 1024 * 1024
"""Largest manifest or index that is read. Registries take no larger one."""
MOST_PARTS: Final = 100_000
"""Most values in a manifest. MOST_BYTES of the smallest ones would take fifty times that memory."""
INDEX_FILE: Final = "index.json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_REF_NAME: Final = "org.opencontainers.image.ref.name"


class Descriptor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What names a manifest or a blob."""

    media_type: str = ""
    digest: str = ""
    size: int = 0
    annotations: dict[str, str] | None = None
    artifact_type: str | None = None
    urls: list[str] | None = None
    """Where else the blob is. A registry need not have it."""


class ManifestFile(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a manifest, or of an index, that a registry looks at."""

    schema_version: int = 0
    media_type: str = ""
    manifests: list[Descriptor] | None = None
    config: Descriptor | None = None
    layers: list[Descriptor] | None = None
    subject: Descriptor | None = None
    artifact_type: str | None = None
    annotations: dict[str, str] | None = None

    @property
    def kind(self) -> str:
        return self.media_type or (MANIFEST if self.manifests is None else INDEX)


def parse_manifest(data: bytes) -> ManifestFile:
    """Reads a manifest. Blocks for some time if it is large."""
    if data.count(b",") > MOST_PARTS:
        raise TorrentdistError("invalid_request", detail=f"a manifest has more than {MOST_PARTS} values")
    try:
        return decode_json(data, ManifestFile)
    except msgspec.MsgspecError as exc:
        raise TorrentdistError("invalid_request", detail=f"this is no manifest: {exc}") from exc


def digest_of(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def blob_path(digest: str) -> str:
    """Returns where a layout keeps a blob. `digest`: one that `is_digest` accepts."""
    return f"blobs/{digest.replace(':', '/')}"


def tagged(index: ManifestFile, tag: str) -> str | None:
    """Returns the digest of the manifest that a tag stands for; None: it stands for all of
    index.json, which has one image for each platform."""
    listed = index.manifests or []
    named = [one for one in listed if (one.annotations or {}).get(_REF_NAME) == tag]
    chosen = named or listed
    return chosen[0].digest if len(chosen) == 1 else None
