"""Measures the pull of an image from a host that has it, against docker-registry on the same host.

The client is skopeo, which hashes every blob and writes it to a directory: a client that does more,
such as podman, hides the difference. Both sides take turns.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.gateway.other_servers import docker_registry
from bench.gateway.sample_images import random_files, write_image
from bench.results import Row, paired
from bench.stage import cluster_of, run, torrentdist

BAR = 1.1
LAYERS = 4


def measure(directory: Path, *, mib: int, pairs: int) -> list[Row]:
    layers = [random_files(f"layer-{number}", mib // LAYERS, seed=number) for number in range(LAYERS)]
    layout = write_image(directory / "layout", layers, "1")
    with (
        cluster_of(directory / "cluster", masters=1, supervisors=1) as cluster,
        docker_registry(directory / "registry") as registry,
    ):
        torrentdist(cluster, "upload", str(layout), "--id", "image--app--1", "--min-replicas", "1")
        torrentdist(cluster, "bundle", "distribute", "image--app--1")
        _skopeo(directory, "--dest-tls-verify=false", f"oci:{layout}:1", f"docker://{registry}/app:1")
        gateway = cluster.member("supervisor-1").gateway.removeprefix("http://")
        first = _pull(directory, gateway)
        _pull(directory, registry)
        taken = [(_pull(directory, gateway), _pull(directory, registry)) for _ in range(pairs)]
    note = f"the first time, when the blobs are hashed, {first:.2f} s"
    what = f"pulling an image of {mib} MiB in {LAYERS} layers with skopeo from a host that has it"
    return [paired("image-pull", what, taken, against="docker-registry 2.8 on the same host", bar=BAR, note=note)]


def _pull(directory: Path, host: str) -> float:
    shutil.rmtree(directory / "pulled", ignore_errors=True)
    return _skopeo(directory, "--src-tls-verify=false", f"docker://{host}/app:1", f"dir:{directory}/pulled")


def _skopeo(directory: Path, *arguments: str) -> float:
    return run(["skopeo", "copy", "--quiet", *arguments], directory).seconds
