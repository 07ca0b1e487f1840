"""What a user reads when an application can't have its bundles, or a job its engine."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from engines.engine_hosts import EngineLab, java_home
from engines.failing_applications import LOOKS, WAIT_SECS, WAITS, upload_environment, write_program
from engines.spark_programs import SPARK_HOME, Ended, SparkPrograms
from engines.standalone import SparkCluster
from engines.torrentdist_site import IDS_DIR, TorrentdistSite

from bench.lab.namespaces import wait_until

SPARK_PYTHON = f"{IDS_DIR}.spark/python"


@pytest.fixture(scope="module")
def program(spark: SparkPrograms) -> str:
    return write_program(spark)


def submit(
    site: TorrentdistSite, spark: SparkPrograms, standalone: SparkCluster, program: str, bundle: str, **conf: object
) -> Ended:
    own = site.of_user("spark-submit", "--label", "kind=w", "--env", bundle)
    return spark.submit(standalone.options(**conf), [program], program=own)


def test_an_unknown_bundle_is_named_before_spark_starts(
    standalone: SparkCluster, site: TorrentdistSite, spark: SparkPrograms, program: str
) -> None:
    """If this fails, a misspelt id costs the start of an application, and a search in its logs."""
    ended = submit(site, spark, standalone, program, "no-such")

    assert ended.code == 3
    assert ended.output.startswith("error[bundle_not_found]: there is no bundle 'no-such'\n")
    assert "Spark" not in ended.output


def test_a_user_who_may_not_read_is_told_the_setting(
    engine_lab: EngineLab, standalone: SparkCluster, site: TorrentdistSite, spark: SparkPrograms
) -> None:
    """If this fails, an executor of another user ends without the reason."""
    upload_environment(site, spark, "env-a")
    site.command(spark.client, "bundle", "distribute", "env-a", "--wait", "100%")
    as_nobody = ["setpriv", "--reuid", "12345", "--clear-groups", "env", "TORRENTDIST_ENV=env-a"]
    ended = engine_lab.call(standalone.workers[0], [*as_nobody, SPARK_PYTHON, "-c", "print(1)"])

    assert (1, "") == (ended.returncode, ended.stdout)
    assert "user 12345 may not read the bundles of this host: set store.readable_by" in ended.stderr


def test_an_executor_says_that_its_supervisor_is_down_and_goes_on_when_it_is_back(
    engine_lab: EngineLab, standalone: SparkCluster, site: TorrentdistSite, spark: SparkPrograms, program: str
) -> None:
    """If this fails, an application stands still and no log says why, or it fails for a restart. It
    takes long: Spark starts on all hosts."""
    upload_environment(site, spark, "env-b")
    *others, down = standalone.workers
    waits = f"{WAITS} bundle env-b"
    engine_lab.kill(site.process(down))
    with ThreadPoolExecutor(1) as aside:
        running = aside.submit(submit, site, spark, standalone, program, "env-b")
        try:
            wait_until(lambda: running.done() or waits in standalone.executor_logs("*"), "a word", WAIT_SECS)
            said = standalone.executor_logs("*")
        finally:
            site.restart(down)
        ended = running.result()

    assert f"{waits}: the supervisor of this host does not answer at 127.0.0.1:7070" in said
    assert ended.code == 0, ended.output[-4000:]
    assert [host.name for host in (*others, down)] == ended.answer


def test_a_host_without_room_is_named(
    engine_lab: EngineLab, standalone: SparkCluster, site: TorrentdistSite, spark: SparkPrograms, program: str
) -> None:
    """If this fails, nobody learns which disk is full. It takes long: Spark starts on all hosts."""
    upload_environment(site, spark, "env-c")
    full = standalone.workers[1]
    usual = site.settings
    site.settings += "[store]\nreserve_bytes = 1_000_000_000_000_000\n"
    site.restart(full, keep=False)
    try:
        ended = submit(site, spark, standalone, program, "env-c", **{"spark.executorEnv.TORRENTDIST_WAIT_SECS": 10})
    finally:
        site.settings = usual
        site.restart(full)

    assert "bundle env-c did not come in time: not enough room in /srv/torrentdist/supervisor" in ended.output


def test_a_host_without_a_supervisor_is_named(
    engine_lab: EngineLab, standalone: SparkCluster, site: TorrentdistSite, spark: SparkPrograms, program: str
) -> None:
    """If this fails, an operator who forgot a host searches for it. It takes long: Spark starts on
    all hosts."""
    upload_environment(site, spark, "env-d")
    bare = standalone.workers[-1]
    engine_lab.kill(site.process(bare))
    shutil.rmtree(engine_lab.srv(bare) / "torrentdist")
    try:
        ended = submit(site, spark, standalone, program, "env-d")
    finally:
        site.restart(bare)
    lost = [line for line in ended.output.splitlines() if f'Cannot run program "{SPARK_PYTHON}"' in line]

    assert lost, ended.output[-6000:]
    assert any(bare.address in line or bare.name in line for line in lost)


@pytest.mark.parametrize(
    ("master", "said"), [("spark://head:1", "All masters are unresponsive"), ("yarn", "YARN cannot be asked")]
)
def test_a_job_whose_engine_is_down_says_so(
    engine_lab: EngineLab, site: TorrentdistSite, spark: SparkPrograms, master: str, said: str
) -> None:
    """If this fails, a job waits or fails, and `job show` gives no reason. It takes long: Spark
    tries three times, twenty seconds each."""
    name = f"down-{master[:4]}"
    folder = spark.home / name
    folder.mkdir()
    (folder / "app.py").write_text(LOOKS)
    conf = engine_lab.shared / name
    conf.mkdir()
    value = "<property><name>yarn.resourcemanager.webapp.address</name><value>head:1</value></property>"
    (conf / "yarn-site.xml").write_text(f"<configuration>{value}</configuration>")
    mode = 'deploy_mode = "cluster"' if master == "yarn" else ""
    (folder / "job.toml").write_text(f"""
name = "{name}"
kind = "spark"
command = ["app.py"]
restart = "never"
kill_wait_secs = 0
[env]
HADOOP_CONF_DIR = "/mnt/{name}"
JAVA_HOME = "{java_home()}"
SPARK_HOME = "{SPARK_HOME}"
PYSPARK_PYTHON = "{sys.executable}"
[spark]
master = "{master}"
{mode}
[spark.conf]
"spark.driver.memory" = "512m"
"spark.ui.enabled" = "false"
""")
    site.command(spark.client, "job", "submit", f"/srv/{name}")

    def shown() -> str:
        return site.tried(spark.client, "job", "show", name).stdout

    try:
        wait_until(lambda: said in shown(), f"{said}: {shown()}", WAIT_SECS)
    finally:
        print(shown())
        site.tried(spark.client, "job", "kill", name, "-w", "0")  # it may have ended by itself
