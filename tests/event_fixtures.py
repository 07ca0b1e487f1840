"""One Spark session for the whole ring, because starting one takes longer than most of its
tests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scripts.java_classes import SPARK_CLASSES
from torrentdist.spark.spark_session import spark_session, suited_to_few

if TYPE_CHECKING:  # the other rings do not need to import it
    from pyspark.sql import SparkSession

    from torrentdist.spark.reporting.arrivals import Frames

Events = Callable[..., "Frames"]


@pytest.fixture(scope="session")
def local_spark() -> Iterator[SparkSession]:
    conf = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g", "spark.sql.adaptive.enabled": "true"}
    if SPARK_CLASSES.exists():
        conf["spark.driver.extraJavaOptions"] = f"-XX:SharedArchiveFile={SPARK_CLASSES} -Xlog:disable"
    with spark_session("tests", master="local[2]", conf=conf, brief=True) as session:
        yield session


@contextlib.contextmanager
def small_data(spark: SparkSession) -> Iterator[SparkSession]:
    """Sets Spark up as our own commands do for a few lines."""
    with suited_to_few(spark):
        yield spark


def line(event: str, **fields: Any) -> dict[str, Any]:
    """Returns an event as a daemon writes it, with the given fields."""
    about = {"v": 1, "node": "h1", "role": "supervisor", "rack": "a", "run": "r", "at": 100.0, "clock": 0.0}
    return {**about, "event": event, **fields}


def write_lines(directory: Path, lines: list[dict[str, Any] | str], name: str = "events-1.jsonl") -> Path:
    """Writes the lines into a file. Each gets a number of its own unless it has one."""
    directory.mkdir(parents=True, exist_ok=True)
    texts = [text if isinstance(text, str) else json.dumps({"seq": n, **text}) for n, text in enumerate(lines)]
    (directory / name).write_text("\n".join(texts) + "\n")
    return directory


@pytest.fixture
def events(local_spark: SparkSession, tmp_path: Path) -> Iterator[Events]:
    """Reads lines as the tables want them: valid, with ZooKeeper's time, each once. The frames are
    kept as those of a small report are, because the plan of a table would otherwise hold theirs
    many times."""

    from torrentdist.model.events import NAMES
    from torrentdist.spark.reporting.arrivals import Frames
    from torrentdist.spark.reporting.event_reading import clocks, read_lines, timed, unique, usable

    kept: list[Frames] = []

    def make(*lines: dict[str, Any] | str) -> Frames:
        found = usable(read_lines(local_spark, str(write_lines(tmp_path / "events", list(lines)))))
        events = unique(timed(found, clocks(found)), NAMES).coalesce(1).persist()
        kept.append(Frames.of(events).persisted(few=True))
        return kept[-1]

    with small_data(local_spark):
        yield make
    for frames in kept:
        frames.unpersist()
        frames.events.unpersist()
