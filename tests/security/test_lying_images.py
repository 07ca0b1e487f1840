"""Images whose layouts lie, beside those that are right."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from cluster_fixtures import Cluster
from image_layouts import INDEX, MANIFEST, finish, put_image
from process_memory import measured_anew, memory_of, peak_of
from registry_clients import Registry, new_name, sha256, token_in
from uploaded_bundles import Put

from torrentdist.bundle.images.image_layout import MOST_BYTES, blob_path
from torrentdist.bundle.images.image_names import Image


@pytest.fixture
def registry(cluster: Cluster) -> Iterator[Registry]:
    yield Registry(cluster.url("supervisor-1"), ("me", token_in(cluster.dir)))
    for bundle in cluster.run("image", "ls").ok():
        cluster.run("bundle", "rm", bundle["id"]).ok()


def test_an_image_that_lies_hides_no_other(registry: Registry, put: Put, tmp_path: Path) -> None:
    """A user who may upload one image could end the pulls of all others. It takes long for its five
    images."""
    layout, name = tmp_path / "layout", new_name()
    image = put_image(layout, [{"data": os.urandom(3_000_000)}])
    about = put_image(layout, [{"signature": b"s"}], subject=image)
    assert 201 == registry.push_layout(name, layout, image, "1").status_code
    assert 201 == registry.push_layout(name, layout, about, about["digest"]).status_code
    layer = json.loads((layout / blob_path(image["digest"])).read_bytes())["layers"][0]
    for tag in ("0", "2"):  # those before it and after it in any order
        liar = finish(tmp_path / tag, [put_image(tmp_path / tag, [{"data": tag.encode()}])], tag)
        (liar / blob_path(image["digest"])).write_bytes(b"{")
        (liar / blob_path(layer["digest"])).write_bytes(os.urandom(layer["size"]))
        (liar / "index.json").write_text(json.dumps({"manifests": [{"digest": image["digest"]}, 3]}))
        put(Image(name, tag).bundle, liar)
        assert 400 == registry.ask("GET", f"{name}/manifests/{tag}").status_code

    exact = registry.ask("GET", f"{name}/manifests/{image['digest']}")
    referrers = registry.ask("GET", f"{name}/referrers/{image['digest']}")
    blobs = []
    for _ in range(3):
        with suppress(httpx.RemoteProtocolError):  # a wrong one is cut off, and found once
            blobs.append(registry.ask("GET", f"{name}/blobs/{layer['digest']}").content)

    assert (200, image["digest"]) == (exact.status_code, sha256(exact.content))
    assert 200 == referrers.status_code
    assert [about["digest"]] == [one["digest"] for one in referrers.json()["manifests"]]
    assert blobs
    assert {(layout / blob_path(layer["digest"])).read_bytes()} == set(blobs)
    mounted = put_image(tmp_path / "next", [{"data": b"new"}])
    manifest = json.loads((tmp_path / "next" / blob_path(mounted["digest"])).read_bytes())
    manifest["layers"].append(layer)
    registry.push_blob(name, (tmp_path / "next" / blob_path(manifest["layers"][0]["digest"])).read_bytes())
    registry.push_blob(name, (tmp_path / "next" / blob_path(manifest["config"]["digest"])).read_bytes())
    assert 201 == registry.push_manifest(name, "next", json.dumps(manifest).encode(), MANIFEST).status_code


def test_bombs_of_json_take_no_memory_and_hold_up_nobody(cluster: Cluster, registry: Registry) -> None:
    """Four megabytes of brackets would take hundreds in memory, or stop the door for seconds."""
    pid, name = cluster.dev.member("supervisor-1").pid, new_name()
    before = memory_of(pid)
    for small in (b"{}", b'{"annotations":{"a":"b"}}', b"[[[[[[[["):
        count = (MOST_BYTES - 1000) // (len(small) + 1)
        for head in (b'{"schemaVersion":2,"manifests":[', b'{"schemaVersion":2,"config":{"urls":['):
            measured_anew(pid)
            began = time.monotonic()
            answer = registry.push_manifest(name, "1", head + (small + b",") * count + small + b"]}", INDEX)
            assert 400 == answer.status_code
            assert time.monotonic() - began < 30

        assert peak_of(pid) - before < 60_000_000
