"""What a user of YARN reads when a host can't give an executor its bundle."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from engines.engine_hosts import EngineLab
from engines.failing_applications import WAIT_SECS, WAITS, upload_environment, write_program
from engines.hadoop import Hadoop
from engines.spark_programs import Ended, SparkPrograms
from engines.torrentdist_site import IDS_DIR, TorrentdistSite

from bench.lab.namespaces import wait_until


@pytest.fixture(scope="module")
def program(spark: SparkPrograms) -> str:
    return write_program(spark)


def submit(site: TorrentdistSite, spark: SparkPrograms, program: str, bundle: str) -> Ended:
    own = site.of_user("spark-submit", "--label", "kind=w", "--env", bundle)
    return spark.submit(spark.yarn_options(3), [program], program=own)


def told(lab: EngineLab, hadoop: Hadoop) -> str:
    """Returns what the file `torrentdist` of each container says."""
    files = [path for host in hadoop.workers for path in (lab.srv(host) / "yarn/logs").glob("*/*/torrentdist")]
    return "\n".join(path.read_text() for path in files)


def test_an_executor_on_yarn_says_why_it_waits_and_goes_on(
    engine_lab: EngineLab, hadoop: Hadoop, site: TorrentdistSite, spark: SparkPrograms, program: str
) -> None:
    """If this fails, an application on YARN stands still, and the file of docs/spark.md does not
    say why. It takes long: Spark starts on all hosts."""
    upload_environment(site, spark, "yarn-env-b")
    *_, down = hadoop.workers
    waits = f"{WAITS} bundle yarn-env-b"
    engine_lab.kill(site.process(down))
    with ThreadPoolExecutor(1) as aside:
        running = aside.submit(submit, site, spark, program, "yarn-env-b")
        try:
            wait_until(lambda: running.done() or waits in told(engine_lab, hadoop), "a word", WAIT_SECS)
            said = told(engine_lab, hadoop)
        finally:
            site.restart(down)
        ended = running.result()

    assert f"{waits}: the supervisor of this host does not answer at 127.0.0.1:7070" in said
    assert ended.code == 0, ended.output[-4000:]
    assert [host.name for host in hadoop.workers] == ended.answer


def test_a_host_of_yarn_without_a_supervisor_is_named(
    engine_lab: EngineLab, hadoop: Hadoop, site: TorrentdistSite, spark: SparkPrograms, program: str
) -> None:
    """If this fails, an operator who forgot a host searches for it. It takes long: Spark starts on
    all hosts."""
    upload_environment(site, spark, "yarn-env-d")
    bare = hadoop.workers[-1]
    engine_lab.kill(site.process(bare))
    shutil.rmtree(engine_lab.srv(bare) / "torrentdist")
    try:
        ended = submit(site, spark, program, "yarn-env-d")
    finally:
        site.restart(bare)
    lost = [line for line in ended.output.splitlines() if f'Cannot run program "{IDS_DIR}.spark/python"' in line]

    assert lost, ended.output[-6000:]
    assert any(bare.name in line for line in lost)
