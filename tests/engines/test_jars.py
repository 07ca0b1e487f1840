"""Applications in Java and in Scala: their tasks find bundles on every host, although no program of
ours waits for them there."""

from __future__ import annotations

import hashlib
import secrets
from typing import NamedTuple

import pytest
from engines.engine_hosts import EngineLab, LinkCount
from engines.hadoop import Hadoop
from engines.spark_programs import SPARK_HOME, Ended, SparkPrograms
from engines.standalone import SparkCluster
from engines.torrentdist_site import TorrentdistSite

from bench.lab.namespaces import ROOT

JAVA = ROOT / "build/engines-jar/reads-bundles.jar"
SCALA = ROOT / "tests/engines/scala/ReadsInScala.scala"
GATEWAY = "http://127.0.0.1:7070/bundles"
MODEL, CODE = "jvm-model", "jvm-code"
MODEL_BYTES = 24 * 2**20
ONCE = 1.15
SPARK_BYTES = 12 * 10**6
LANGUAGES = {"java": "ReadsBundles", "scala": "ReadsInScala"}


class Bundles(NamedTuple):
    digest: str
    """The SHA-256 of the model's file."""
    down: LinkCount
    """Counts what the hosts of executors received since before the model was uploaded."""


@pytest.fixture(scope="module")
def jars(engine_lab: EngineLab, site: TorrentdistSite, spark: SparkPrograms) -> None:
    """Puts the jars on the client's disk, and into a bundle. The compiler of Scala is Spark's."""
    if not JAVA.exists():
        pytest.skip("the jar in Java is not built: scripts/engines-jar")
    folder = spark.home / CODE
    folder.mkdir()
    (folder / "java.jar").write_bytes(JAVA.read_bytes())
    compiler = ["java", "-cp", f"{SPARK_HOME}/jars/*", "scala.tools.nsc.Main", "-usejavacp"]
    compiled = engine_lab.call(spark.client, [*compiler, "-d", f"/srv/{CODE}/scala.jar", str(SCALA)])
    assert compiled.returncode == 0, compiled.stdout + compiled.stderr
    site.command(spark.client, "upload", f"/srv/{CODE}", "--id", CODE)


@pytest.fixture(scope="module")
def bundles(engine_lab: EngineLab, site: TorrentdistSite, spark: SparkPrograms) -> Bundles:
    data = secrets.token_bytes(MODEL_BYTES)
    (spark.home / MODEL).mkdir()
    (spark.home / MODEL / "weights.bin").write_bytes(data)
    links = LinkCount([engine_lab.named(name) for name in ("w1", "w2", "w3")])
    site.command(spark.client, "upload", f"/srv/{MODEL}", "--id", MODEL)
    return Bundles(hashlib.sha256(data).hexdigest(), links)


def submit(site: TorrentdistSite, spark: SparkPrograms, options: dict[str, object], language: str, jar: str) -> Ended:
    program = site.of_user("spark-submit", "--bundle", MODEL, "--label", "kind=w")
    options = options | {"--class": f"org.torrentdist.engines.{LANGUAGES[language]}"}
    return spark.submit(options, [jar, MODEL, "weights.bin"], program=program)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_jar_reads_a_bundle_on_a_standalone_cluster(
    standalone: SparkCluster, site: TorrentdistSite, spark: SparkPrograms, jars: None, bundles: Bundles, language: str
) -> None:
    """The jar itself comes from the gateway, too. If this fails, an application in Java starts
    before its bundle is there, or does not find it. It takes long: Spark starts on all hosts."""
    ended = submit(site, spark, standalone.options(), language, f"{GATEWAY}/{CODE}/files/{language}.jar")
    down = bundles.down.down()
    print(f"{language} on standalone: {MODEL_BYTES=} {down=}")

    assert ended.code == 0, ended.output[-6000:] + standalone.executor_logs(ended.application)
    assert [[host.name, bundles.digest] for host in standalone.workers] == ended.answer
    assert all(MODEL_BYTES < each < ONCE * MODEL_BYTES + SPARK_BYTES for each in down.values())


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_jar_reads_a_bundle_on_yarn(
    hadoop: Hadoop, site: TorrentdistSite, spark: SparkPrograms, jars: None, bundles: Bundles, language: str
) -> None:
    """The same in YARN's containers. It takes long: Spark starts on all hosts."""
    ended = submit(site, spark, spark.yarn_options(3), language, f"/srv/{CODE}/{language}.jar")

    assert ended.code == 0, ended.output[-6000:] + hadoop.container_logs(ended.application)
    assert [[host.name, bundles.digest] for host in hadoop.workers] == ended.answer
