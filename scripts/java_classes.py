"""Archives of the classes that an embedded ZooKeeper and Spark load, which Java maps instead of
parsing them again: both start in half the time.

Always: Java itself checks an archive against the jars, and ignores one that does not fit. Never:
needed; both also start without one. `make setup` makes them, since a packaged installation may not
be writable.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from torrentdist.dev.embedded_zookeeper import CLASSES, ZooKeeperServer, wait_until_serving
from torrentdist.host.process.listening_sockets import free_ports

SPARK_CLASSES = CLASSES.with_name("spark.jsa")
"""The classes of a Spark driver. An executor, a worker and a master of Spark have the same
classpath."""

PROGRAM = """
import pyspark.sql
spark = pyspark.sql.SparkSession.builder.getOrCreate()
spark.sparkContext.parallelize(range(2), 2).map(lambda n: n).collect()
spark.range(2).selectExpr("sum(id)").collect()
spark.stop()
"""
"""It uses what most programs of Spark use."""


def make_zookeeper_archive(timeout: float = 60.0) -> None:
    """Starts a server once, and lets it leave the archive when it ends."""
    with _place(CLASSES) as made:
        server = ZooKeeperServer(made.parent, free_ports(1)[0])
        server.spawn(f"-XX:ArchiveClassesAtExit={made}")
        try:
            wait_until_serving([server], timeout)
        finally:
            server.stop(timeout)


def make_spark_archive(timeout: float = 600.0) -> None:
    """Runs a small program with Spark once, and lets its driver leave the archive."""
    from pyspark.find_spark_home import _find_spark_home

    with _place(SPARK_CLASSES) as made:
        (made.parent / "program.py").write_text(PROGRAM)
        quick = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -XX:ArchiveClassesAtExit={made}"
        conf = {"ui.enabled": "false", "driver.memory": "512m", "driver.extraJavaOptions": quick}
        options = [part for key, value in conf.items() for part in ("--conf", f"spark.{key}={value}")]
        command = [f"{_find_spark_home()}/bin/spark-submit", "--master", "local[1]", *options, "program.py"]
        env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        subprocess.run(command, cwd=made.parent, env=env, capture_output=True, timeout=timeout, check=True)


@contextlib.contextmanager
def _place(archive: Path) -> Iterator[Path]:
    """Yields a path in a directory that is soon gone, and then moves what was made there to
    `archive`."""
    with tempfile.TemporaryDirectory(prefix="torrentdist-classes-") as directory:
        made = Path(directory) / archive.name
        yield made
        archive.parent.mkdir(parents=True, exist_ok=True)
        beside = archive.with_suffix(f".{os.getpid()}")
        shutil.copy(made, beside)
        beside.replace(archive)


if __name__ == "__main__":
    for archive, make in ((CLASSES, make_zookeeper_archive), (SPARK_CLASSES, make_spark_archive)):
        if not archive.exists():
            make()
