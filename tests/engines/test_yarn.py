"""PySpark on YARN: bundles reach its executors from the swarm."""

from __future__ import annotations

import hashlib
import secrets

from engines.engine_hosts import EngineLab
from engines.hadoop import Hadoop
from engines.spark_programs import SparkPrograms
from engines.torrentdist_site import TorrentdistSite

READS_A_BUNDLE = """
import hashlib, json, socket, sys
from pyspark.sql import SparkSession

from torrentdist.spark import add_bundle

bundle, packages = sys.argv[1:]

def read(_):
    from torrentdist.spark import bundle_path
    import answers
    data = (bundle_path(bundle) / "weights.bin").read_bytes()
    return socket.gethostname(), hashlib.sha256(data).hexdigest(), answers.ANSWER

spark = SparkSession.builder.getOrCreate()
add_bundle(spark, packages, python=True)
found = spark.sparkContext.parallelize(range(6), 6).map(read).collect()
print("ANSWER " + json.dumps(sorted(set(found))), flush=True)
spark.stop()
"""


def test_an_application_on_yarn_reads_a_bundle(
    engine_lab: EngineLab, hadoop: Hadoop, site: TorrentdistSite, spark: SparkPrograms
) -> None:
    """By `bundle_path`, and a bundle of Python packages by `add_bundle`. If this fails, no user of
    YARN gets a bundle in a task. It takes long: Spark starts on all hosts."""
    content = secrets.token_bytes(4 * 1024 * 1024)
    model = engine_lab.srv(spark.client) / "model"
    model.mkdir()
    (model / "weights.bin").write_bytes(content)
    site.command(spark.client, "upload", "/srv/model", "--id", "model-7")
    (spark.home / "features").mkdir()
    (spark.home / "features/answers.py").write_text("ANSWER = 42\n")
    site.command(spark.client, "upload", "/srv/features", "--id", "features-7")
    program = spark.write("reads.py", READS_A_BUNDLE)
    ended = spark.submit(spark.yarn_options(3), [program, "model-7", "features-7"])
    digest = hashlib.sha256(content).hexdigest()

    assert ended.code == 0, ended.output[-4000:] + hadoop.container_logs(ended.application)
    assert [[host.name, digest, 42] for host in hadoop.workers] == ended.answer
