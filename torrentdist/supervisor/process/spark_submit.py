"""Builds the command that runs a Spark job's driver on this host: spark-submit in client mode.

Always: the driver is a process of this host, so that the supervisor can follow and end it.
Executors get the job's files from the gateways of their own hosts, unless the job says otherwise.
Never: start anything.
"""

import importlib.util
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.jobs.spark_job import Delivery

GATEWAY = "TORRENTDIST_GATEWAY"
RUN_KEY = "spark.torrentdist.run"
"""The setting of Spark that holds the id of the driver's run."""


class Submit(NamedTuple):
    program: str
    python: str
    """Python interpreter that spark-submit was installed with; empty if it has none."""


def find_submit(environ: Mapping[str, str]) -> Submit:
    """Returns the spark-submit in SPARK_HOME, else the one on the PATH, else that of the installed
    pyspark."""
    home = environ.get("SPARK_HOME")
    if home and (Path(home) / "bin/spark-submit").is_file():
        return Submit(str(Path(home) / "bin/spark-submit"), "")
    found = None if home else shutil.which("spark-submit", path=environ.get("PATH"))
    if found:
        python = Path(found).parent / "python"
        return Submit(found, str(python) if python.exists() else "")
    spec = None if home else importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        return Submit(str(Path(spec.origin).parent / "bin/spark-submit"), sys.executable)
    detail = f"SPARK_HOME is {home}, and has no bin/spark-submit" if home else "this host has no spark-submit"
    raise TorrentdistError("missing_dependency", detail=detail, package="torrentdist[spark]")


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


def spark_environment(environ: Mapping[str, str], submit: Submit) -> dict[str, str]:
    """Returns the environment variable that selects this Spark's Python, unless the job sets one
    itself."""
    chosen = "PYSPARK_PYTHON" in environ or "PYSPARK_DRIVER_PYTHON" in environ
    return {} if chosen or not submit.python else {"PYSPARK_PYTHON": submit.python}
