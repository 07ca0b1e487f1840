"""What a registry decides about pushed blobs and manifests, without any file."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_size import examples

from torrentdist.bundle.images.blob_upload import BlobChunk, UploadState, chunk_of
from torrentdist.bundle.images.image_content import MOST_REFERENCES, content_of
from torrentdist.bundle.images.image_layout import INDEX, MANIFEST, digest_of
from torrentdist.bundle.images.image_names import GENERATIONS, Image, image_of
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError

SENT = st.lists(st.integers(0, 50), max_size=5)
STEPS = st.lists(st.tuples(st.integers(0, 120), st.one_of(st.none(), st.integers(0, 100)), SENT), max_size=8)


@settings(max_examples=examples(300))
@given(STEPS)
def test_a_blob_has_the_bytes_that_came_in_their_order(steps: list[tuple[int, int | None, list[int]]]) -> None:
    """A blob would have a hole, or bytes twice, and fail only when it is whole."""
    state, taken = UploadState(), 0
    for start, size, parts in steps:
        try:
            sending = state.begun(BlobChunk(start, size))
        except TorrentdistError:
            assert start != taken
            continue
        assert start == taken
        with pytest.raises(TorrentdistError):  # nobody else sends meanwhile
            sending.begun(BlobChunk(taken))
        for part in parts:
            try:
                sending = sending.received(part)
            except TorrentdistError:
                assert size is not None
                break
            taken += part
        assert size is None or taken - start <= size
        state = sending.ended()
        assert (taken, False) == (state.offset, state.is_busy)
        assert f"0-{max(0, taken - 1)}" == state.range


@given(st.text(max_size=30), st.one_of(st.none(), st.text(max_size=20)))
def test_headers_of_a_chunk_are_understood_or_refused(content_range: str, length: str | None) -> None:
    """A client that sends nonsense would get an error of the server."""
    with suppress(TorrentdistError):
        chunk = chunk_of(content_range, length)
        assert chunk.start is not None
        assert chunk.size is not None


def test_a_range_of_a_chunk_is_read() -> None:
    assert BlobChunk(0, 10) == chunk_of("0-9", "10")
    assert BlobChunk(5, 3) == chunk_of("bytes 5-7/*", None)
    assert BlobChunk(None, 7) == chunk_of(None, "7")
    for content_range, length in (("0-9", "9"), ("9-0", None), ("a-b", None), (None, "-1"), ("0-9", "x")):
        with pytest.raises(TorrentdistError):
            chunk_of(content_range, length)


def manifest(blobs: Sequence[bytes], **more: object) -> bytes:
    named = [{"mediaType": "layer.tar", "digest": digest_of(blob), "size": len(blob)} for blob in blobs]
    body = {"schemaVersion": 2, "mediaType": MANIFEST, "config": named[0], "layers": named[1:], **more}
    return json.dumps(body).encode()


def index(children: Sequence[bytes]) -> bytes:
    named = [{"mediaType": MANIFEST, "digest": digest_of(child), "size": len(child)} for child in children]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": named}).encode()


@given(
    st.lists(st.lists(st.binary(max_size=3), min_size=1, max_size=4), min_size=1, max_size=4),
    st.sets(st.integers(0, 3)),
)
def test_an_image_is_all_that_its_manifests_lead_to(images: list[list[bytes]], absent: set[int]) -> None:
    """An image would be published without a layer, and no host could run it."""
    children = [manifest(blobs) for blobs in images]
    here = {digest_of(child): child for at, child in enumerate(children) if at not in absent}
    top = index([index(children[:2]), *children[2:]])
    here[digest_of(index(children[:2]))] = index(children[:2])

    found = content_of(top, here.get)

    assert {digest_of(child) for child in children} - here.keys() == set(found.missing)
    assert {digest_of(top), *here} == set(found.manifests) | (here.keys() - set(found.manifests))
    present = [blobs for child, blobs in zip(children, images, strict=True) if digest_of(child) in here]
    assert {digest_of(blob): len(blob) for blobs in present for blob in blobs} == found.blobs


def test_an_image_needs_room_for_its_manifests_and_its_blobs() -> None:
    """An image would be published onto a disk that has no room for it."""
    child = manifest([b"config", b"a layer"])
    top = index([child])

    assert len(top) + len(child) + len(b"config" + b"a layer") == content_of(top, {digest_of(child): child}.get).size


def test_an_index_of_many_manifests_is_read_in_time() -> None:
    """An index of the most manifests would keep a processor busy for ten seconds, for each
    request."""
    named = [{"digest": digest_of(str(n).encode()), "size": 1} for n in range(MOST_REFERENCES)]
    began = time.thread_time()

    found = content_of(json.dumps({"schemaVersion": 2, "manifests": named}).encode(), lambda digest: None)

    assert MOST_REFERENCES == len(found.missing)
    assert time.thread_time() - began < 1.5


def test_manifests_that_lie_are_refused() -> None:
    """A host would keep what it cannot hand out."""
    good = manifest([b"config", b"layer"])
    wrong_size = json.loads(index([good]))
    wrong_size["manifests"][0]["size"] += 1
    twice = json.loads(manifest([b"config", b"layer", b"layer"]))
    twice["layers"][1]["size"] = 99
    for data in (
        json.dumps(wrong_size).encode(),
        json.dumps(twice).encode(),
        good.replace(b"sha256:", b"sha512:"),
        good.replace(b'"schemaVersion": 2', b'"schemaVersion": 1'),
        good.replace(b'"size": 5', b'"size": -5'),
        b'{"schemaVersion": 2}',
        b"[]",
        b"{" * 100_000,
        b'{"schemaVersion": 2, "manifests": ' + b"[" * 100_000,
        b"\xff",
    ):
        with pytest.raises(TorrentdistError) as refused:
            content_of(data, {digest_of(good): good}.get)
        assert "invalid_request" == refused.value.code


PARTS = st.from_regex(r"[a-z0-9]{1,50}(--?[a-z0-9]{1,3}){0,2}", fullmatch=True)
TAGS = st.one_of(st.from_regex(r"[a-z0-9_][A-Za-z0-9._-]{0,100}", fullmatch=True), st.just("_g1"))
IMAGES = st.builds(Image, st.lists(PARTS, min_size=1, max_size=3).map("/".join), TAGS)
NUMBERS = st.integers(0, GENERATIONS - 1)


@given(IMAGES, NUMBERS, IMAGES, NUMBERS)
def test_no_two_generations_have_one_bundle(one: Image, first: int, other: Image, second: int) -> None:
    """A tag that was deleted and pushed again would be another image's bundle."""
    bundle = one.in_generation(first)

    assert ((one, first) == (other, second)) == (bundle == other.in_generation(second))
    assert ids.bundle_id(bundle) == bundle
    assert image_of(bundle) in (one, None)
    assert one.generations[first] == bundle


def test_a_tag_that_looks_like_a_generation_is_not_taken_for_one() -> None:
    assert "image--app--1--_g2" == Image("app", "1").in_generation(2)
    assert Image("app", "1") == image_of(Image("app", "1").in_generation(2))
    assert Image("app/1", "_g2").bundle != Image("app", "1").in_generation(2)
