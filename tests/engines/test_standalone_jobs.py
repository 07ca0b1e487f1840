"""A job of `kind = "spark"` on Spark's own cluster: its driver is cut off with its host, and runs
on another one, but never twice."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

from engines.engine_hosts import EngineLab, java_home
from engines.spark_programs import SPARK_HOME, SparkPrograms
from engines.standalone import SparkCluster
from engines.torrentdist_site import TorrentdistSite

from bench.lab.namespaces import Host, wait_until

NAME = "moves"
WORKS_SECS, MOVES_SECS, ENDS_SECS = 240.0, 300.0, 120.0
DRIVER = """
import fcntl, os, socket, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

home = sys.argv[1]

def write(word):
    with open(home + "/lines", "a") as file:
        file.write(f"{word} {socket.gethostname()} {os.environ['TORRENTDIST_FENCING']}\\n")

def read(_):
    return Path("table/answer.txt").read_text()

lock = open(home + "/lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    write("twice")
write("began")
spark = SparkSession.builder.getOrCreate()
if set(spark.sparkContext.parallelize(range(4), 4).map(read).collect()) == {"of the bundle"}:
    write("works")
while not os.path.exists(home + "/go"):
    time.sleep(0.1)
write("ends")
spark.stop()
"""


def write_job(folder: Path, standalone: SparkCluster) -> None:
    conf = {key: str(value) for key, value in standalone.options().items() if not key.startswith("--")}
    env = {"JAVA_HOME": java_home(), "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable}
    (folder / "app.py").write_text(DRIVER)
    with tarfile.open(folder / "table.tar.gz", "w:gz") as archive:
        member, text = tarfile.TarInfo("answer.txt"), b"of the bundle"
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    (folder / "job.toml").write_text(f"""
name = "{NAME}"
kind = "spark"
command = ["app.py", "/mnt/{NAME}"]
kill_wait_secs = 1
restart.backoff_secs = 1
[env]
{_toml(env)}
[spark]
master = "{standalone.url}"
archives = ["table.tar.gz#table"]
[spark.conf]
{_toml(conf)}""")


def _toml(values: dict[str, str]) -> str:
    return "".join(f'"{key}" = {json.dumps(value)}\n' for key, value in values.items())


def lines(home: Path) -> list[list[str]]:
    """Returns what the drivers wrote: a word, the host, and the number of the run."""
    path = home / "lines"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def hosts_that(home: Path, word: str) -> list[str]:
    return [host for said, host, _ in lines(home) if said == word]


def test_a_driver_moves_from_a_host_that_is_cut_off(
    engine_lab: EngineLab, standalone: SparkCluster, site: TorrentdistSite, spark: SparkPrograms
) -> None:
    """If this fails, a Spark job ends with its host, or two of its drivers run at once. It takes
    long: a session of ZooKeeper ends, and two drivers start."""
    home = engine_lab.shared / NAME
    home.mkdir()
    (spark.home / NAME).mkdir()
    write_job(spark.home / NAME, standalone)
    site.command(spark.client, "job", "submit", f"/srv/{NAME}")
    wait_until(lambda: bool(hosts_that(home, "works")), "a driver's work", WORKS_SECS)
    *_, first = hosts_that(home, "works")
    engine_lab.cut(engine_lab.named(first))
    try:
        wait_until(lambda: hosts_that(home, "works")[-1] != first, "a driver on another host", MOVES_SECS)
        *_, second = hosts_that(home, "works")
        shown = show(site, engine_lab.named("head"))
        (home / "go").touch()
        wait_until(lambda: show(site, engine_lab.named("head"))["status"] == "finished", "the job's end", ENDS_SECS)
    finally:
        engine_lab.plug(engine_lab.named(first))

    assert [second] == [worker["supervisor"] for worker in shown["workers"]]
    assert [second] == hosts_that(home, "ends")
    assert [] == hosts_that(home, "twice")
    numbers = [int(number) for word, _, number in lines(home) if word == "began"]
    assert len(numbers) > 1
    assert sorted(set(numbers)) == numbers


def show(site: TorrentdistSite, host: Host) -> dict[str, Any]:
    return site.command(host, "job", "show", NAME)
