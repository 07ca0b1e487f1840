"""Spark's own cluster with many applications at once, and with a worker that joins while one runs:
what all of them use enters each host once."""

from __future__ import annotations

import hashlib
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from engines.engine_hosts import EngineLab, LinkCount
from engines.ring import free_mb
from engines.spark_programs import SparkPrograms
from engines.standalone import CORES, SparkCluster
from engines.torrentdist_site import TorrentdistSite

from bench.lab.namespaces import wait_until

GATEWAY = "http://127.0.0.1:7070/bundles"
APPLICATIONS = 16
CROWD_MB = 8000
BUNDLE_BYTES = 24 * 2**20
ONCE = 1.15
SPARK_BYTES = 6 * 10**6
"""What Spark itself sends to a host for all applications, and the bundle's metafile."""
MOST_SECS = 1200.0
READS = """
import hashlib, json, socket, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

flags, own, all_of_them, tasks = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def read(_):
    from torrentdist.spark import bundle_path
    host = socket.gethostname()
    (flags / f"{own or host}").touch()
    deadline = time.monotonic() + 1000
    while len(list(flags.iterdir())) < all_of_them and time.monotonic() < deadline:
        time.sleep(0.2)
    found = [Path("data/part.bin"), bundle_path(bundle) / "part.bin"]
    return host, len(list(flags.iterdir())), *(hashlib.sha256(path.read_bytes()).hexdigest() for path in found)

spark = SparkSession.builder.getOrCreate()
bundle = sys.argv[5]
found = spark.sparkContext.parallelize(range(tasks), tasks).map(read).collect()
print("ANSWER " + json.dumps(sorted(set(found))), flush=True)
spark.stop()
"""


def upload(lab: EngineLab, site: TorrentdistSite, bundle: str) -> str:
    """Uploads a bundle from `head`. Returns the digest of its file."""
    data = secrets.token_bytes(BUNDLE_BYTES)
    folder = lab.srv(lab.named("head")) / bundle
    folder.mkdir()
    (folder / "part.bin").write_bytes(data)
    site.command(lab.named("head"), "upload", f"/srv/{bundle}", "--id", bundle)
    return hashlib.sha256(data).hexdigest()


def flags_of(lab: EngineLab, name: str) -> Path:
    flags = lab.shared / name
    flags.mkdir()
    return flags


def options_of(standalone: SparkCluster, bundle: str, **more: object) -> dict[str, object]:
    archive = {"--archives": f"{GATEWAY}/{bundle}/archive.tar.gz#data"}
    return standalone.options(**archive, **{"spark.executorEnv.PYTHONPATH": str(Path.cwd())}, **more)


def test_a_worker_that_joins_later_gets_what_its_tasks_need(
    engine_lab: EngineLab, standalone: SparkCluster, site: TorrentdistSite, spark: SparkPrograms
) -> None:
    """With dynamic allocation. If this fails, executors on a new host have no files, or fetch them
    more than once. It takes long: a supervisor, a worker and three executors start."""
    late = standalone.workers[-1]
    standalone.leave(late)
    engine_lab.kill(site.process(late))
    digest, flags = upload(engine_lab, site, "wide-7"), flags_of(engine_lab, "wide")
    allocation = {
        "spark.scheduler.minRegisteredResourcesRatio": 0,  # executors are asked for when tasks wait
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": len(standalone.workers),
        "spark.executor.cores": CORES,
        "spark.task.cpus": CORES,
        "spark.cores.max": CORES * len(standalone.workers),
    }
    command = [spark.write("wide.py", READS), f"/mnt/{flags.name}", "", str(len(standalone.workers)), "12", "wide-7"]
    with ThreadPoolExecutor(1) as aside:
        running = aside.submit(spark.submit, options_of(standalone, "wide-7", **allocation), command, secs=MOST_SECS)
        wait_until(lambda: running.done() or len(list(flags.iterdir())) == 2, "tasks on two hosts", MOST_SECS)
        site.restart(late, keep=False)
        links = LinkCount([late])
        standalone.join(late)
        ended = running.result()
    [down] = links.down().values()
    print(f"joined later: {BUNDLE_BYTES=} {down=}")

    assert ended.code == 0, ended.output[-6000:] + standalone.executor_logs(ended.application)
    assert [[host.name, 3, digest, digest] for host in standalone.workers] == ended.answer
    assert BUNDLE_BYTES < down < ONCE * BUNDLE_BYTES + SPARK_BYTES


def test_sixteen_applications_at_once_fetch_a_bundle_once(
    engine_lab: EngineLab, standalone: SparkCluster, site: TorrentdistSite, spark: SparkPrograms
) -> None:
    """If this fails, each application of a busy cluster fetches the bundle again, or one of them
    fails for the others. It takes long: sixteen drivers and executors start."""
    if free_mb() < CROWD_MB:
        pytest.skip(f"left out: sixteen applications take {CROWD_MB} MB of memory")
    digest, flags = upload(engine_lab, site, "crowd-7"), flags_of(engine_lab, "crowd")
    options = options_of(standalone, "crowd-7", **{"spark.cores.max": 1})
    program, hosts = spark.write("crowd.py", READS), [*standalone.workers, spark.client]
    links = LinkCount(hosts)
    with ThreadPoolExecutor(APPLICATIONS) as aside:

        def submit(number: int) -> str:
            arguments = [f"/mnt/{flags.name}", f"application-{number}", str(APPLICATIONS), "1", "crowd-7"]
            ended = spark.submit(options, [program, *arguments], secs=MOST_SECS)
            assert ended.code == 0, ended.output[-6000:] + standalone.executor_logs(ended.application)
            [[host, met, *digests]] = ended.answer
            assert [APPLICATIONS, digest, digest] == [met, *digests]
            return str(host)

        used = sorted(set(aside.map(submit, range(APPLICATIONS))))
    down = links.down()
    print(f"{APPLICATIONS} applications: {BUNDLE_BYTES=} {down=}")

    assert [host.name for host in standalone.workers] == used
    assert all(BUNDLE_BYTES < each < ONCE * BUNDLE_BYTES + SPARK_BYTES for each in down.values())
