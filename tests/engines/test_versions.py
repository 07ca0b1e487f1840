"""What depends on the version of Spark: the cluster as tables needs 4.0."""

from __future__ import annotations

import re

from engines.spark_programs import SHORT_LIVED, SPARK_HOME, SparkPrograms
from engines.torrentdist_site import TorrentdistSite

WITH_SOURCES = 4
"""The first version of Spark with data sources in Python."""
READS = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
try:
    from torrentdist.spark.datasource import register
except ImportError as error:
    print("ANSWER " + json.dumps(str(error)), flush=True)
else:
    register(spark)
    table = spark.read.format("torrentdist").option("config", sys.argv[1]).load("supervisors")
    print("ANSWER " + json.dumps(sorted(row.id for row in table.collect())), flush=True)
spark.stop()
"""


def version() -> str:
    """Returns the version of the Spark that the ring uses."""
    [jar] = (SPARK_HOME / "jars").glob("spark-core_*.jar")
    [found] = re.findall(r"-(\d+\.\d+\.\d+)\.jar$", jar.name)
    return str(found)


def test_the_cluster_is_a_table_or_the_needed_version_is_named(site: TorrentdistSite, spark: SparkPrograms) -> None:
    """If this fails, a user of Spark 3.5 searches for a data source that his version cannot have,
    or one of 4.0 does not get it. It takes long: Spark starts."""
    options = {"--master": "local[1]", "spark.driver.memory": "512m", **SHORT_LIVED}
    config = f"/mnt/{site.home.name}/user.conf.toml"
    ended = spark.submit(options, [spark.write("tables.py", READS), config])
    print(f"Spark {version()}: {ended.answer}")

    assert ended.code == 0, ended.output[-4000:]
    if int(version().partition(".")[0]) >= WITH_SOURCES:
        assert sorted(host.name for host in site.supervisors) == ended.answer
    else:
        assert "the data source torrentdist needs PySpark 4.0 or later" in ended.answer
