"""The `[spark]` table of a job.toml, and the rules for a Spark job.

Always: everything that it names is a file of its own bundle.
Never: look into the bundle.
"""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import PurePosixPath

import msgspec

UI_PORT = 4040
"""Spark's default port for its web page."""
OURS_IN_YARN = ("spark.yarn.maxAppAttempts", "spark.yarn.submit.waitAppCompletion")
"""Settings that a driver in YARN has from us."""
MAIN_KINDS = (".py", ".jar")
PYTHON_KINDS = (".py", ".zip", ".egg")
ONE_WORKER = (
    "a Spark job has one worker, which is its driver: two would be two applications that do everything twice. "
    "How many executors there are is said by spark.executor.instances or spark.cores.max in [spark] conf"
)
ARCHIVE_KINDS = (".zip", ".jar", ".tar", ".tar.gz", ".tgz")


class Delivery(StrEnum):
    """How executors get the job's files."""

    SWARM = "swarm"
    """Each executor fetches from the gateway of its own host."""
    DRIVER = "driver"
    """The driver sends files in Spark's own way, for clusters whose hosts have no supervisor."""


class DeployMode(StrEnum):
    """Where the driver runs."""

    CLIENT = "client"
    """As a process of the job's worker."""
    CLUSTER = "cluster"
    """In YARN. The worker submits it and follows it there."""


class SparkSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    master: str = "local[*]"
    deploy_mode: DeployMode = DeployMode.CLIENT
    class_: str = msgspec.field(name="class", default="")
    """The main class; then the job's command begins with its jar."""
    conf: dict[str, str | int | float | bool] = {}
    py_files: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    """Archives. Each may end with `#NAME`, the directory into which it is unpacked."""
    packages: tuple[str, ...] = ()
    """Paths of jars."""
    delivery: Delivery = Delivery.SWARM

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one process."""
        return self.master == "local" or self.master.startswith("local[")

    @property
    def ui_port(self) -> int:
        """The first port that the driver's web page tries."""
        said = str(self.conf.get("spark.ui.port", ""))
        return int(said) if re.fullmatch("[0-9]{1,5}", said) else UI_PORT


def files_of(command: Sequence[str], spark: SparkSpec) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yields (key, path, permitted endings) for every file of the bundle that a Spark job names."""
    if command:
        yield "command", command[0], MAIN_KINDS
    for key, paths, kinds in (
        ("py_files", spark.py_files, PYTHON_KINDS),
        ("archives", spark.archives, ARCHIVE_KINDS),
        ("packages", spark.packages, (".jar",)),
    ):
        for path in paths:
            yield key, path.partition("#")[0], kinds


def _problems_in_yarn(spark: SparkSpec) -> Iterator[tuple[str, str]]:
    if spark.master != "yarn":
        yield "deploy_mode", 'cluster is for master = "yarn", whose ResourceManager tells how a driver fares'
    for key in OURS_IN_YARN:
        if key in spark.conf:
            yield "conf", f"{key}: torrentdist sets it, so that the job never runs twice"


def spark_problems(
    command: Sequence[str], workers: int, memory_bytes: int, spark: SparkSpec
) -> Iterator[tuple[str, str]]:
    """Yields (key, problem) for every value that a Spark job cannot have."""
    if not command:
        yield "command", "a job of kind spark needs its main file, a .py or .jar of the bundle, and its arguments"
    if workers != 1:
        yield "workers", ONE_WORKER
    if memory_bytes:
        yield "memory_bytes", "a JVM needs more addresses than memory; say spark.driver.memory in [spark] conf"
    if spark.class_ and command and not command[0].endswith(".jar"):
        yield "class", f"is in a jar, and the command begins with {command[0]}"
    if not spark.master or spark.master.startswith("-"):
        yield "master", f"{spark.master!r} is no master of Spark"
    if "spark.submit.deployMode" in spark.conf:
        yield "conf", "spark.submit.deployMode: it is said by `deploy_mode`, client or cluster"
    if spark.deploy_mode is DeployMode.CLUSTER:
        yield from _problems_in_yarn(spark)
    if "spark.master" in spark.conf:
        yield "conf", "spark.master: it is said by `master`"
    for name in spark.conf:
        if not name.startswith("spark.") or "=" in name:
            yield "conf", f"{name!r} is no key of Spark's"
    for key, path, kinds in files_of(command, spark):
        parts = PurePosixPath(path).parts
        if "://" in path or path.startswith(("/", "-")) or ".." in parts or "," in path or not parts:
            yield key, f"{path!r} is no file of the bundle"
        elif not path.endswith(kinds):
            yield key, f"{path} does not end with {', '.join(kinds)}"
