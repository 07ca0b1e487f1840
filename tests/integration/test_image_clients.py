"""Real clients of registries push and pull at a gateway: podman, docker, buildah, umoci,
containerd."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, until
from image_layouts import finish, put_image
from patience import patient
from registry_clients import Registry, new_name, skopeo, token_in, tool

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="containers take root")


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed")


@pytest.fixture
def registry(cluster: Cluster) -> Iterator[Registry]:
    yield Registry(cluster.url("supervisor-1"), ("me", token_in(cluster.dir)))
    for bundle in cluster.run("image", "ls").ok():
        cluster.run("bundle", "rm", bundle["id"]).ok()


@pytest.fixture
def storage() -> Iterator[tuple[str, ...]]:
    """Options for containers and images of podman's own, whose paths may not be long."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
        yield ("--root", f"{root}/root", "--runroot", f"{root}/run", "--storage-driver", "vfs")


@pytest.fixture
def image(registry: Registry, tmp_path: Path) -> tuple[str, str]:
    """The name and the digest of an image that was pushed under the tag 1."""
    name, layout = new_name(), tmp_path / "source"
    made = put_image(layout, [{"etc/one": b"1" * 100_000}, {"etc/two": os.urandom(1_000_000)}])
    finish(layout, [made], "1")
    assert 201 == registry.push_layout(name, layout, made, "1").status_code
    return name, made["digest"]


@needs("podman", "skopeo")
@needs_root
def test_podman_pulls_and_pushes(registry: Registry, image: tuple[str, str], storage: tuple[str, ...]) -> None:
    """If this fails, nodes with podman or CRI-O run nothing that the cluster has."""
    name, digest = image
    podman = ("podman", *storage)
    own = f"{registry.host}/{name}"

    pulled = tool(*podman, "pull", "--tls-verify=false", f"{own}:1")
    there = tool(*podman, "image", "inspect", f"{own}:1")
    tagged = tool(*podman, "tag", f"{own}:1", f"{own}:2")
    pushed = tool(*podman, "push", "--tls-verify=false", "--creds", registry.creds, f"{own}:2")

    assert (0, 0, 0) == (pulled.returncode, tagged.returncode, pushed.returncode), pulled.stderr + pushed.stderr
    assert any(found.endswith(digest) for found in json.loads(there.stdout)[0]["RepoDigests"])
    assert 200 == registry.ask("GET", f"{name}/manifests/2").status_code


@needs("podman", "runc", "dash")
@needs_root
def test_podman_runs_what_it_pulled_through_a_mirror(
    registry: Registry, storage: tuple[str, ...], tmp_path: Path
) -> None:
    """If this fails, an image is pulled and does not run; or the page's registries.conf, which
    CRI-O reads too, names no mirror."""
    name, layout = new_name(), tmp_path / "source"
    made = put_image(layout, [shell_files()])
    finish(layout, [made], "1")
    assert 201 == registry.push_layout(f"registry.example/{name}", layout, made, "1").status_code
    mirrors = tmp_path / "registries.conf"
    mirrors.write_text(
        f'[[registry]]\nlocation = "registry.example"\n'
        f'[[registry.mirror]]\nlocation = "{registry.host}/registry.example"\ninsecure = true\n'
    )
    podman = ("podman", *storage, "--runtime", "runc", "--cgroup-manager", "cgroupfs")
    alone = ("--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=100:100")
    image = f"registry.example/{name}:1"

    pulled = tool(*podman, "pull", image, CONTAINERS_REGISTRIES_CONF=str(mirrors))
    ran = tool(*podman, "run", "--rm", *alone, image, "/bin/sh", "-c", "echo this is $$")

    assert 0 == pulled.returncode, pulled.stderr
    assert "this is 1\n" == ran.stdout, ran.stderr


def shell_files() -> dict[str, bytes]:
    """Returns a shell with its libraries, for an image that runs."""
    libraries = re.findall(r"(/\S+) \(0x", tool("ldd", "/bin/dash").stdout)
    found = {library.lstrip("/"): Path(library).read_bytes() for library in libraries}
    return {"bin/sh": Path("/bin/dash").read_bytes(), **found}


@needs("dockerd", "docker")
@needs_root
def test_docker_pulls_and_pushes(registry: Registry, image: tuple[str, str]) -> None:
    """If this fails, builds on hosts with docker don't reach the cluster. It takes long: dockerd
    starts."""
    own = f"{registry.host}/{image[0]}"
    with docker_daemon() as docker:
        token = registry.creds.partition(":")[2]
        login = tool(*docker, "login", "--username", "me", "--password", token, registry.host)
        pulled = tool(*docker, "pull", f"{own}:1")
        tagged = tool(*docker, "tag", f"{own}:1", f"{own}:2")
        pushed = tool(*docker, "push", f"{own}:2")

    done = (login, pulled, tagged, pushed)
    assert [0] * 4 == [one.returncode for one in done], "".join(one.stderr for one in done)
    assert image[1] in pulled.stdout
    assert 200 == registry.ask("GET", f"{image[0]}/manifests/2").status_code


@needs("dockerd", "docker")
@needs_root
def test_docker_pulls_through_a_mirror_without_a_login(registry: Registry, tmp_path: Path) -> None:
    """If this fails, the gateway of a cluster with tokens is no mirror for docker. It takes long:
    dockerd starts."""
    name, layout = new_name().partition("/")[2], tmp_path / "source"
    made = put_image(layout, [{"etc/one": b"1"}])
    assert 201 == registry.push_layout(f"library/{name}", layout, made, "1").status_code
    with docker_daemon("--registry-mirror", registry.url) as docker:
        pulled = tool(*docker, "pull", f"{name}:1")
        direct = tool(*docker, "pull", f"{registry.host}/library/{name}:1")
        tagged = tool(*docker, "tag", f"{name}:1", f"{registry.host}/{name}:2")
        pushed = tool(*docker, "push", f"{registry.host}/{name}:2")
        wrong = tool(*docker, "login", "--username", "me", "--password", "wrong", registry.host)

    assert (0, 0) == (pulled.returncode, direct.returncode), pulled.stderr + direct.stderr
    assert made["digest"] in pulled.stdout
    assert 0 == tagged.returncode
    assert pushed.returncode != 0  # a push needs a token
    assert wrong.returncode != 0


@contextmanager
def docker_daemon(*options: str) -> Iterator[tuple[str, ...]]:
    """Runs a dockerd of its own. Gives the beginning of docker's commands."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        command = ["dockerd", "--data-root", f"{work}/data", "--exec-root", f"{work}/exec", "--pidfile", f"{work}/pid"]
        command += ["--host", f"unix://{work}/d.sock", "--storage-driver", "vfs"]
        command += ["--iptables=false", "--ip6tables=false", "--bridge=none", *options]
        clean = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        with open(f"{work}/log", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=clean)
        docker = ("docker", "--config", f"{work}/config", "--host", f"unix://{work}/d.sock")
        try:
            until(lambda: tool(*docker, "version").returncode == 0, "dockerd answers", 60.0)
            yield docker
        finally:
            process.terminate()
            process.wait(60)


@needs("buildah")
@needs_root
def test_buildah_pushes_what_it_has_built(registry: Registry, storage: tuple[str, ...], tmp_path: Path) -> None:
    """If this fails, a build has no way into the cluster."""
    name = new_name()
    buildah = ("buildah", *storage)
    (tmp_path / "file").write_text("built")

    made = tool(*buildah, "from", "scratch")
    container = made.stdout.strip()
    steps = [
        tool(*buildah, "copy", container, tmp_path / "file", "/file"),
        tool(*buildah, "commit", "--quiet", container, "built:1"),
        tool(
            *buildah,
            "push",
            "--tls-verify=false",
            "--creds",
            registry.creds,
            "built:1",
            f"docker://{registry.host}/{name}:1",
        ),
        tool(*buildah, "pull", "--quiet", "--tls-verify=false", f"{registry.host}/{name}:1"),
    ]

    assert [0, 0, 0, 0] == [step.returncode for step in steps], "".join(step.stderr for step in steps)


@needs("umoci", "skopeo")
@needs_root
def test_umoci_unpacks_what_was_pulled(registry: Registry, image: tuple[str, str], tmp_path: Path) -> None:
    """If this fails, the layers of a pulled image have other files than were pushed."""
    copied = skopeo(
        "copy", "--src-tls-verify=false", f"docker://{registry.host}/{image[0]}:1", f"oci:{tmp_path}/pulled:1"
    )
    unpacked = tool("umoci", "unpack", "--image", f"{tmp_path}/pulled:1", tmp_path / "bundle")

    assert (0, 0) == (copied.returncode, unpacked.returncode), copied.stderr + unpacked.stderr
    assert b"1" * 100_000 == (tmp_path / "bundle" / "rootfs" / "etc" / "one").read_bytes()


@needs("containerd", "ctr")
@needs_root
def test_containerd_asks_the_gateway_first(registry: Registry, image: tuple[str, str], tmp_path: Path) -> None:
    """If this fails, a node fetches images from a registry far away, or waits for us in vain."""
    name = image[0]
    mirror = tmp_path / "certs.d" / "registry.example"
    mirror.mkdir(parents=True)
    hosts = f'server = "http://127.0.0.1:9"\n[host."{registry.url}"]\ncapabilities = ["pull", "resolve"]\n'
    (mirror / "hosts.toml").write_text(hosts)
    layout = tmp_path / "mirrored"
    finish(layout, [made := put_image(layout, [{"file": b"mirrored"}])], "1")
    assert 201 == registry.push_layout(f"registry.example/{name}", layout, made, "1").status_code
    with containerd(tmp_path) as ctr:
        pull = (*ctr, "images", "pull", "--snapshotter", "native", "--hosts-dir", tmp_path / "certs.d")

        pulled = tool(*pull, f"registry.example/{name}:1")
        waits = []
        for number in range(5):
            began = time.monotonic()
            unknown = registry.ask("GET", f"none-{number}-{name}/manifests/1?ns=registry.example")
            waits.append(time.monotonic() - began)
        fallen = tool(*pull, f"registry.example/none-{name}:1")

    assert 0 == pulled.returncode, pulled.stdout + pulled.stderr
    assert 404 == unknown.status_code
    assert min(waits) < patient(0.2)
    assert fallen.returncode != 0
    assert "127.0.0.1:9" in fallen.stderr  # it went on to the registry itself


@contextmanager
def containerd(work: Path) -> Iterator[tuple[str | Path, ...]]:
    """Runs a containerd of its own. Gives the beginning of ctr's commands."""
    config, socket = work / "containerd.toml", work / "c.sock"
    config.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
    command: list[str | Path] = ["containerd", "--config", config, "--address", socket]
    command += ["--root", work / "c-root", "--state", work / "c-state"]
    with open(work / "containerd.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until(lambda: tool("ctr", "--address", socket, "version").returncode == 0, "containerd answers", 30.0)
        yield ("ctr", "--address", socket)
    finally:
        process.terminate()
        process.wait(30)
