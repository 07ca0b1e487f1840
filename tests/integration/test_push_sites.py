"""Images that are pushed in clusters of other kinds: with a plug-in, with a supervisor that starts
anew. tests/integration/test_cluster_identities.py has one with TLS."""

from __future__ import annotations

import os
from pathlib import Path

from cluster_fixtures import NewCluster, until
from image_layouts import assert_same_blobs, finish, put_image
from registry_clients import Registry, needs_skopeo, new_name, sha256, skopeo, token_in

from torrentdist.bundle.images.image_names import Image


@needs_skopeo
def test_a_push_with_a_plug_in_for_shared_storage(new_cluster: NewCluster, tmp_path: Path) -> None:
    """If this fails, a cluster that keeps its bundles in a file system takes no images. It takes
    long for a cluster of its own."""
    options = {"url": f"file://{tmp_path}/shared"}
    cluster = new_cluster({"codedistributor": {"class": "fs", "options": options}}, masters=2, supervisors=2)
    registry, name = Registry(cluster.url("supervisor-1"), ("me", token_in(cluster.dir))), new_name()
    layout = tmp_path / "layout"
    finish(layout, [put_image(layout, [{"etc/one": os.urandom(2_000_000)}])], "1")
    other = cluster.url("supervisor-2").removeprefix("http://")

    pushed = skopeo(
        "copy",
        "--dest-tls-verify=false",
        "--dest-creds",
        registry.creds,
        f"oci:{layout}:1",
        f"docker://{registry.host}/{name}:1",
    )
    pulled = skopeo("copy", "--src-tls-verify=false", f"docker://{other}/{name}:1", f"oci:{tmp_path / 'copy'}:1")

    assert (0, 0) == (pushed.returncode, pulled.returncode), pushed.stderr + pulled.stderr
    assert 2 == cluster.run("bundle", "show", Image(name, "1").bundle).ok()["replicas"]
    assert_same_blobs(layout, tmp_path / "copy")


def test_a_push_goes_on_after_its_supervisor_was_killed(new_cluster: NewCluster, tmp_path: Path) -> None:
    """If this fails, each restart of a supervisor costs the builds on its host all that they have
    sent, or makes an image of half a blob. It takes long for a cluster of its own."""
    cluster = new_cluster(masters=1, supervisors=1)
    auth, name, data = ("me", token_in(cluster.dir)), new_name(), os.urandom(3_000_000)
    registry = Registry(cluster.url("supervisor-1"), auth)
    layout = tmp_path / "layout"
    image = put_image(layout, [{"etc/one": b"1"}])
    finish(layout, [image], "1")
    whole = registry.push_blob(name, data)
    where = registry.ask("POST", f"{name}/blobs/uploads/").headers["location"]
    assert 202 == registry.ask("PATCH", where, data[:1_500_000]).status_code

    cluster.kill("supervisor-1")
    cluster.start("supervisor-1")
    again = Registry(cluster.url("supervisor-1"), auth)
    until(lambda: again.ask("GET", "/v2/").status_code == 200, "the gateway answers", 30.0)
    so_far = again.ask("GET", where)
    came = int(so_far.headers["range"].partition("-")[2]) + 1
    ended = again.ask("PUT", f"{where}?digest={sha256(data)}", data[came:])
    kept = again.ask("GET", f"{name}/blobs/{whole}")
    pushed = again.push_layout(name, layout, image, "1")

    assert (204, 201) == (so_far.status_code, ended.status_code)
    assert 0 < came <= 1_500_000
    assert data == kept.content
    assert 201 == pushed.status_code, pushed.text
