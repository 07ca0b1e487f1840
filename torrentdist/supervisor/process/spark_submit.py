"""Builds the command of a Spark job's worker: spark-submit in client mode, in which the driver is
a process of this host, or in cluster mode on YARN.

Always: the supervisor can follow and end the driver. One in YARN has the tags of its run, and one
attempt. Executors get the job's files from the gateways of their own hosts, unless the job says
otherwise or the driver is in YARN.
Never: start anything.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec

from torrentdist.installed_spark import Submit
from torrentdist.model.ids import BundleId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.jobs.spark_job import Delivery
from torrentdist.supervisor.yarn.yarn_place import YarnPlace, tag_of_run

GATEWAY = "TORRENTDIST_GATEWAY"
TAGS = "spark.yarn.tags"
RUN_KEY = "spark.torrentdist.run"
"""The setting of Spark that holds the id of the driver's run."""


class ClusterDriver(msgspec.Struct, frozen=True):
    """What a driver in YARN is given."""

    tags: tuple[str, ...]
    """The tags by which its application is found."""
    environment: Mapping[str, str]


def cluster_driver(place: YarnPlace | None, fencing: int, env: Mapping[str, str]) -> ClusterDriver | None:
    """Returns what a run's driver is given, with what the driver should know of the environment of
    its submission."""
    if place is None:
        return None
    told = {name: env[name] for name in (GATEWAY, "TORRENTDIST_JOB", "TORRENTDIST_FENCING")}
    return ClusterDriver((place.tag, tag_of_run(place.tag, fencing)), told)


def spark_command(
    spec: JobSpec,
    bundle: BundleId,
    content: Path,
    gateway: str,
    submit: Submit,
    run: str,
    driver: ClusterDriver | None = None,
) -> list[str]:
    """Returns the command. `content` is the directory of the job's bundle.

    `gateway` is the URL of this host's gateway, which is the same on every host. `run`: the id of
    the run, by which the supervisor knows the driver's pages. `driver`: it runs in YARN, which
    takes all files from this host.
    """
    spark = spec.spark
    by_swarm = spark.delivery is Delivery.SWARM and not spark.is_local and driver is None

    def place(path: str) -> str:
        name, alias, rest = path.partition("#")
        where = f"{gateway}/bundles/{bundle}/files/{quote(name)}" if by_swarm else str(content / name)
        return where + alias + rest

    main, *arguments = spec.command
    options = ["--master", spark.master, "--deploy-mode", spark.deploy_mode]
    if spark.class_:
        options += ["--class", spark.class_]
    for name, paths in (("--py-files", spark.py_files), ("--archives", spark.archives), ("--jars", spark.packages)):
        if paths:
            options += [name, ",".join(map(place, paths))]
    for key, value in (*_conf(spec, gateway), *_in_yarn(spec, driver), (RUN_KEY, run)):
        options += ["--conf", f"{key}={value}"]
    # Executors need the jar of the main class, but only the driver needs the main Python file.
    return [submit.program, *options, place(main) if main.endswith(".jar") else str(content / main), *arguments]


def _in_yarn(spec: JobSpec, driver: ClusterDriver | None) -> Iterator[tuple[str, str]]:
    """Yields what makes an application that can be found, and that YARN does not start again."""
    if driver is None:
        return
    chosen = str(spec.spark.conf.get(TAGS, ""))
    yield TAGS, ",".join([*([chosen] if chosen else []), *driver.tags])
    yield "spark.yarn.maxAppAttempts", "1"
    yield "spark.yarn.submit.waitAppCompletion", "false"
    for name, text in driver.environment.items():
        yield f"spark.yarn.appMasterEnv.{name}", text


def _conf(spec: JobSpec, gateway: str) -> Iterator[tuple[str, str]]:
    ours = {"spark.app.name": spec.name, f"spark.executorEnv.{GATEWAY}": gateway}
    for key, value in (ours | spec.spark.conf).items():
        if key == TAGS and spec.drives_in_yarn:
            continue
        yield key, str(value).lower() if isinstance(value, bool) else str(value)
