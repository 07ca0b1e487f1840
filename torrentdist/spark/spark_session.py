"""The Spark session of our commands: quiet, with the user's own configuration.

Always: a missing PySpark, Java or Spark master is an error that says what to do.
Never: import PySpark before it is known to be installed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from torrentdist.model.errors import TorrentdistError
from torrentdist.spark.spark_masters import require_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
OLDEST = 4
"""The first major version of Spark that can make a report."""
WRITERS = "spark.sql.maxConcurrentOutputFileWriters"
"""Set above the number of event kinds: a task then writes one file per kind without sorting its
rows."""
_FOR_FEW = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # A broadcast would be a job of its own; rows of a single partition are joined in place.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",
}
_BRIEF_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""For a JVM that lives for seconds: the optimising compiler costs more than it gains. A JVM without
it reserves 48 MB for compiled code instead of 240; Spark can fill that, and then fails."""
_JVM_OPTIONS = "spark.driver.extraJavaOptions"


def require_spark() -> None:
    if find_spec("pyspark") is None:
        raise TorrentdistError("missing_dependency", detail="this command needs PySpark", package="torrentdist[spark]")
    from pyspark.version import __version__ as version

    if int(version.partition(".")[0]) < OLDEST:
        detail = f"this command needs PySpark {OLDEST}.0 or later, and {version} is installed"
        raise TorrentdistError("missing_dependency", detail=detail, package="torrentdist[spark]")
    home = os.environ.get("JAVA_HOME")
    if not (home and (Path(home) / "bin" / "java").exists()) and shutil.which("java") is None:
        raise TorrentdistError("java_missing", what="Spark")


@contextlib.contextmanager
def spark_session(
    name: str, *, master: str = "", conf: Mapping[str, str] | None = None, log: bool = False, brief: bool = False
) -> Iterator[SparkSession]:
    """Starts a session and stops it at the end. `conf` overrides the user's spark-defaults.conf.

    `master`: by default the configured one, or all cores of this host. `log`: the JVM writes to
    stderr; otherwise its output is read only when it does not start. `brief`: prefer a quick start.
    """
    require_spark()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    master = master or (conf or {}).get("spark.master", "") or configured("spark.master") or LOCAL
    require_master(master)
    with tempfile.TemporaryDirectory(prefix="torrentdist-spark-") as work:
        options = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.master": master}
        # Otherwise Spark records the Python line of every column, which takes time.
        options["spark.python.sql.dataFrameDebugging.enabled"] = "false"
        if master.startswith("local["):
            options |= _for_this_machine(work)
        options |= {key: value for key, value in (conf or {}).items() if key != "spark.master"}
        if brief:
            options[_JVM_OPTIONS] = f"{_BRIEF_JVM} {options.get(_JVM_OPTIONS) or configured(_JVM_OPTIONS)}".strip()
        # Tables mean the same wherever they are made.
        options["spark.sql.session.timeZone"] = "UTC"
        # The type that Arrow writes: Arrow writes small reports, Spark large ones.
        options["spark.sql.parquet.outputTimestampType"] = "TIMESTAMP_MICROS"
        options.setdefault(WRITERS, "32")
        builder = SparkSession.builder.appName(name)
        for key, value in options.items():
            builder = builder.config(key, value)
        said = Path(work) / "spark.log"
        try:
            with contextlib.nullcontext() if log else _stderr_to(said):
                spark = builder.getOrCreate()
        except (PySparkException, RuntimeError, OSError) as exc:
            raise TorrentdistError("spark_failed", detail=_last_line(said) or str(exc)) from exc
        try:
            yield spark
        finally:
            spark.stop()


@contextlib.contextmanager
def suited_to_few(spark: SparkSession) -> Iterator[None]:
    """Sets options for few rows: compiling or replanning a query would take longer than running
    it."""
    before = {key: spark.conf.get(key, None) for key in _FOR_FEW}
    for key, value in _FOR_FEW.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


def configured(key: str) -> str:
    """Returns a setting of the user's spark-defaults.conf; empty if it is not set."""
    home = os.environ.get("SPARK_HOME", "")
    directory = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    defaults = Path(directory) / "spark-defaults.conf"
    if not directory or not defaults.is_file():
        return ""
    # Like java.util.Properties: blanks, = or : stand between a key and its value.
    found = re.findall(
        rf"(?m)^[ \t]*{re.escape(key)}(?:[ \t]*[=:][ \t]*|[ \t]+)(\S.*)", defaults.read_text(errors="replace")
    )
    return found[-1].strip() if found else ""


def _for_this_machine(work: str) -> dict[str, str]:
    """Returns options for a local session: shuffles for its cores, files in `work`, loopback
    only."""
    return {
        "spark.sql.shuffle.partitions": str(8 * (os.cpu_count() or 1)),
        "spark.local.dir": work,
        "spark.sql.warehouse.dir": f"{work}/warehouse",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Sends stderr to a file. Processes that start meanwhile keep it as their stderr."""
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    said = [line.strip() for line in lines if line.strip() and not line.startswith(("\t", "WARNING: Using incubator"))]
    return next((line for line in said if "Exception" in line or "rror" in line), said[-1] if said else "")
