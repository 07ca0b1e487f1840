"""The cluster's state as tables: spark.read.format("torrentdist").load("bundles").

Always: the driver asks once, so a table shows one moment, and no token reaches an executor.
Never: read events; the report does that.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import asdict
from pyspark.sql.types import StructType

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
except ModuleNotFoundError as exc:
    raise ImportError("the data source torrentdist needs PySpark 4.0 or later; the rest works with 3.5") from exc

from torrentdist.client import job_client
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.configuration.settings import load
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.job_messages import JobView, WorkerState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[Any, ...]
NAME = "torrentdist"
HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""Makes PySpark leave out the traceback of an error."""
OPTIONS = ("path", "table", "masters", "tokenfile", "config")


class Table(NamedTuple):
    schema: str
    """Its columns, which are the attributes of its records, and their types."""
    read: Callable[[MasterClient], Any]
    """Coroutine function that returns the records: views, or mappings."""

    def columns(self) -> list[tuple[str, str]]:
        # Spark's own parser is in the JVM, which this process cannot reach.
        return re.findall(r"(\w+) (.+?)(?:, (?=\w+ )|$)", self.schema)

    async def rows(self, client: MasterClient) -> list[Row]:
        return [
            tuple(_value(record, name, kind) for name, kind in self.columns()) for record in await self.read(client)
        ]


def _value(record: Any, name: str, kind: str) -> Any:
    value = record[name] if isinstance(record, dict) else getattr(record, name)
    if isinstance(value, StrEnum):
        return value.value
    return datetime.fromtimestamp(value, UTC) if kind == "timestamp" else value


async def _masters(client: MasterClient) -> Any:
    return (await client.cluster()).masters


async def _supervisors(client: MasterClient) -> Any:
    return (await client.cluster()).supervisors


async def _replicas(client: MasterClient) -> list[dict[str, Any]]:
    bundles = await client.bundles()
    return [{"bundle": b.id, "digest": b.digest, "master": master} for b in bundles for master in b.holders]


def _running(job: JobView) -> int | None:
    """Returns the number of running workers; None if the state of any worker is unknown."""
    states = [worker.state for worker in job.workers]
    return None if None in states else states.count(WorkerState.RUNNING)


async def _jobs(client: MasterClient) -> list[dict[str, Any]]:
    return [asdict(job) | {"running": _running(job)} for job in await job_client.jobs(client)]


async def _workers(client: MasterClient) -> list[dict[str, Any]]:
    return [asdict(worker) | {"job": job.id} for job in await job_client.jobs(client) for worker in job.workers]


TABLES: Mapping[str, Table] = {
    "masters": Table(
        "id string, host string, port int, url string, is_leader boolean, version string, uptime_secs double, "
        "swarm_port int",
        _masters,
    ),
    "supervisors": Table(
        "id string, host string, gateway string, slots int, slots_used int, labels map<string, string>, bundles int, "
        "version string, uptime_secs double",
        _supervisors,
    ),
    "bundles": Table(
        "id string, digest string, size long, files long, replicas int, min_replicas int, state string, "
        "pinned boolean, created_at timestamp",
        MasterClient.bundles,
    ),
    "replicas": Table("bundle string, digest string, master string", _replicas),
    "jobs": Table(
        "id string, name string, status string, bundle string, dependencies array<string>, wanted int, running int, "
        "created_at timestamp, reason string",
        _jobs,
    ),
    "workers": Table(
        "job string, worker int, supervisor string, slot int, state string, pid int, exit_code int, restarts int, "
        "application string, ui string",
        _workers,
    ),
}


class TorrentdistDataSource(DataSource):
    """Options: `table` (or the path), `masters`, `tokenFile`, `config`. Defaults are those of the
    command line."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        unknown = sorted(name for name in options if name.lower() not in OPTIONS)
        if unknown:
            raise readable_error("usage", detail=f"{NAME} has no option {unknown[0]!r}, only {', '.join(OPTIONS)}")

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return self._table().schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """`schema`: the table's own, or the user's: some of its columns, in any order."""
        options = {name.lower(): text for name, text in self.options.items()}
        return _TableReader(options, self._name(), columns_of(schema, self._table(), self._name()))

    def _name(self) -> str:
        return str(self.options.get("table") or self.options.get("path") or "")

    def _table(self) -> Table:
        table = TABLES.get(self._name())
        if table is None:
            raise readable_error("usage", detail=f"there is no table {self._name()!r}, only {', '.join(TABLES)}")
        return table


def columns_of(asked: StructType, table: Table, name: str) -> list[int]:
    """Returns the position of every column of `asked` in the table's rows."""
    there = {column: (at, _simple(kind)) for at, (column, kind) in enumerate(table.columns())}
    for field in asked:
        if field.name not in there:
            detail = f"table {name!r} has no column {field.name!r}, only {', '.join(there)}"
            raise readable_error("usage", detail=detail)
        kind = there[field.name][1]
        if field.dataType.simpleString() != kind:
            told = f"{kind}, not {field.dataType.simpleString()}"
            raise readable_error("usage", detail=f"column {field.name!r} of table {name!r} is {told}")
    return [there[field.name][0] for field in asked]


def _simple(kind: str) -> str:
    """Returns a type as Spark's simpleString writes it."""
    return kind.replace("long", "bigint").replace(", ", ",")


def readable_error(code: str, **fields: Any) -> TorrentdistError:
    return with_hint(TorrentdistError(code, **fields))


def with_hint(error: TorrentdistError) -> TorrentdistError:
    """Puts code and hint into the error's text, and drops its causes and its traceback: Spark
    passes on the text alone, and this process of Spark's ends with an error."""
    os.environ[HIDE_TRACEBACK] = "1"
    error.args = (f"error[{error.code}]: {error.message}. {error.hint}",)
    error.__cause__, error.__suppress_context__ = None, True
    return error.with_traceback(None)


class _TableReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], table: str, columns: Sequence[int]) -> None:
        self._options = options
        self._table = table
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Reads the rows on the driver, so that executors need not reach the masters."""
        try:
            rows = asyncio.run(self._rows())
        except TorrentdistError as exc:
            error = with_hint(exc)
        else:
            return [InputPartition([tuple(row[at] for at in self._columns) for row in rows])]
        raise error  # outside the handler: its text has no second traceback

    def read(self, partition: InputPartition) -> Iterator[Row]:
        yield from partition.value

    async def _rows(self) -> list[Row]:
        keys = {"masters": "client.masters", "tokenfile": "client.token_file"}
        flags = {key: self._options[name] for name, key in keys.items() if name in self._options}
        file = Path(self._options["config"]) if "config" in self._options else None
        async with MasterClient(load(config_file=file, flags=flags).config.client) as client:
            return await TABLES[self._table].rows(client)


def register(spark: SparkSession) -> None:
    """Registers the format with a session. Needed once, before the first read."""
    spark.dataSource.register(TorrentdistDataSource)
