"""What an image consists of: the manifests and blobs that its manifest leads to.

Always: whatever a manifest says, following it ends after MOST_REFERENCES descriptors and
MOST_MANIFEST_BYTES. A digest that two descriptors give different sizes is an error.
Pure: no I/O; manifests are looked up by a function of the caller.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from torrentdist.bundle.images.image_layout import Descriptor, ManifestFile, digest_of, parse_manifest
from torrentdist.bundle.images.image_names import is_digest
from torrentdist.model.errors import TorrentdistError

MOST_REFERENCES: Final = 10_000
MOST_MANIFEST_BYTES: Final = 32 * 1024 * 1024
"""All manifests of one image together. They are in memory at the same time."""
_PLAIN_TAR: Final = ".tar"


class ImageContent(msgspec.Struct, frozen=True):
    manifests: dict[str, bytes] = msgspec.field(default_factory=dict)
    """The manifests that are here, by digest; the image's own is the first."""
    blobs: dict[str, int] = msgspec.field(default_factory=dict)
    """The sizes of configurations and layers, by digest."""
    plain_layers: tuple[str, ...] = ()
    """Digests of the layers that are tars without compression, in their order."""
    missing: tuple[str, ...] = ()
    """Digests of the manifests that are not here."""

    @property
    def size(self) -> int:
        return sum(map(len, self.manifests.values())) + sum(self.blobs.values())


def content_of(manifest: bytes, read: Callable[[str], bytes | None]) -> ImageContent:
    """Returns the content of an image. `read` returns a further manifest; None: it is not here."""
    found = ImageContent({digest_of(manifest): manifest})
    layers: list[str] = []
    missing: dict[str, None] = {}
    sizes: dict[str, int] = {}
    ahead, together = [manifest], len(manifest)
    while ahead:
        parsed = checked_manifest(ahead.pop())
        for child in parsed.manifests or []:
            _note(sizes, child)
            if child.digest in found.manifests or child.digest in missing:
                continue
            if (together := together + child.size) > MOST_MANIFEST_BYTES:
                raise _invalid(f"its manifests have more than {MOST_MANIFEST_BYTES} bytes together")
            if (data := read(child.digest)) is None:
                missing[child.digest] = None
                continue
            found.manifests[child.digest] = data
            ahead.append(data)
        for blob in _blobs(parsed):
            _note(sizes, blob)
            found.blobs[blob.digest] = blob.size
        layers += [layer.digest for layer in parsed.layers or [] if layer.media_type.endswith(_PLAIN_TAR)]
    wrong = [digest for digest, data in found.manifests.items() if sizes.get(digest, len(data)) != len(data)]
    if wrong:
        raise _invalid(f"a descriptor gives {wrong[0]} another size than it has")
    return ImageContent(found.manifests, found.blobs, tuple(dict.fromkeys(layers)), tuple(missing))


def checked_manifest(data: bytes, declared: str = "") -> ManifestFile:
    """Returns a manifest that may be pushed, or raises `invalid_request`. `declared`: the media
    type by which it came."""
    found = parse_manifest(data)
    if found.schema_version != 2:
        raise _invalid("schemaVersion is not 2")
    if declared and found.media_type and declared != found.media_type:
        raise _invalid(f"its mediaType is {found.media_type[:100]!r}, and it came as {declared[:100]!r}")
    if found.manifests is None and found.config is None:
        raise _invalid("it has neither a configuration nor manifests")
    for one in (*(found.manifests or ()), *_blobs(found), *([found.subject] if found.subject else ())):
        if not is_digest(one.digest):
            raise _invalid(f"{one.digest[:100]!r} is no digest of SHA-256")
        if one.size < 0:
            raise _invalid(f"{one.digest} has a negative size")
    return found


def _blobs(manifest: ManifestFile) -> Iterator[Descriptor]:
    """Yields the blobs that a registry has to have: not those that a manifest has elsewhere."""
    if manifest.config is not None:
        yield manifest.config
    yield from (layer for layer in manifest.layers or [] if not layer.urls)


def _note(sizes: dict[str, int], one: Descriptor) -> None:
    if sizes.setdefault(one.digest, one.size) != one.size:
        raise _invalid(f"two descriptors give {one.digest} different sizes")
    if len(sizes) > MOST_REFERENCES:
        raise _invalid(f"it leads to more than {MOST_REFERENCES} manifests and blobs")


def _invalid(detail: str) -> TorrentdistError:
    return TorrentdistError("invalid_request", detail=f"this is no manifest that can be kept: {detail}")
