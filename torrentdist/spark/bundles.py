"""Bundles in PySpark: `add_bundle` brings one to all executors' hosts, `bundle_path` finds it
there.

Always: every host gets a bundle's bytes once, from the swarm, and not through the driver.
Never: import PySpark at the top, because `bundle_path` works in any program.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.spark.gateway_calls import DEFAULT, VARIABLE, fetch_here, gateway_url, is_readable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FETCH_SECS = 3600.0
TASKS_PER_EXECUTOR = 4
TASKS_PER_CORE = 2
MOST_CORES = 4096
"""Most processors that are looked for with Spark Connect."""
TOLD = "torrentdist answered: "
"""Marks the gateway's answer in the text of a failed task."""
_EXTENSIONS = (".so", ".pyd")

_known: dict[str, Path] = {}


def bundle_path(bundle: str, *, gateway: str | None = None, timeout: float = FETCH_SECS) -> Path:
    """Returns a bundle's directory on this host, and fetches the bundle first if it is not here.

    It works in a driver, a task or any other program. The directory is read-only. `gateway`: URL of
    this host's gateway; by default TORRENTDIST_GATEWAY, or the usual port on loopback.
    """
    ids.bundle_id(bundle)
    found = _known.get(bundle) or _told_by_spark(bundle)
    if found is None or not is_readable(found):
        found = fetch_here(bundle, gateway_url(gateway), timeout)
    _known[bundle] = found
    return found


def add_bundle(
    spark: SparkSession,
    bundle: str,
    *,
    python: bool = False,
    gateway: str | None = None,
    timeout: float = FETCH_SECS,
) -> None:
    """Brings a bundle to the hosts of all executors before their tasks run, also of later
    executors.

    `python`: tasks can import the bundle's packages. With Spark Connect, later executors fetch the
    bundle when they first ask for its path, and packages travel from here through the server.
    """
    ids.bundle_id(bundle)
    url = gateway_url(gateway)
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        _add_by_connect(spark, bundle, url, python, timeout)
        return
    where = bundle_path(bundle, gateway=url, timeout=timeout)  # an error appears here, before any executor fails
    if python:
        _refuse_extensions(bundle, where)
        spark.sparkContext.addPyFile(f"{url}/bundles/{bundle}/{bundle}.py.zip")
    spark.sparkContext.addFile(f"{url}/bundles/{bundle}/local/{_ticket(bundle)}")
    _warm(spark)


def _ticket(bundle: str) -> str:
    """Names a file that Spark gives to executors. It exists once the bundle is on the host, and
    holds its path."""
    return f"{bundle}.torrentdist.json"


def _told_by_spark(bundle: str) -> Path | None:
    import sys

    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkFiles

    try:
        told = json.loads(Path(SparkFiles.get(_ticket(bundle))).read_text())
        return Path(told["path"])
    except (OSError, ValueError, KeyError, AssertionError, AttributeError, TypeError):
        return None  # the bundle was not added, or this is not a Spark process: the gateway knows


def _refuse_extensions(bundle: str, where: Path) -> None:
    for folder, _, names in os.walk(where):
        for name in names:
            if name.endswith(_EXTENSIONS):
                at = os.path.relpath(os.path.join(folder, name), where)
                detail = (
                    f"{bundle} has compiled modules ({at}), which Python cannot import from an archive: "
                    f"insert bundle_path({bundle!r}) into sys.path in the task instead"
                )
                raise TorrentdistError("usage", detail=detail)


def _warm(spark: SparkSession) -> None:
    """Runs tasks on every executor, because an executor gets new files with its next task."""
    jvm_context: Any = spark.sparkContext._jsc.sc()
    tasks = TASKS_PER_EXECUTOR * int(jvm_context.getExecutorMemoryStatus().size())
    spark.range(0, tasks, 1, tasks).write.format("noop").mode("overwrite").save()


def _add_by_connect(spark: SparkSession, bundle: str, url: str, python: bool, timeout: float) -> None:
    from pyspark.errors import PySparkException

    def fetch(batches: Iterator[Any]) -> Iterator[Any]:
        # Only the standard library: this function is pickled and sent to the task.
        import json as in_task
        import os as system
        import urllib.error
        import urllib.request

        base = system.environ.get(VARIABLE) or url
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{base}/bundles/{bundle}/local/{bundle}", timeout=60) as answer:
                path = in_task.load(answer)["path"]
        except urllib.error.HTTPError as refused:
            raise RuntimeError(TOLD + refused.read().decode(errors="replace")) from None
        except OSError as exc:
            told = {"error": "supervisor_unreachable", "fields": {"url": base, "detail": str(exc)}}
            raise RuntimeError(TOLD + in_task.dumps(told)) from None
        if not python and not system.access(path, system.R_OK | system.X_OK):
            told = {"error": "not_a_reader", "fields": {"user": system.getuid()}}
            raise RuntimeError(TOLD + in_task.dumps(told))
        yield from batches

    if python:
        where = bundle_path(bundle, gateway=url, timeout=timeout)
        _refuse_extensions(bundle, where)
        _send_packages(spark, bundle, url)
    try:
        wanted = TASKS_PER_CORE * processors(spark)
        tasks = spark.range(0, wanted, 1, wanted)
        tasks.mapInArrow(fetch, tasks.schema).write.format("noop").mode("overwrite").save()
    except PySparkException as exc:
        raise error_in(str(exc)) or exc from None


def processors(spark: SparkSession) -> int:
    """Returns the number of processors of the executors. Connect does not tell it; but a range has
    as many partitions, unless it is told otherwise, and counting them starts no Python."""
    from pyspark.sql import functions

    parts = spark.range(0, MOST_CORES).select(functions.spark_partition_id().alias("part"))
    return int(parts.agg(functions.max("part")).collect()[0][0]) + 1


def error_in(text: str) -> TorrentdistError | None:
    """Finds the gateway's error in the text that Spark reports for a failed task."""
    _, found, rest = text.partition(TOLD)
    try:
        return TorrentdistError.from_wire(json.JSONDecoder().raw_decode(rest)[0]) if found else None
    except (ValueError, AttributeError):
        return None


def _send_packages(spark: SparkSession, bundle: str, url: str) -> None:
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{bundle}.zip")
        with opener.open(f"{url}/bundles/{bundle}/{bundle}.zip", timeout=60) as answer:
            path.write_bytes(answer.read())
        spark.addArtifacts(str(path), pyfile=True)


__all__ = ["DEFAULT", "VARIABLE", "add_bundle", "bundle_path"]
