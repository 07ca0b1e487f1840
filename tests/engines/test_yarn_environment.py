"""PySpark on YARN with an environment that is a bundle: its bytes on the links of each host, and in
HDFS."""

from __future__ import annotations

import re

import pytest
from engines.engine_hosts import EngineLab, LinkCount
from engines.environments import Environment, make_environment
from engines.hadoop import Hadoop
from engines.spark_programs import SparkPrograms, answer_in
from engines.torrentdist_site import IDS_DIR, TorrentdistSite

from bench.lab.namespaces import ROOT

PAGE = (ROOT / "docs/yarn.md").read_text()
ONCE = 1.15
"""Bytes on a link for each byte that it carries: headers, and blocks that are fetched twice."""
SPARK_BYTES = 40 * 10**6
"""What Spark and YARN themselves send to a host: PySpark's own archive, configuration, results."""
LOOKS = """
import json, socket, sys, time
import marker, pandas, pyarrow
from pyspark.sql import SparkSession

def look(_):
    import marker, pandas, pyarrow
    time.sleep(2)
    table = pyarrow.Table.from_pandas(pandas.DataFrame({"n": range(10)}))
    return socket.gethostname(), sys.executable, marker.NAME, pandas.__file__, table.num_rows

spark = SparkSession.builder.getOrCreate()
found = spark.sparkContext.parallelize(range(9), 9).map(look).collect()
print("ANSWER " + json.dumps([socket.gethostname(), marker.NAME, sorted(set(found))]), flush=True)
spark.stop()
"""


@pytest.fixture(scope="module")
def environment(engine_lab: EngineLab, site: TorrentdistSite) -> Environment:
    """On the disk of `head`, whose user uploads it."""
    return make_environment(engine_lab.srv(engine_lab.named("head")) / "env", "of the bundle")


def expected(name: str, host: str) -> list[object]:
    home = f"{IDS_DIR}/{name}"
    file = f"{home}/lib/python3.11/site-packages/pandas/__init__.py"
    return [host, f"{home}/bin/python3", "of the bundle", file, 10]


def test_cluster_mode_brings_the_environment_once_to_each_host(
    engine_lab: EngineLab, hadoop: Hadoop, site: TorrentdistSite, spark: SparkPrograms, environment: Environment
) -> None:
    """If this fails, YARN sends an environment through HDFS or the client, or executors have
    another Python. It takes long: Spark starts on all hosts."""
    head = engine_lab.named("head")
    site.command(head, "upload", "/srv/env", "--id", "env-43")
    links, client, written = LinkCount(hadoop.workers), LinkCount([spark.client]), hadoop.written()
    options = spark.yarn_options(2) | {"--deploy-mode": "cluster"}
    [line] = re.findall(r"(?m)^    torrentdist (spark-submit .*) --master yarn --deploy-mode cluster app\.py$", PAGE)
    program = site.of_user(*line.split())
    ended = spark.submit(options, [spark.write("looks.py", LOOKS)], program=program)
    said = ended.output[-4000:] + hadoop.container_logs(ended.application)
    down, sent, stored = links.down(), client.up(), hadoop.written() - written
    print(f"cluster mode: {environment.size=} {down=} client sent {sent} HDFS wrote {stored}")

    assert ended.code == 0, said
    driver, name, found = answer_in(said)
    assert "of the bundle" == name
    assert {host.name for host in hadoop.workers} == {driver, *(task[0] for task in found)}
    assert [expected("env-43", task[0]) for task in found] == found
    assert all(environment.size < each < ONCE * environment.size + SPARK_BYTES for each in down.values())
    assert sum(sent.values()) < SPARK_BYTES
    assert stored < SPARK_BYTES


def test_client_mode_brings_the_environment_once_to_each_host(
    engine_lab: EngineLab, hadoop: Hadoop, site: TorrentdistSite, spark: SparkPrograms, environment: Environment
) -> None:
    """The same where the driver runs at the client, whose host fetches the environment too. It
    takes long: Spark starts on all hosts."""
    head, hosts = engine_lab.named("head"), [*hadoop.workers, spark.client]
    site.command(head, "bundle", "rm", "env-43")
    for host in hosts:
        site.restart(host, keep=False)
    site.command(head, "upload", "/srv/env", "--id", "env-44")
    links, written = LinkCount(hosts), hadoop.written()
    program = site.of_user("spark-submit", "--env", "env-44")
    ended = spark.submit(spark.yarn_options(3), [spark.write("looks.py", LOOKS)], program=program)
    down, stored = links.down(), hadoop.written() - written
    print(f"client mode: {environment.size=} {down=} HDFS wrote {stored}")

    assert ended.code == 0, ended.output[-4000:] + hadoop.container_logs(ended.application)
    driver, name, found = ended.answer
    assert ("client", "of the bundle") == (driver, name)
    assert [expected("env-44", host.name) for host in hadoop.workers] == found
    assert all(environment.size < each < ONCE * environment.size + SPARK_BYTES for each in down.values())
    assert stored < SPARK_BYTES
