"""Finds the spark-submit of this host, and reads the defaults of its configuration.

Always: SPARK_HOME decides; without it the PATH does, and last the installed pyspark.
Never: start anything.
"""

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torrentdist.model.errors import TorrentdistError


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


def spark_environment(environ: Mapping[str, str], submit: Submit) -> dict[str, str]:
    """Returns the environment variable that selects this Spark's Python, unless the job sets one
    itself."""
    chosen = "PYSPARK_PYTHON" in environ or "PYSPARK_DRIVER_PYTHON" in environ
    return {} if chosen or not submit.python else {"PYSPARK_PYTHON": submit.python}


def default_properties(environ: Mapping[str, str], submit: Submit) -> dict[str, str]:
    """Returns what this Spark's spark-defaults.conf says; nothing if there is no such file."""
    home = environ.get("SPARK_HOME") or str(Path(submit.program).resolve().parent.parent)
    return read_properties(Path(environ.get("SPARK_CONF_DIR") or f"{home}/conf") / "spark-defaults.conf")


def read_properties(path: Path) -> dict[str, str]:
    """Returns the properties of a file in Java's simple form; nothing if it cannot be read."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.replace("=", " ", 1).split(None, 1) for line in lines if line and line[0] not in "#!")
    return {pair[0]: pair[1].strip() if len(pair) > 1 else "" for pair in pairs}
