"""Images that are pushed to the gateway, by skopeo and by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from cluster_fixtures import Cluster
from image_layouts import INDEX, MANIFEST, finish, put_image
from registry_clients import Registry, needs_skopeo, new_name, sha256, skopeo, token_in

from torrentdist.bundle.images.image_names import Image


@pytest.fixture
def registry(cluster: Cluster) -> Iterator[Registry]:
    yield Registry(cluster.url("supervisor-1"), ("me", token_in(cluster.dir)))
    for bundle in cluster.run("image", "ls").ok():
        cluster.run("bundle", "rm", bundle["id"]).ok()


@needs_skopeo
def test_skopeo_pushes_an_image_that_every_host_can_pull(cluster: Cluster, registry: Registry, tmp_path: Path) -> None:
    """If this fails, a build has no way into the cluster, or nodes run another image."""
    layout, name = tmp_path / "layout", new_name()
    manifest = put_image(layout, [{"etc/one": b"1" * 100_000}, {"etc/two": os.urandom(3_000_000)}])
    finish(layout, [manifest], "1")

    options = ("copy", "--dest-tls-verify=false", "--dest-creds", registry.creds)
    pushed = skopeo(*options, f"oci:{layout}:1", f"docker://{registry.host}/{name}:1")
    assert 0 == pushed.returncode, pushed.stderr
    listed = cluster.run("bundle", "show", Image(name, "1").bundle).ok()
    other = cluster.url("supervisor-2").removeprefix("http://")
    pulled = skopeo("copy", "--src-tls-verify=false", f"docker://{other}/{name}:1", f"oci:{tmp_path / 'copy'}:1")

    assert (0, 0) == (pushed.returncode, pulled.returncode), pushed.stderr + pulled.stderr
    assert listed["replicas"] >= listed["min_replicas"]
    blobs = {path.name: path.read_bytes() for path in (layout / "blobs" / "sha256").iterdir()}
    assert blobs == {path.name: path.read_bytes() for path in (tmp_path / "copy" / "blobs" / "sha256").iterdir()}
    again = skopeo(*options, f"oci:{layout}:1", f"docker://{registry.host}/{name}:1")
    assert 0 == again.returncode, again.stderr


def test_a_blob_comes_in_parts_and_goes_on_after_a_break(registry: Registry) -> None:
    """If this fails, a large layer begins anew after each break, or has the wrong bytes."""
    name, data = new_name(), os.urandom(2_500_000)
    where = registry.ask("POST", f"{name}/blobs/uploads/").headers["location"]

    first = registry.ask("PATCH", where, data[:1_000_000], content_range="0-999999")
    early = registry.ask("PATCH", where, data[2_000_000:], content_range="2000000-2499999")
    again = registry.ask("PATCH", where, data[:1_000_000], content_range="0-999999")
    so_far = registry.ask("GET", where)
    second = registry.ask("PATCH", where, data[1_000_000:2_000_000])
    ended = registry.ask("PUT", f"{where}?digest={sha256(data)}", data[2_000_000:], content_range="2000000-2499999")

    assert (202, "0-999999") == (first.status_code, first.headers["range"])
    assert (416, 416) == (early.status_code, again.status_code)
    assert (204, "0-999999") == (so_far.status_code, so_far.headers["range"])
    assert (202, "0-1999999") == (second.status_code, second.headers["range"])
    assert (201, sha256(data)) == (ended.status_code, ended.headers["docker-content-digest"])
    assert data == registry.ask("GET", ended.headers["location"]).content
    assert 404 == registry.ask("GET", where).status_code


def test_a_blob_is_what_its_digest_says(registry: Registry) -> None:
    """If this fails, a broken connection makes an image that nobody can run."""
    name, data, wrong = new_name(), os.urandom(1000), sha256(b"other")
    where = registry.ask("POST", f"{name}/blobs/uploads/").headers["location"]

    refused = registry.ask("PUT", f"{where}?digest={wrong}", data)
    at_once = registry.ask("POST", f"{name}/blobs/uploads/?digest={wrong}", data)
    whole = registry.ask("POST", f"{name}/blobs/uploads/?digest={sha256(data)}", data)

    for answer in (refused, at_once):
        assert (400, "DIGEST_INVALID") == (answer.status_code, answer.json()["errors"][0]["code"])
    assert 404 == registry.ask("HEAD", f"{name}/blobs/{wrong}").status_code
    assert 201 == whole.status_code
    mounted = registry.ask("POST", f"{name}-2/blobs/uploads/?mount={sha256(data)}&from={name}")
    assert 201 == mounted.status_code
    assert data == registry.ask("GET", mounted.headers["location"]).content
    assert 202 == registry.ask("POST", f"{name}-2/blobs/uploads/?mount={wrong}&from={name}").status_code


def test_a_blob_that_no_image_needs_is_deleted(registry: Registry) -> None:
    """If this fails, a client that gives up a push cannot take back its layers, or reports an error
    although it could."""
    name, data = new_name(), os.urandom(1000)
    registry.push_blob(name, data)
    place = f"{name}/blobs/{sha256(data)}"
    deleted, again = (registry.ask("DELETE", place).status_code for _ in range(2))

    assert (202, 404) == (deleted, again)
    assert 404 == registry.ask("HEAD", place).status_code


def test_a_tag_never_moves_and_a_deleted_one_is_free(registry: Registry, tmp_path: Path) -> None:
    """If this fails, two nodes run two images under one name; or a name is lost for ever."""
    layout, name = tmp_path / "layout", new_name()
    one, two = (put_image(layout, [{"file": number}]) for number in (b"1", b"2"))

    assert 201 == registry.push_layout(name, layout, one, "1").status_code
    same = registry.push_layout(name, layout, one, "1")
    other = registry.push_layout(name, layout, two, "1")
    found = registry.ask("GET", f"{name}/manifests/1").headers["docker-content-digest"]
    deleted = registry.ask("DELETE", f"{name}/manifests/1")
    gone = [registry.ask("GET", f"{name}/manifests/{what}").status_code for what in ("1", one["digest"])]
    freed = registry.push_layout(name, layout, two, "1")

    assert 201 == same.status_code
    assert (409, "DENIED") == (other.status_code, other.json()["errors"][0]["code"])
    assert "A tag never moves" in other.json()["errors"][0]["detail"]
    assert one["digest"] == found
    assert (202, [404, 404]) == (deleted.status_code, gone)
    assert 201 == freed.status_code, freed.text
    assert two["digest"] == registry.ask("GET", f"{name}/manifests/1").headers["docker-content-digest"]
    assert ["1"] == registry.ask("GET", f"{name}/tags/list").json()["tags"]
    assert 202 == registry.ask("DELETE", f"{name}/manifests/{two['digest']}").status_code
    assert 201 == registry.push_layout(name, layout, two, "1").status_code


def test_images_that_share_a_layer_are_pushed_at_once(registry: Registry, tmp_path: Path) -> None:
    """If this fails, a build that pushes two tags at once is told that it pushed no layer."""
    layout, name, shared = tmp_path / "layout", new_name(), os.urandom(2_000_000)
    images = [put_image(layout, [{"shared": shared}, {"own": number}]) for number in (b"1", b"2", b"3")]
    manifests = [(layout / "blobs" / image["digest"].replace(":", "/")).read_bytes() for image in images]
    for blob in (layout / "blobs" / "sha256").iterdir():
        registry.push_blob(name, blob.read_bytes())

    def push(number: int) -> httpx.Response:
        return registry.push_manifest(name, str(number), manifests[number], MANIFEST)

    with ThreadPoolExecutor(3) as threads:
        pushed = list(threads.map(push, range(3)))

    assert [201] * 3 == [answer.status_code for answer in pushed], [answer.text for answer in pushed]
    for number, manifest in enumerate(manifests):
        assert manifest == registry.ask("GET", f"{name}/manifests/{number}").content
        assert 200 == registry.ask("HEAD", f"{name}/blobs/{json.loads(manifest)['layers'][0]['digest']}").status_code


def test_an_index_and_what_refers_to_an_image_are_pushed(registry: Registry, tmp_path: Path) -> None:
    """If this fails, images for several platforms, or their signatures, cannot be pushed."""
    layout, name = tmp_path / "layout", new_name()
    images = [put_image(layout, [{"file": number}]) for number in (b"1", b"2")]
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": images}).encode()
    early = registry.push_manifest(name, "1", index, INDEX)
    children = [registry.push_layout(name, layout, image, image["digest"]) for image in images]
    pushed = registry.push_manifest(name, "1", index, INDEX)
    subject = {"mediaType": INDEX, "digest": sha256(index), "size": len(index)}
    about = put_image(layout, [{"signature": b"s"}], subject=subject, artifactType="application/vnd.example.signature")
    signed = registry.push_layout(name, layout, about, about["digest"])

    assert (400, "MANIFEST_BLOB_UNKNOWN") == (early.status_code, early.json()["errors"][0]["code"])
    assert [201, 201, 201, 201] == [answer.status_code for answer in (*children, pushed, signed)]
    assert sha256(index) == signed.headers["oci-subject"]
    assert index == registry.ask("GET", f"{name}/manifests/1").content
    for image in images:
        assert 200 == registry.ask("GET", f"{name}/manifests/{image['digest']}").status_code
    listed = registry.ask("GET", f"{name}/referrers/{sha256(index)}").json()["manifests"]
    assert [about["digest"]] == [one["digest"] for one in listed]
    assert ["1"] == registry.ask("GET", f"{name}/tags/list").json()["tags"]


def test_manifests_that_lie_are_not_published(registry: Registry, tmp_path: Path) -> None:
    """If this fails, a host holds an image that it cannot hand out."""
    layout, name = tmp_path / "layout", new_name()
    image = put_image(layout, [{"file": b"1"}])
    manifest = json.loads((layout / "blobs" / image["digest"].replace(":", "/")).read_bytes())
    size = manifest["layers"][0]["size"]
    for blob in (manifest["config"], *manifest["layers"]):
        registry.push_blob(name, (layout / "blobs" / blob["digest"].replace(":", "/")).read_bytes())
    wrong = json.dumps(manifest).replace(f'"size": {size}', f'"size": {size + 1}').encode()
    for data, kind, reference in (
        (wrong, MANIFEST, "1"),
        (json.dumps(manifest).encode(), INDEX, "1"),
        (json.dumps(manifest).encode(), MANIFEST, "sha256:" + "0" * 64),
        (b"{" * 1000, MANIFEST, "1"),
        (b"{}" + b" " * 5_000_000, MANIFEST, "1"),
        (json.dumps(manifest).encode(), MANIFEST, "referrer." + "0" * 16 + "." + "0" * 16),
    ):
        answer = registry.push_manifest(name, reference, data, kind)
        assert 400 <= answer.status_code < 500, data[:100]
        assert answer.json()["errors"]
    assert 404 == registry.ask("GET", f"{name}/manifests/1").status_code


def test_a_push_needs_the_right_token(cluster: Cluster, registry: Registry) -> None:
    """If this fails, whoever runs on a host puts images into the cluster."""
    name = new_name()
    reader = cluster.run("token", "create", f"reader-{name[-8:]}", "--role", "reader").ok()["token"]
    uploader = cluster.run("token", "create", f"up-{name[-8:]}", "--role", "uploader", "--bundles", "x-*").ok()["token"]
    nobody, wrong = Registry(registry.url), Registry(registry.url, ("me", "wrong"))
    reading, uploading = Registry(registry.url, ("me", reader)), Registry(registry.url, ("me", uploader))

    asked = nobody.ask("GET", "/v2/")

    way = f'Bearer realm="{registry.url}/v2/token",service="torrentdist"'
    assert (401, way) == (asked.status_code, asked.headers["www-authenticate"])
    assert [200, 401] == [one.ask("GET", "/v2/").status_code for one in (registry, wrong)]
    for sender, status in ((nobody, 401), (wrong, 401), (reading, 403), (uploading, 202)):
        answer = sender.ask("POST", f"{name}/blobs/uploads/")
        assert status == answer.status_code, answer.text
    where = registry.ask("POST", f"{name}/blobs/uploads/").headers["location"]
    assert 404 == uploading.ask("PATCH", where, b"1").status_code
    config = uploading.push_blob(name, b"{}")
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": {"digest": config, "size": 2}, "layers": []}
    refused = uploading.push_manifest(name, "1", json.dumps(manifest).encode(), MANIFEST)
    assert (403, "DENIED") == (refused.status_code, refused.json()["errors"][0]["code"])
    assert 403 == uploading.ask("DELETE", f"{name}/manifests/1").status_code
    assert 404 == registry.ask("GET", f"{name}/manifests/1").status_code
