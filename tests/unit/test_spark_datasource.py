"""The cluster's tables without Spark: columns and error messages."""

from __future__ import annotations

import asyncio
import json
import traceback
from importlib.metadata import version

import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructType
from scripted_masters import BUNDLE, Master, cluster

from torrentdist.model.errors import TorrentdistError
from torrentdist.spark.datasource import HIDE_TRACEBACK, TABLES, TorrentdistDataSource, columns_of

NOBODY = "http://127.0.0.1:9"


def test_a_schema_of_the_users_chooses_columns() -> None:
    """Columns came in the table's order whatever was requested: sizes stood under `id`."""
    asked = StructType().add("size", LongType()).add("id", StringType())

    assert [2, 0] == columns_of(asked, TABLES["bundles"], "bundles")


def test_types_of_several_words_are_types_too() -> None:
    """The columns after a map would be wrong."""
    labels = StructType().add("version", StringType()).add("labels", MapType(StringType(), StringType()))
    dependencies = StructType().add("dependencies", ArrayType(StringType()))

    assert [7, 5] == columns_of(labels, TABLES["supervisors"], "supervisors")
    assert [4] == columns_of(dependencies, TABLES["jobs"], "jobs")


@pytest.mark.parametrize(
    ("column", "said"),
    [("colour", "has no column 'colour'"), ("size", "column 'size' of table 'bundles' is bigint, not string")],
)
def test_a_schema_that_does_not_fit_is_refused(column: str, said: str) -> None:
    """A missing column would be filled with another one."""
    with pytest.raises(TorrentdistError, match=said):
        columns_of(StructType().add(column, StringType()), TABLES["bundles"], "bundles")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error changes the environment of its process."""
    monkeypatch.setenv(HIDE_TRACEBACK, "")


def test_rows_have_the_columns_that_were_asked_for() -> None:
    """If this fails, a table is empty or cannot be read, or its values stand in other columns."""
    asked = StructType().add("size", LongType()).add("id", StringType())
    master = Master(lambda _: (200, json.dumps([BUNDLE]).encode()))

    async def rows() -> list[tuple[object, ...]]:
        async with cluster(master):
            reader = TorrentdistDataSource({"path": "bundles", "masters": master.url}).reader(asked)
            partitions = await asyncio.to_thread(reader.partitions)
        return [tuple(row) for partition in partitions for row in reader.read(partition)]

    assert [(BUNDLE["size"], BUNDLE["id"])] == asyncio.run(rows())


def test_an_error_is_a_sentence_and_a_hint() -> None:
    """Spark shows all frames of all causes: a hundred lines, with the reason somewhere in the
    middle."""
    source = TorrentdistDataSource({"path": "bundles", "masters": NOBODY})
    reader = source.reader(StructType().add("id", StringType()))
    with pytest.raises(TorrentdistError) as caught:
        reader.partitions()
    told = "".join(traceback.format_exception(caught.value))

    assert str(caught.value).startswith("error[unreachable]: no master could be reached")
    assert "Check client.masters" in str(caught.value)
    assert 1 == told.count("Traceback")
    assert len(told.splitlines()) <= 8


def test_pyspark_has_a_pandas_that_it_doesnt_warn_of() -> None:
    """With pandas 3 the first line that a user's job printed was a warning."""
    assert version("pandas") < "3"
