"""Builds the command that runs a Spark job's driver on this host: spark-submit in client mode.

Always: the driver is a process of this host, so that the supervisor can follow and end it.
Executors get the job's files from the gateways of their own hosts, unless the job says otherwise.
Never: start anything.
"""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from torrentdist.installed_spark import Submit
from torrentdist.model.ids import BundleId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.jobs.spark_job import Delivery

GATEWAY = "TORRENTDIST_GATEWAY"
RUN_KEY = "spark.torrentdist.run"
"""The setting of Spark that holds the id of the driver's run."""


def spark_command(spec: JobSpec, bundle: BundleId, content: Path, gateway: str, submit: Submit, run: str) -> list[str]:
    """Returns the command. `content` is the directory of the job's bundle.

    `gateway` is the URL of this host's gateway, which is the same on every host. `run`: the id of
    the run, by which the supervisor knows the driver's pages.
    """
    spark = spec.spark
    by_swarm = spark.delivery is Delivery.SWARM and not spark.is_local

    def place(path: str) -> str:
        name, alias, rest = path.partition("#")
        where = f"{gateway}/bundles/{bundle}/files/{quote(name)}" if by_swarm else str(content / name)
        return where + alias + rest

    main, *arguments = spec.command
    options = ["--master", spark.master, "--deploy-mode", "client"]
    if spark.class_:
        options += ["--class", spark.class_]
    for name, paths in (("--py-files", spark.py_files), ("--archives", spark.archives), ("--jars", spark.packages)):
        if paths:
            options += [name, ",".join(map(place, paths))]
    for key, value in (*_conf(spec, gateway), (RUN_KEY, run)):
        options += ["--conf", f"{key}={value}"]
    # Executors need the jar of the main class, but only the driver needs the main Python file.
    return [submit.program, *options, place(main) if main.endswith(".jar") else str(content / main), *arguments]


def _conf(spec: JobSpec, gateway: str) -> Iterator[tuple[str, str]]:
    ours = {"spark.app.name": spec.name, f"spark.executorEnv.{GATEWAY}": gateway}
    for key, value in (ours | spec.spark.conf).items():
        yield key, str(value).lower() if isinstance(value, bool) else str(value)
