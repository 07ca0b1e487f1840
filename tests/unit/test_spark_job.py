"""Jobs of kind spark: the contents of job.toml, and the resulting command."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from torrentdist.client.job_client import read_job
from torrentdist.installed_spark import Submit, find_submit, spark_environment
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.jobs.job import JobSpec, parse_job
from torrentdist.model.jobs.job_overrides import with_overrides
from torrentdist.supervisor.process.spark_applications import listening, listening_user, reason_in
from torrentdist.supervisor.process.spark_submit import ClusterDriver, spark_command

JOB = """
name = "daily"
kind = "spark"
command = ["app.py", "--day", "monday"]
{top}
[spark]
master = "spark://m:7077"
py_files = ["lib.zip"]
archives = ["env v2.tar.gz#env"]
packages = ["jars/a.jar", "jars/b.jar"]
conf = {{ "spark.executor.memory" = "2g", "spark.sql.adaptive.enabled" = false }}
{spark}
"""
GATEWAY = "http://127.0.0.1:7070"


def job(top: str = "", spark: str = "") -> JobSpec:
    return parse_job(JOB.format(top=top, spark=spark), origin="job.toml")


def command(spec: JobSpec) -> list[str]:
    return spark_command(
        spec, BundleId("b-1"), Path("/w/bundle"), GATEWAY, Submit("/spark/bin/spark-submit", ""), "run-1"
    )


def after(option: str, argv: list[str]) -> str:
    return argv[argv.index(option) + 1]


def test_executors_get_the_files_from_their_own_hosts() -> None:
    """The driver would serve the bundle to every executor."""
    argv = command(job())

    assert ["/spark/bin/spark-submit", "--master", "spark://m:7077", "--deploy-mode", "client"] == argv[:5]
    assert f"{GATEWAY}/bundles/b-1/files/lib.zip" == after("--py-files", argv)
    assert f"{GATEWAY}/bundles/b-1/files/env%20v2.tar.gz#env" == after("--archives", argv)
    assert ["/w/bundle/app.py", "--day", "monday"] == argv[-3:]
    assert {"spark.executor.memory=2g", "spark.sql.adaptive.enabled=false", "spark.app.name=daily"} <= set(argv)


@pytest.mark.parametrize(("master", "delivery"), [("local[*]", "swarm"), ("spark://m:7077", "driver")])
def test_where_no_gateway_is_needed_the_files_are_local(master: str, delivery: str) -> None:
    """A cluster whose hosts have no supervisor could run no Spark jobs."""
    argv = command(with_overrides(job(), None, None, {"spark.master": master, "spark.delivery": delivery}))

    assert "/w/bundle/jars/a.jar,/w/bundle/jars/b.jar" == after("--jars", argv)


def test_a_main_class_comes_in_its_jar() -> None:
    """Executors would lack the classes of the application itself."""
    spec = parse_job(
        JOB.format(top="", spark='class = "org.acme.Main"').replace("app.py", "app.jar"), origin="job.toml"
    )
    argv = command(spec)

    assert "org.acme.Main" == after("--class", argv)
    assert f"{GATEWAY}/bundles/b-1/files/app.jar" == argv[-3]


def test_a_flag_may_set_a_key_of_sparks() -> None:
    """Dots in Spark's keys would count as tables of job.toml."""
    spec = with_overrides(job(), None, None, {"spark.conf.spark.executor.memory": "4g"})

    assert "spark.executor.memory=4g" in command(spec)


YARN = """
name = "daily"
kind = "spark"
command = ["app.py"]
[spark]
master = "yarn"
deploy_mode = "cluster"
py_files = ["lib.zip"]
conf = { "spark.yarn.tags" = "team-7" }
"""


def test_a_driver_in_yarn_has_the_tags_of_its_run_and_one_attempt() -> None:
    """If this fails, a driver in YARN is not found by its supervisor, or YARN itself starts it
    again."""
    driver = ClusterDriver(("torrentdist:daily-1", "torrentdist:daily-1:7"), {"TORRENTDIST_FENCING": "7"})
    submit, spec = Submit("/spark/bin/spark-submit", ""), parse_job(YARN, origin="job.toml")
    argv = spark_command(spec, BundleId("b-1"), Path("/w/bundle"), GATEWAY, submit, "run-1", driver)

    assert "cluster" == after("--deploy-mode", argv)
    assert "/w/bundle/lib.zip" == after("--py-files", argv)  # YARN has no gateway to take it from
    assert ["spark.yarn.tags=team-7,torrentdist:daily-1,torrentdist:daily-1:7"] == [
        part for part in argv if part.startswith("spark.yarn.tags=")
    ]
    assert {
        "spark.yarn.maxAppAttempts=1",
        "spark.yarn.submit.waitAppCompletion=false",
        "spark.yarn.appMasterEnv.TORRENTDIST_FENCING=7",
    } <= set(argv)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"yarn"', '"spark://m:7077"', "deploy_mode: cluster is for master"),
        ("spark.yarn.tags", "spark.yarn.maxAppAttempts", "torrentdist sets it"),
        ("spark.yarn.tags", "spark.yarn.submit.waitAppCompletion", "torrentdist sets it"),
        ("[spark]", "heartbeat_secs = 5\n[spark]", "heartbeat_secs"),
        ('"cluster"', '"remote"', "one of client, cluster"),
    ],
)
def test_what_no_driver_in_yarn_can_have_is_refused(old: str, new: str, complaint: str) -> None:
    """If this fails, a driver in YARN runs twice, or is ended for its silence."""
    with pytest.raises(TorrentdistError, match=complaint):
        parse_job(YARN.replace(old, new), origin="job.toml")


def test_a_job_that_drives_here_is_written_as_older_releases_read_it() -> None:
    """If this fails, a master of the last release cannot read any job during an upgrade."""
    assert b"deploy_mode" not in msgspec.json.encode(job())


@pytest.mark.parametrize(
    ("top", "spark", "complaint"),
    [
        ("workers = 2", "", "a Spark job has one worker, which is its driver"),
        ("resources = { memory_bytes = 5 }", "", "spark.driver.memory"),
        ("", 'class = "org.acme.Main"', "is in a jar"),
        ("", 'delivery = "pigeon"', "pigeon"),
        ("", "clas = 'x'", "clas"),
    ],
)
def test_what_no_spark_job_can_have_is_refused_with_the_reason(top: str, spark: str, complaint: str) -> None:
    """The job would fail on some host, or do all its work twice."""
    with pytest.raises(TorrentdistError, match=complaint):
        job(top, spark)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("py_files", "../lib.zip", "no file of the bundle"),
        ("archives", "http://elsewhere/env.tar.gz", "no file of the bundle"),
        ("packages", "org.acme:lib:1.0", "does not end with .jar"),
        ("packages", "a.jar,b.jar", "no file of the bundle"),
        ("conf", {"spark.submit.deployMode": "cluster"}, "said by `deploy_mode`"),
        ("conf", {"spark.master": "x"}, "said by `master`"),
        ("conf", {"log.level": "x"}, "no key of Spark's"),
    ],
)
def test_what_it_names_are_files_of_its_bundle(key: str, value: object, complaint: str) -> None:
    """A job would run on content that nobody has replicated."""
    given = repr(value).replace("': '", "'='") if isinstance(value, dict) else f"[{value!r}]"
    text = f"name = 'n'\nkind = 'spark'\ncommand = ['app.py']\n[spark]\n{key} = {given}\n"

    with pytest.raises(TorrentdistError, match=complaint):
        parse_job(text, origin="job.toml")


def test_a_file_that_is_missing_is_named_before_the_upload(tmp_path: Path) -> None:
    """The user would learn of a missing file from a driver's log."""
    (tmp_path / "job.toml").write_text(JOB.format(top="", spark=""))
    (tmp_path / "app.py").touch()

    with pytest.raises(TorrentdistError, match=r"py_files: there is no lib\.zip in the bundle"):
        read_job(tmp_path)


def test_the_spark_that_is_chosen_is_used(tmp_path: Path) -> None:
    """A job would run on another release of Spark than the operator installed."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/spark-submit").touch(mode=0o755)

    program = str(tmp_path / "bin/spark-submit")

    assert Submit(program, "") == find_submit({"SPARK_HOME": str(tmp_path)})
    assert Submit(program, "") == find_submit({"PATH": str(tmp_path / "bin")})
    assert sys.executable == find_submit({"PATH": "/nowhere"}).python  # of the pyspark beside us
    with pytest.raises(TorrentdistError, match="has no bin/spark-submit"):
        find_submit({"SPARK_HOME": "/nowhere"})


def test_a_chosen_python_is_left_alone() -> None:
    """A job's own environment would be ignored."""
    assert {} == spark_environment({"PYSPARK_PYTHON": "env/bin/python"}, Submit("/v/bin/spark-submit", "/v/bin/python"))
    assert {} == spark_environment({}, Submit("/opt/spark/bin/spark-submit", ""))
    assert {"PYSPARK_PYTHON": "/v/bin/python"} == spark_environment({}, Submit("/v/bin/spark-submit", "/v/bin/python"))


def test_a_process_of_any_name_has_its_ports() -> None:
    """A driver could end the supervisor of each host that it comes to by its process's name."""
    named = "open('/proc/self/comm', 'wb').write(b'\\xff')"
    program = f"import socket, sys; {named}; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1])"
    command = [sys.executable, "-uc", f"{program}; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        found = listening_user(process.pid)
        process.kill()

    assert ("127.0.0.1", port) in found


def test_the_ports_of_a_process_are_its_own() -> None:
    """One driver's pages would be shown as another's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        assert ("127.0.0.1", port) in (listening(os.getpid()) or [])
        assert ("127.0.0.1", port) not in (listening(os.getppid()) or [])
    assert [] == listening(2**22 + 1)
    assert [] == listening_user(2**22 + 1)  # otherwise the supervisor logs a bug of its own


PYTHON_SAYS = """25/11/21 18:00:00 INFO SparkContext: Running Spark version 4.0.0
Traceback (most recent call last):
  File "app.py", line 3, in <module>
py4j.protocol.Py4JJavaError: An error occurred while calling o20.load.
: java.io.FileNotFoundException: http://127.0.0.1:7070/error/bundle_not_found/there_is_no_bundle
\tat java.base/Main
Caused by: org.apache.spark.SparkException: the first cause
\t... 7 more

25/11/21 18:00:01 ERROR Utils: Error while running: ValueError: no line of its own
"""


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        (PYTHON_SAYS, "org.apache.spark.SparkException: the first cause"),
        (
            "Traceback:\nValueError: 3 < 2\n25/11/21 INFO ShutdownHookManager: Shutdown hook called\n",
            "ValueError: 3 < 2",
        ),
        (
            'Exception in thread "main" a.b.C$DException: When running with yarn',
            "a.b.C$DException: When running with yarn",
        ),
        (
            "ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are unresponsive!\n"
            "java.lang.IllegalStateException: Spark context stopped while waiting for backend\n",
            "All masters are unresponsive!",
        ),
        ("WARNING: Using incubator modules\nKeyError\n", "KeyError"),
        ("Error is a word, Exception too", ""),
        ("", ""),
    ],
)
def test_what_a_driver_failed_of_is_what_it_says_last(stderr: str, expected: str) -> None:
    """If this fails, a user who asks why a Spark job failed gets a number."""
    assert expected == reason_in(stderr)
