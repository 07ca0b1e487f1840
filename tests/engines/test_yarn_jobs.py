"""Jobs whose driver runs in YARN, while submitters, supervisors and ResourceManagers die. What the
drivers write shows that they never run twice."""

from __future__ import annotations

import contextlib
import json
import os
import signal

from engines.engine_hosts import EngineLab
from engines.hadoop import Hadoop
from engines.spark_programs import SparkPrograms
from engines.torrentdist_site import TorrentdistSite
from engines.yarn_jobs import END_SECS, START_SECS, YarnJob

from bench.lab.namespaces import wait_until


def test_a_driver_survives_its_submitter_and_the_resource_manager(
    engine_lab: EngineLab, hadoop: Hadoop, site: TorrentdistSite, spark: SparkPrograms
) -> None:
    """If this fails, a job is submitted again, or counts as ended, because the process that
    submitted it was killed or YARN's head was restarted. It takes long: Spark starts in YARN."""
    job = YarnJob(engine_lab, hadoop, site, spark, "outlives")
    job.submit()
    wait_until(lambda: bool(job.worker()["pid"]), "the process that submits", START_SECS)
    submitter = job.worker()["pid"]
    wait_until(lambda: bool(job.applications()), "the submission", START_SECS)
    with contextlib.suppress(ProcessLookupError):  # it ends by itself at about this moment
        os.kill(submitter, signal.SIGKILL)
    job.wait_for("works")
    [application] = job.applications()
    wait_until(lambda: job.worker()["application"] == application["id"], "its id", END_SECS)
    page = job.worker()["ui"]
    engine_lab.end(f"resourcemanager-{hadoop.head.name}")
    wait_until(lambda: "YARN cannot be asked" in job.worker()["detail"], "that YARN is silent", END_SECS)
    while_silent = job.worker()
    hadoop.start_daemon("resourcemanager", hadoop.head)
    wait_until(lambda: not job.worker()["detail"], "YARN's answer", END_SECS)
    (job.home / "go").touch()
    job.wait_for_state("finished")

    assert (application["id"], "running") == (while_silent["application"], while_silent["state"])
    assert application["id"] in page
    assert ["began", "works", "ends"] == job.words()
    assert [application["id"]] == [each["id"] for each in job.applications()]


def test_a_driver_is_adopted_replaced_and_killed_but_never_doubled(
    engine_lab: EngineLab, hadoop: Hadoop, site: TorrentdistSite, spark: SparkPrograms
) -> None:
    """If this fails, a restarted supervisor loses its driver, a lost host's driver runs on beside
    its successor, or `job kill` leaves one in YARN. It takes long: Spark starts in YARN twice."""
    job = YarnJob(engine_lab, hadoop, site, spark, "adopted")
    job.submit()
    job.wait_for("works")
    host = engine_lab.named(job.worker()["supervisor"])
    site.restart(host)
    wait_until(lambda: job.worker()["state"] == "running" and job.worker()["application"], "its adoption", END_SECS)
    adopted = job.worker()["application"]
    engine_lab.kill(site.process(host))
    try:
        job.wait_for("works", times=2)
        site.command(spark.client, "job", "kill", job.name, "-w", "0")
        wait_until(lambda: not any(job.name == each["name"] for each in _jobs(site, spark)), "the job's end", END_SECS)
        wait_until(lambda: not any(each["state"] == "RUNNING" for each in job.applications()), "a kill", END_SECS)
        states = [each["state"] for each in job.applications()]
    finally:
        site.restart(host)

    assert job.applications()[0]["id"] == adopted
    assert {"KILLED"} == set(states)
    assert {"began", "works"} == set(job.words())
    numbers = [int(number) for word, number in job.lines() if word == "began"]
    assert sorted(set(numbers)) == numbers


def _jobs(site: TorrentdistSite, spark: SparkPrograms) -> list[dict[str, object]]:
    listed = site.tried(spark.client, "job", "ls")
    assert listed.returncode == 0, listed.stderr
    found: list[dict[str, object]] = json.loads(listed.stdout)
    return found
