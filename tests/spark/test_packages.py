"""A bundle as a Maven repository, with the real spark-submit and its resolver."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pyspark
import pytest
from cluster_fixtures import Cluster
from package_files import make_artifact
from page_sessions import ON_PAGES, blocks_of, run_block
from spark.conftest import BRIEF, QUICK

SETTINGS = """<ivysettings>
  <settings defaultResolver="bundle"/>
  <resolvers>
    <ibiblio name="bundle" m2compatible="true" root="{url}" checksums="sha1,md5"/>
  </resolvers>
</ivysettings>
"""
PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
for name in ("greeter", "words"):
    stream = loader.getResourceAsStream(f"{name}.txt")
    print("FOUND", name, None if stream is None else bytes(stream.readAllBytes()).decode())
"""


@pytest.fixture
def bundle(cluster: Cluster, tmp_path: Path) -> str:
    """A bundle with two versions of an artifact, and one that it needs."""
    for version in ("1.9", "1.10"):
        make_artifact(tmp_path / "in", "com.example", "greeter", version, needs=[("org.words", "words", "[1.0,3.0)")])
    make_artifact(tmp_path / "in", "org.words", "words", "2.0")
    name = f"jars-{secrets.token_hex(4)}"
    cluster.upload(tmp_path / "in", name)
    return name


def maven(cluster: Cluster, bundle: str) -> str:
    return f"{cluster.url('supervisor-1')}/maven/{bundle}/"


def submit(work: Path, *options: object) -> subprocess.CompletedProcess[str]:
    """Runs PROGRAM on one thread, with an ivy directory of its own."""
    (work / "program.py").write_text(PROGRAM)
    command = [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--master", "local[1]"]
    conf = {"spark.jars.ivy": work / "ivy", "spark.ui.enabled": "false", "spark.driver.memory": "512m"}
    conf["spark.driver.extraJavaOptions"] = BRIEF
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TORRENTDIST_", "SPARK_"))}
    env = {**kept, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "HOME": str(work)}
    env["JDK_JAVA_OPTIONS"] = QUICK
    return subprocess.run(
        list(map(str, [*command, *settings, *options, work / "program.py"])),
        capture_output=True, text=True, timeout=170, env=env, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_packages_come_from_a_bundle_alone(cluster: Cluster, bundle: str, tmp_path: Path) -> None:
    """If this fails, a cluster without the internet cannot use --packages. It takes long: Spark
    starts."""
    (tmp_path / "ivysettings.xml").write_text(SETTINGS.format(url=maven(cluster, bundle)))
    settings = f"spark.jars.ivySettings={tmp_path / 'ivysettings.xml'}"

    ran = submit(tmp_path, "--conf", settings, "--packages", "com.example:greeter:latest.release")

    assert 0 == ran.returncode, ran.stderr
    assert ["FOUND greeter 1.10", "FOUND words 2.0"] == [
        line for line in ran.stdout.splitlines() if line.startswith("FOUND")
    ]


def test_a_bundle_is_one_of_sparks_repositories(cluster: Cluster, bundle: str, tmp_path: Path) -> None:
    """If this fails, --repositories cannot name a bundle. It takes long: Spark starts."""
    ran = submit(
        tmp_path, "--repositories", maven(cluster, bundle).rstrip("/"), "--packages", "com.example:greeter:1.10"
    )

    assert 0 == ran.returncode, ran.stderr
    assert "FOUND greeter 1.10" in ran.stdout
    assert "FOUND words 2.0" in ran.stdout


def test_checksums_are_made_and_those_of_the_bundle_kept(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, a resolver that verifies refuses every file, or accepts a damaged one."""
    jar = make_artifact(tmp_path / "in", "com.example", "lib", "1.0")
    jar.with_name(f"{jar.name}.md5").write_text("from the bundle")
    name = f"jars-{secrets.token_hex(4)}"
    cluster.upload(tmp_path / "in", name)
    url = maven(cluster, name)
    base = f"{url}com/example/lib"

    def get(path: str) -> httpx.Response:
        return httpx.get(path, trust_env=False, timeout=60.0)

    data, listed = jar.read_bytes(), get(f"{base}/maven-metadata.xml")

    assert data == get(f"{base}/1.0/lib-1.0.jar").content
    for kind in ("sha1", "sha256", "sha512"):
        assert hashlib.new(kind, data).hexdigest() == get(f"{base}/1.0/lib-1.0.jar.{kind}").text
    assert "from the bundle" == get(f"{base}/1.0/lib-1.0.jar.md5").text
    assert hashlib.sha1(listed.content).hexdigest() == get(f"{base}/maven-metadata.xml.sha1").text
    for path in (
        "none",
        "",
        "com",
        "com/example/lib/1.0/none.jar.sha1",
        "..%2f..%2fmetafile",
        "%2fetc%2fpasswd",
        "a.sha1",
    ):
        assert 404 == get(url + path).status_code, path


def test_a_checksum_that_does_not_match_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, Spark runs a jar that is not what its publisher uploaded."""
    jar = make_artifact(tmp_path / "in", "com.example", "greeter", "1.0")
    make_artifact(tmp_path / "in", "org.words", "words", "2.0")
    jar.with_name(f"{jar.name}.sha1").write_text("0" * 40)
    name = f"jars-{secrets.token_hex(4)}"
    cluster.upload(tmp_path / "in", name)
    (tmp_path / "ivysettings.xml").write_text(SETTINGS.format(url=maven(cluster, name)))
    settings = f"spark.jars.ivySettings={tmp_path / 'ivysettings.xml'}"

    ran = submit(tmp_path, "--conf", settings, "--packages", "com.example:greeter:1.0")

    assert 0 != ran.returncode
    assert "invalid sha1" in ran.stderr + ran.stdout


def test_the_session_of_the_page_works(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, a reader of docs/package-indexes.md cannot submit what it submits. It takes
    long: Spark starts."""
    make_artifact(tmp_path / "jars", "com.example", "greeter", "1.10")
    make_artifact(tmp_path / "jars", "org.words", "words", "2.0")
    shutil.copy(cluster.dir / "client.toml", tmp_path / "torrentdist.toml")
    (settings,) = blocks_of("package-indexes.md", "xml", part="Spark packages")
    gateway = cluster.url("supervisor-1")
    (tmp_path / "ivysettings.xml").write_text(settings.replace(ON_PAGES, gateway))
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        f"spark.jars.ivy {tmp_path / 'ivy'}\nspark.ui.enabled false\nspark.driver.extraJavaOptions {BRIEF}\n"
    )
    env = {"SPARK_CONF_DIR": str(tmp_path / "conf"), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}

    blocks = blocks_of("package-indexes.md", "sh", part="Spark packages")
    ran = [run_block(block, gateway, tmp_path, **env) for block in (blocks[0], blocks[2])]

    assert 3 == len(blocks)  # the second asks Maven Central too; the tests above try it
    assert [0, 0] == [one.returncode for one in ran], [one.stderr for one in ran]
    assert "FOUND greeter 1.10" in ran[1].stdout
