"""Spark's own jars as a bundle: YARN's containers start from `ids_dir`, and HDFS carries none of
them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from engines.engine_hosts import EngineLab, LinkCount
from engines.hadoop import Hadoop
from engines.spark_programs import SPARK_HOME, SparkPrograms, answer_in
from engines.torrentdist_site import IDS_DIR, TorrentdistSite

from bench.lab.namespaces import ROOT

PAGE = (ROOT / "docs/yarn.md").read_text()
BUNDLE = "spark-4.3"
"""The id in docs/yarn.md."""
ONCE = 1.15
SPARK_BYTES = 40 * 10**6
"""What Spark and YARN themselves send to a host, and write into HDFS: PySpark's own archive,
configuration, results."""
LOOKS = """
import json, os, socket, sys, time
from pyspark.sql import SparkSession

ids = sys.argv[1]

def jars():
    "Returns the directories of the jars that the JVM of this Python has open, and where ids_dir leads."
    pid = os.getpid()
    while os.path.basename(os.readlink(f"/proc/{pid}/exe")) != "java":
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    folders = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            path = os.readlink(f"/proc/{pid}/fd/{number}")
        except FileNotFoundError:
            continue
        if path.endswith(".jar"):
            folders.add(os.path.dirname(path))
    return [sorted(folders), [os.path.realpath(ids)]]

def look(_):
    time.sleep(2)
    return socket.gethostname(), *jars()

spark = SparkSession.builder.getOrCreate()
found = spark.sparkContext.parallelize(range(9), 9).map(look).collect()
print("ANSWER " + json.dumps([[socket.gethostname(), *jars()], *found]), flush=True)
spark.stop()
"""


def commands() -> list[list[str]]:
    """Returns the words of the commands of the page's section."""
    section = PAGE.partition("\n## Spark's own jars\n")[2].partition("\n## ")[0]
    block = section.replace("\\\n", "")
    found = [shlex.split(line) for line in re.findall(r"(?m)^    (\S.*)$", block)]
    assert [["torrentdist", "upload"], ["torrentdist", "bundle"], ["spark-submit", "--master"]] == [
        line[:2] for line in found
    ]
    return found


def jars_of(command: list[str]) -> str:
    """Returns the setting of the page's spark-submit, with the directory of our hosts."""
    [jars] = [word.partition("=")[2] for word in command if word.startswith("spark.yarn.jars=")]
    return jars.replace("/var/lib/torrentdist/ids", IDS_DIR)


def test_containers_start_from_jars_that_the_swarm_brought(
    engine_lab: EngineLab, hadoop: Hadoop, site: TorrentdistSite, spark: SparkPrograms
) -> None:
    """If this fails, each application sends Spark's jars through HDFS, or a container does not
    start. It takes long: 400 MB of jars are distributed, and Spark starts on all hosts."""
    head, jars = engine_lab.named("head"), SPARK_HOME / "jars"
    upload, distribute, submit = commands()
    size = sum(file.stat().st_size for file in jars.iterdir())
    links = LinkCount(hadoop.workers)
    site.command(head, *(word.replace("$SPARK_HOME", str(SPARK_HOME)) for word in upload[1:]))
    site.command(head, *distribute[1:])
    brought = links.down()
    links, written = LinkCount(hadoop.workers), hadoop.written()
    options = spark.yarn_options(2) | {
        "--deploy-mode": "cluster",
        "spark.yarn.jars": jars_of(submit),
        "spark.yarn.am.waitTime": "900s",  # a busy machine starts a driver slowly
    }
    ended = spark.submit(options, [spark.write("looks_at_jars.py", LOOKS), f"{IDS_DIR}/{BUNDLE}"])
    said = ended.output[-4000:] + hadoop.container_logs(ended.application)
    down, stored = links.down(), hadoop.written() - written
    site.command(head, "bundle", "rm", BUNDLE)  # or hosts that join for later tests fetch it
    print(f"Spark's jars: {size=} {brought=} while it ran {down=} HDFS wrote {stored}")

    assert ended.code == 0, said
    found = answer_in(said)
    assert {host.name for host in hadoop.workers} == {name for name, *_ in found}
    assert all(opened == there for _, opened, there in found), found
    assert all(str(Path(IDS_DIR).parent) in folder for _, [folder], _ in found)
    assert all(size < each < ONCE * size + SPARK_BYTES for each in brought.values())
    assert all(each < SPARK_BYTES for each in down.values())
    assert stored < SPARK_BYTES
