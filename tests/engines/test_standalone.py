"""Spark's own cluster on four hosts: an application's files come from the gateway of each host,
while executors and supervisors die."""

from __future__ import annotations

import hashlib
import secrets
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engines.engine_hosts import EngineLab, LinkCount
from engines.spark_programs import LONGEST_SECS, SparkPrograms
from engines.standalone import SparkCluster
from engines.torrentdist_site import TorrentdistSite

from bench.lab.namespaces import wait_until

GATEWAY = "http://127.0.0.1:7070/bundles"
MODEL_BYTES, TABLE_BYTES, LATE_BYTES = 48 * 2**20, 16 * 2**20, 8 * 2**20
ALL_BYTES = MODEL_BYTES + TABLE_BYTES + LATE_BYTES
ONCE = 1.15
SPARK_BYTES = 12 * 10**6
"""What Spark itself sends to a host, and the bundles' metafiles."""
FLAGS = "flags"
KILLED = "w2"
"""The first task on this host kills its executor."""
READS = """
import hashlib, json, os, signal, socket, sys, time, zipfile
from pathlib import Path
from pyspark import SparkFiles
from pyspark.sql import SparkSession

FLAGS, KILLED = Path("/mnt/flags"), sys.argv[1]

def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()

def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def kill_executor():
    (FLAGS / "killed").mkdir()
    pid = os.getpid()
    while "java" not in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
        pid = parent(pid)
    os.kill(pid, signal.SIGKILL)
    time.sleep(60)

def read(_):
    import answers
    host = socket.gethostname()
    if host == KILLED and not (FLAGS / "killed").exists():
        kill_executor()
    found = [digest("model/weights.bin"), digest(SparkFiles.get("table.bin")), answers.ANSWER]
    found.append(zipfile.ZipFile(SparkFiles.get("extra.jar")).read("extra.txt").decode())
    (FLAGS / f"began-{host}").touch()
    deadline = time.monotonic() + 900
    while not (FLAGS / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    from torrentdist.spark import bundle_path
    return host, *found, digest(bundle_path("late-7") / "late.bin")

spark = SparkSession.builder.getOrCreate()
seen = spark._jvm.Thread.currentThread().getContextClassLoader().getResource("extra.txt") is not None
found = spark.sparkContext.parallelize(range(9), 9).map(read).collect()
print("ANSWER " + json.dumps([seen, sorted(set(found))]), flush=True)
spark.stop()
"""


def write_bundles(disk: Path, site: TorrentdistSite, lab: EngineLab) -> list[str]:
    """Uploads what the application uses, from `head`. Returns the digests of its large files."""
    digests = []
    for bundle, file, size in (
        ("model-8", "weights.bin", MODEL_BYTES),
        ("table-7", "table.bin", TABLE_BYTES),
        ("late-7", "late.bin", LATE_BYTES),
    ):
        data = secrets.token_bytes(size)
        (disk / bundle).mkdir()
        (disk / bundle / file).write_bytes(data)
        digests.append(hashlib.sha256(data).hexdigest())
    (disk / "code-7").mkdir()
    (disk / "code-7/answers.py").write_text("ANSWER = 42\n")
    with zipfile.ZipFile(disk / "code-7/extra.jar", "w") as jar:
        jar.writestr("extra.txt", "of the jar")
    for bundle in ("model-8", "table-7", "late-7", "code-7"):
        site.command(lab.named("head"), "upload", f"/srv/{bundle}", "--id", bundle)
    return digests


def test_files_come_from_each_hosts_gateway_whatever_dies(
    engine_lab: EngineLab, standalone: SparkCluster, site: TorrentdistSite, spark: SparkPrograms
) -> None:
    """If this fails, an application loses its files with an executor or a supervisor, or a host
    fetches them twice. It takes long: Spark starts on all hosts, and an executor anew."""
    head, *_, last = (engine_lab.named("head"), *standalone.workers)
    model, table, late = write_bundles(engine_lab.srv(head), site, engine_lab)
    flags = engine_lab.shared / FLAGS
    flags.mkdir()
    options = standalone.options() | {
        "--archives": f"{GATEWAY}/model-8/archive.tar.gz#model",
        "--files": f"{GATEWAY}/table-7/files/table.bin",
        "--py-files": f"{GATEWAY}/code-7/files/answers.py",
        "--jars": f"{GATEWAY}/code-7/files/extra.jar",
        "spark.executorEnv.PYTHONPATH": str(Path.cwd()),
    }
    links = LinkCount([*standalone.workers, spark.client])
    with ThreadPoolExecutor(1) as aside:
        running = aside.submit(spark.submit, options, [spark.write("reads_all.py", READS), KILLED])
        began = [flags / f"began-{host.name}" for host in standalone.workers]
        wait_until(lambda: running.done() or all(flag.exists() for flag in began), "tasks on all hosts", LONGEST_SECS)
        site.restart(last)
        (flags / "go").touch()
        ended = running.result()
    down = links.down()
    print(f"standalone: {ALL_BYTES=} {down=}")

    assert ended.code == 0, ended.output[-6000:] + standalone.executor_logs(ended.application)
    assert (flags / "killed").exists()
    expected = [[host.name, model, table, 42, "of the jar", late] for host in standalone.workers]
    assert [True, expected] == ended.answer
    whole = dict.fromkeys((host.name for host in standalone.workers), ALL_BYTES) | {"client": MODEL_BYTES + TABLE_BYTES}
    assert all(whole[name] < each < ONCE * whole[name] + SPARK_BYTES for name, each in down.items())
