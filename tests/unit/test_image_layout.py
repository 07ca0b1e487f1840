"""What the index of an image layout says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torrentdist.bundle.images.image_content import MOST_REFERENCES
from torrentdist.bundle.images.image_layout import (
    INDEX,
    MANIFEST,
    MOST_BYTES,
    Descriptor,
    blob_path,
    digest_of,
    parse_manifest,
    tagged,
)
from torrentdist.model.errors import TorrentdistError

REF = "org.opencontainers.image.ref.name"


def index(*tags: str | None) -> bytes:
    """Returns an index whose manifests have these tags, and digests that are their numbers."""
    named = [{} if tag is None else {"annotations": {REF: tag}} for tag in tags]
    return json.dumps({"manifests": [{"digest": f"sha256:{n}", **more} for n, more in enumerate(named)]}).encode()


def test_an_index_without_images_has_no_tag() -> None:
    """A bundle that is no image would be a bug of the gateway."""
    assert tagged(parse_manifest(b"{}"), "v1") is None


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ((), None),
        ((None,), "sha256:0"),
        (("other",), "sha256:0"),
        (("v1", "other"), "sha256:0"),
        (("other", None, "v1"), "sha256:2"),
        ((None, None), None),
        (("v1", "v1"), None),
        (("v1", "v1", "other"), None),
    ],
)
def test_a_tag_stands_for_one_image_or_for_the_whole_index(tags: tuple[str | None, ...], expected: str | None) -> None:
    """A runtime would start another image, or that of another platform."""
    assert expected == tagged(parse_manifest(index(*tags)), "v1")


@pytest.mark.parametrize(
    ("said", "kind"),
    [({}, MANIFEST), ({"manifests": []}, INDEX), ({"mediaType": "x", "manifests": []}, "x")],
)
def test_a_manifest_without_a_type_has_the_one_of_its_fields(said: dict[str, Any], kind: str) -> None:
    """A client would read the list of platforms as one image."""
    assert kind == parse_manifest(json.dumps(said).encode()).kind


@pytest.mark.parametrize("data", [b"", b"[", b"[]", b'{"layers": 3}', b"\xff", b"[" * 100_000])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    """A bundle that is no image would be a bug of the gateway."""
    with pytest.raises(TorrentdistError) as refused:
        parse_manifest(data)

    assert "invalid_request" == refused.value.code


@pytest.mark.parametrize("small", [b"{}", b'{"digest":""}', b'{"urls":["ab","cd","ef","gh","ij"]}'])
def test_a_manifest_of_many_small_values_is_refused(small: bytes) -> None:
    """Four megabytes of them would become some hundred in memory, for each request."""
    bomb = b'{"manifests":[' + (small + b",") * (MOST_BYTES // (len(small) + 1) - 10) + small + b"]}"

    with pytest.raises(TorrentdistError, match="values"):
        parse_manifest(bomb)


def test_the_largest_manifest_that_may_be_pushed_is_read() -> None:
    """An image of many layers could not be pushed."""
    layer = {"mediaType": MANIFEST, "digest": "sha256:" + "0" * 64, "size": 1, "annotations": {"a": "b", "c": "d"}}
    data = json.dumps({"schemaVersion": 2, "layers": [layer] * MOST_REFERENCES}).encode()

    assert MOST_REFERENCES == len(parse_manifest(data).layers or [])


def test_names_of_blobs() -> None:
    """A runtime would not find what the manifest names."""
    digest = digest_of(b"")

    assert "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" == digest
    assert f"blobs/sha256/{digest.removeprefix('sha256:')}" == blob_path(digest)
    assert [Descriptor("t", "d", 3)] == parse_manifest(
        b'{"layers": [{"mediaType": "t", "digest": "d", "size": 3, "more": 1}]}'
    ).layers
