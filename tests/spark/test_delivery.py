"""Spark's own --archives and --py-files with URLs of the gateway: real drivers, real executors."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, running_cluster, until
from spark.conftest import WORKERS, Standalone
from spark.relay import relay

MiB = 1024 * 1024
SIZE = 12 * MiB
LIMIT = 2 * MiB
"""Bytes per second that each master sends, so that the bundle takes a while."""

APP = """
import hashlib, json, os, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()

def look(_):
    import packaged
    data = open("env/data.bin", "rb").read()
    return [(os.getcwd(), hashlib.sha256(data).hexdigest(), packaged.NAME)]

seen = spark.sparkContext.parallelize(range(8), 8).mapPartitions(look).collect()
print(json.dumps({"dirs": len({d for d, _, _ in seen}), "hashes": sorted({h for _, h, _ in seen}),
                  "packaged": sorted({p for _, _, p in seen})}))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"swarm": {"upload_limit": LIMIT}}
    with running_cluster(settings, work=tmp_path_factory.mktemp("delivery"), masters=3, supervisors=1) as cluster:
        yield cluster


def gateway(cluster: Cluster) -> str:
    return f"{cluster.url('supervisor-1')}/bundles"


def upload(cluster: Cluster, source: Path) -> bytes:
    """Uploads `env`, too large to arrive at once, and `lib`, a zip of a Python package."""
    data = os.urandom(SIZE)
    (source / "env").mkdir()
    (source / "env/data.bin").write_bytes(data)
    (source / "lib").mkdir()
    with zipfile.ZipFile(source / "lib/lib.zip", "w") as made:
        made.writestr("packaged/__init__.py", "NAME = 'from the swarm'")
    for name in ("env", "lib"):
        cluster.upload(source / name, name)
    return data


def test_executors_are_served_by_their_own_host_while_a_master_dies(
    cluster: Cluster, spark: Standalone, tmp_path: Path
) -> None:
    """The driver would send the bundle to every executor, or the loss of a master would cost the
    application. It takes long: Spark starts with executors on several hosts."""
    data = upload(cluster, tmp_path)
    app = tmp_path / "app.py"
    app.write_text(APP)
    archive, lib = f"{gateway(cluster)}/env/archive.tar.gz", f"{gateway(cluster)}/lib/files/lib.zip"
    with relay() as driver:
        running = spark.begin(*driver.options(), "--archives", f"{archive}#env", "--py-files", lib, app)
        until(lambda: under_way(cluster), "the bundle is under way", 60)
        cluster.kill(cluster.leader())
        ended = running.end()

    assert 0 == ended.code, ended.log[-3000:]
    seen = json.loads(ended.output.splitlines()[-1])  # warnings of libraries come first
    expected = {"dirs": WORKERS, "hashes": [hashlib.sha256(data).hexdigest()], "packaged": ["from the swarm"]}
    assert expected == seen
    for log in ended.executors.values():
        fetched = {line.partition("Fetching ")[2].split()[0] for line in log.splitlines() if "Fetching " in line}
        assert {archive, lib} == {url.partition("#")[0] for url in fetched}  # and nothing from spark://DRIVER/files
    assert 10_000 < driver.sent < SIZE / 8  # tasks and messages; none of the bundle's bytes, which can't be compressed
    view = cluster.get("supervisor-1", "/bundles/env")
    came = view["transfer"]["sources"]
    assert SIZE == came["masters"] + came["peers"]


def under_way(cluster: Cluster) -> bool:
    view = cluster.get("supervisor-1", "/bundles/env")
    return view is not None and view["transfer"] is not None and 0 < view["transfer"]["done"] < SIZE


def test_a_wrong_url_fails_the_job_with_our_words_in_its_log(
    cluster: Cluster, spark: Standalone, tmp_path: Path
) -> None:
    """The user would find only a number in Spark's log. It takes long: Spark starts."""
    app = tmp_path / "app.py"
    app.write_text(APP)
    ended = spark.run("--archives", f"{gateway(cluster)}/nope/archive.tar.gz#env", app)

    assert 0 != ended.code
    assert "there_is_no_bundle_'nope'" in ended.log
