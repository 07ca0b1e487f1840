"""The gateway as a container registry, read with skopeo and by hand."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from pathlib import Path

import httpx
import pytest
from cluster_fixtures import Cluster, running_cluster, until
from image_layouts import INDEX, MANIFEST, finish, put_image
from patience import patient
from registry_clients import Registry, needs_skopeo, new_name, skopeo, token_in
from uploaded_bundles import Put

from torrentdist.bundle.images.image_names import Image

LIMIT = 1024 * 1024
"""Bytes per second that the only master sends, so that an arrival takes long enough to observe."""


@pytest.fixture
def registry(cluster: Cluster) -> str:
    return f"{cluster.url('supervisor-1')}/v2"


def get(url: str, **headers: str) -> httpx.Response:
    return httpx.get(url, headers=headers, trust_env=False, timeout=60.0)


@needs_skopeo
def test_skopeo_copies_an_image_with_its_digest(registry: str, put: Put, tmp_path: Path) -> None:
    """If this fails, a node runs another image than the one that was uploaded, or none."""
    layout, name = tmp_path / "layout", new_name()
    manifest = put_image(layout, [{"etc/one": b"1" * 100_000}, {"etc/two": os.urandom(300_000)}])
    put(Image(name, "1").bundle, finish(layout, [manifest], "1"))
    source = f"docker://{registry.removeprefix('http://').removesuffix('/v2')}/{name}"

    by_tag = skopeo("copy", "--src-tls-verify=false", f"{source}:1", f"oci:{tmp_path / 'copy'}:1")
    by_digest = skopeo("copy", "--src-tls-verify=false", f"{source}@{manifest['digest']}", f"oci:{tmp_path / 'same'}")
    listed = skopeo("list-tags", "--tls-verify=false", source)

    assert (0, 0) == (by_tag.returncode, by_digest.returncode), by_tag.stderr + by_digest.stderr
    for copy in ("copy", "same"):
        found = json.loads((tmp_path / copy / "index.json").read_text())["manifests"][0]["digest"]
        assert manifest["digest"] == found
        blobs = {path.name: path.read_bytes() for path in (layout / "blobs" / "sha256").iterdir()}
        assert blobs == {path.name: path.read_bytes() for path in (tmp_path / copy / "blobs" / "sha256").iterdir()}
    assert ["1"] == json.loads(listed.stdout)["Tags"]


def test_a_registry_answers_as_the_specification_says(
    cluster: Cluster, registry: str, put: Put, tmp_path: Path
) -> None:
    """If this fails, runtimes don't take the gateway for a registry."""
    layout, name = tmp_path / "layout", new_name()
    manifest = put_image(layout, [{"one": b"1"}])
    put(Image(name, "1").bundle, finish(layout, [manifest], "1"))
    data = (layout / "blobs" / manifest["digest"].replace(":", "/")).read_bytes()
    layer = json.loads(data)["layers"][0]["digest"]

    known = Registry(registry.removesuffix("/v2"), ("me", token_in(cluster.dir)))
    base, tagged = known.ask("GET", "/v2/"), get(f"{registry}/{name}/manifests/1")
    head = httpx.head(f"{registry}/{name}/manifests/1", trust_env=False, timeout=60.0)
    exact = get(f"{registry}/{name}/manifests/{manifest['digest']}")
    blob, part = get(f"{registry}/{name}/blobs/{layer}"), get(f"{registry}/{name}/blobs/{layer}", Range="bytes=2-5")
    other = get(f"{registry}/other/app/blobs/{layer}")

    assert (200, "registry/2.0") == (base.status_code, base.headers["docker-distribution-api-version"])
    assert data == tagged.content == exact.content
    for answer in (tagged, head, exact):
        assert (200, MANIFEST) == (answer.status_code, answer.headers["content-type"])
        assert manifest["digest"] == answer.headers["docker-content-digest"]
        assert len(data) == int(answer.headers["content-length"])
    assert layer == f"sha256:{hashlib.sha256(blob.content).hexdigest()}" == blob.headers["docker-content-digest"]
    assert (206, blob.content[2:6]) == (part.status_code, part.content)
    assert blob.content == other.content


def test_an_index_has_an_image_for_each_platform(registry: str, put: Put, tmp_path: Path) -> None:
    """If this fails, an image for several platforms cannot be pulled."""
    layout, name = tmp_path / "layout", new_name()
    images = [put_image(layout, [{"one": number}]) for number in (b"1", b"2")]
    put(Image(name, "1").bundle, finish(layout, images))
    whole = (layout / "index.json").read_bytes()

    tagged = get(f"{registry}/{name}/manifests/1")
    exact = get(f"{registry}/{name}/manifests/{tagged.headers['docker-content-digest']}")

    assert whole == tagged.content == exact.content
    assert INDEX == tagged.headers["content-type"] == exact.headers["content-type"]
    for image in images:
        assert 200 == get(f"{registry}/{name}/manifests/{image['digest']}").status_code


def test_referrers_are_the_manifests_about_another(registry: str, put: Put, tmp_path: Path) -> None:
    """If this fails, nobody finds the signatures of an image."""
    layout, name = tmp_path / "layout", new_name()
    image = put_image(layout, [{"one": b"1"}])
    about = put_image(layout, [{"signature": b"s"}], subject=image, artifactType="application/vnd.example.signature")
    put(Image(name, "1").bundle, finish(layout, [image, about], "1"))
    assert 200 == get(f"{registry}/{name}/manifests/1").status_code

    found = get(f"{registry}/{name}/referrers/{image['digest']}").json()
    none = get(f"{registry}/{name}/referrers/{image['digest']}?artifactType=other").json()

    assert [about["digest"]] == [one["digest"] for one in found["manifests"]]
    assert "application/vnd.example.signature" == found["manifests"][0]["artifactType"]
    assert [] == none["manifests"]


def test_what_is_missing_is_told_at_once(registry: str, put: Put, tmp_path: Path) -> None:
    """If this fails, a runtime waits for us before it asks the registry that has the image."""
    layout, name = tmp_path / "layout", new_name()
    put(Image(name, "1").bundle, finish(layout, [put_image(layout, [{"one": b"1"}])], "1"))
    get(f"{registry}/{name}/manifests/1")
    none = "sha256:" + "0" * 64
    for path, status, code in (
        (f"no-{name}/manifests/1", 404, "MANIFEST_UNKNOWN"),
        (f"{name}/manifests/2", 404, "MANIFEST_UNKNOWN"),
        (f"{name}/manifests/{none}", 404, "MANIFEST_UNKNOWN"),
        (f"{name}/blobs/{none}", 404, "BLOB_UNKNOWN"),
        (f"{name}/blobs/sha256:x", 400, "DIGEST_INVALID"),
        (f"{name}/manifests/-x", 400, "MANIFEST_INVALID"),
        ("Upper/manifests/1", 400, "NAME_INVALID"),
        ("a..b/manifests/1", 400, "NAME_INVALID"),
        (f"no-{name}/tags/list", 404, "NAME_UNKNOWN"),
        (f"{name}/manifests/1?ns=registry.example", 404, "MANIFEST_UNKNOWN"),
    ):
        began = time.monotonic()
        answer = get(f"{registry}/{path}")
        assert (status, code) == (answer.status_code, answer.json()["errors"][0]["code"]), path
        assert time.monotonic() - began < patient(1.0)


def test_a_layout_that_lies_is_no_image(registry: str, put: Put, tmp_path: Path) -> None:
    """A manifest that is not what its digest says would run what nobody has pinned."""
    layout, name = tmp_path / "layout", new_name()
    manifest = put_image(layout, [{"one": b"1"}])
    finish(layout, [manifest], "1")
    (layout / "blobs" / manifest["digest"].replace(":", "/")).write_bytes(b'{"schemaVersion": 2}')
    wrong, large = "sha256:" + "1" * 64, "sha256:" + "2" * 64
    for digest, data in ((wrong, b"something else"), (large, os.urandom(5_000_000))):
        (layout / "blobs" / digest.replace(":", "/")).write_bytes(data)
    put(Image(name, "1").bundle, layout)
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "file").write_text("no image")
    put(Image(name, "2").bundle, tmp_path / "bare")

    for path in ("1", "2", manifest["digest"]):
        answer = get(f"{registry}/{name}/manifests/{path}")
        assert 400 <= answer.status_code < 500
        assert answer.json()["errors"]
    for part in ({}, {"Range": "bytes=0-3"}):
        assert 400 <= get(f"{registry}/{name}/blobs/{wrong}", **part).status_code
    with pytest.raises(httpx.HTTPError):
        get(f"{registry}/{name}/blobs/{large}")


@needs_skopeo
def test_an_imported_image_moves_only_what_changed(cluster: Cluster, registry: str, tmp_path: Path) -> None:
    """If this fails, each build of an image moves all of it. It takes long: two images are made and
    imported."""
    data, name = bytearray(os.urandom(20_000_000)), new_name()
    moved = {}
    for tag in ("1", "2"):
        layout = tmp_path / f"layout-{tag}"
        image = put_image(layout, [{"opt/large": bytes(data)}])
        finish(layout, [image], tag)
        moved[tag] = cluster.run("image", "import", layout, f"{name}:{tag}").ok()["new_bytes"]
        data[10_000_000:10_100_000] = os.urandom(100_000)
        got = get(f"{registry}/{name}/manifests/{tag}").json()
        assert json.loads((layout / "blobs" / image["digest"].replace(":", "/")).read_text())["config"] == got["config"]
    listed = {one["id"] for one in cluster.run("image", "ls").ok()}

    assert moved["1"] > 20_000_000
    assert moved["2"] < 20_000_000 * 0.03
    assert {Image(name, "1").bundle, Image(name, "2").bundle} <= listed
    for tag in ("1", "2"):
        cluster.run("bundle", "rm", Image(name, tag).bundle).ok()


@needs_skopeo
def test_what_is_no_image_is_told(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, a user does not know what to change."""
    nameless = cluster.run("image", "import", tmp_path, "app")
    missing = cluster.run("image", "import", f"oci:{tmp_path / 'none'}", "app:1")

    assert 2 == nameless.code
    assert "NAME:TAG" in nameless.stderr
    assert 5 == missing.code
    assert "no such file or directory" in missing.stderr


def test_a_blob_streams_while_its_image_arrives(tmp_path: Path) -> None:
    """If this fails, a node waits for all layers before it unpacks the first."""
    with running_cluster({"swarm": {"upload_limit": LIMIT}}, work=tmp_path / "slow", masters=1, supervisors=1) as slow:
        layout = tmp_path / "layout"
        image = put_image(layout, [{"large": os.urandom(8 * LIMIT)}, {"small": b"1"}])
        digest = slow.upload(finish(layout, [image], "1"), Image("app", "1").bundle, replicas=1)["digest"]
        registry = f"{slow.url('supervisor-1')}/v2"
        large, small = (one["digest"] for one in get(f"{registry}/app/manifests/1").json()["layers"])
        found: list[bytes] = []
        whole = threading.Thread(target=lambda: found.append(get(f"{registry}/app/blobs/{large}").content))
        whole.start()

        first = get(f"{registry}/app/blobs/{small}").content

        assert (layout / "blobs" / small.replace(":", "/")).read_bytes() == first
        assert not slow.published("supervisor-1", digest)
        whole.join(patient(120.0))
        until(lambda: slow.published("supervisor-1", digest), "published")
        assert (layout / "blobs" / large.replace(":", "/")).read_bytes() == found[0]
