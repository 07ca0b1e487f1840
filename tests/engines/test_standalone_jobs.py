"""A job of `kind = "spark"` on Spark's own cluster: its driver is cut off with its host, and runs
on another one, but never twice."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from engines.engine_hosts import EngineLab
from engines.spark_programs import SparkPrograms
from engines.standalone import SparkCluster
from engines.standalone_jobs import StandaloneJob
from engines.torrentdist_site import TorrentdistSite

from bench.lab.namespaces import wait_until

WORKS_SECS, MOVES_SECS, ENDS_SECS = 900.0, 900.0, 600.0
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


def write_archive(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        member, text = tarfile.TarInfo("answer.txt"), b"of the bundle"
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))


def hosts_that(job: StandaloneJob, word: str) -> list[str]:
    """Returns the hosts whose drivers wrote a word."""
    return [host for said, host, _ in job.lines() if said == word]


def test_a_driver_moves_from_a_host_that_is_cut_off(
    engine_lab: EngineLab, standalone: SparkCluster, site: TorrentdistSite, spark: SparkPrograms
) -> None:
    """If this fails, a Spark job ends with its host, or two of its drivers run at once. It takes
    long: a session of ZooKeeper ends, and two drivers start."""
    job = StandaloneJob(engine_lab, site, spark, "moves")
    write_archive(job.bundle / "table.tar.gz")
    job.write(standalone, DRIVER, settings='archives = ["table.tar.gz#table"]')
    job.submit()
    wait_until(lambda: bool(hosts_that(job, "works")), "a driver's work", WORKS_SECS)
    *_, first = hosts_that(job, "works")
    engine_lab.cut(engine_lab.named(first))
    try:
        wait_until(lambda: hosts_that(job, "works")[-1] != first, "a driver on another host", MOVES_SECS)
        *_, second = hosts_that(job, "works")
        shown = job.show()
        (job.home / "go").touch()
        wait_until(lambda: job.show()["status"] == "finished", "the job's end", ENDS_SECS)
    finally:
        engine_lab.plug(engine_lab.named(first))

    assert [second] == [worker["supervisor"] for worker in shown["workers"]]
    assert [second] == hosts_that(job, "ends")
    assert [] == hosts_that(job, "twice")
    numbers = [int(number) for word, _, number in job.lines() if word == "began"]
    assert len(numbers) > 1
    assert sorted(set(numbers)) == numbers
