"""The report's tables on disk: writes them as Parquet, and reads the rows that the page shows.

Never: bring a large table to the driver.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet  # type: ignore[import-untyped]
from pyspark.sql import DataFrame

from torrentdist.spark.reporting.arrivals import Frames
from torrentdist.spark.reporting.report_tables import NEWEST_LAST, TABLES

MOST_ROWS = 2000
"""Most rows of a table that the page gets. The Parquet files have all of them."""
TABLES_AT_ONCE = 3


def make_tables(frames: Frames, directory: Path, *, few: bool) -> dict[str, list[dict[str, Any]]]:
    """Writes all tables, several at a time, because most of them keep only some cores busy.

    Returns the rows of each for the page. `few`: the events are in one partition.
    """
    write = _write_few if few else _write
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        written = {name: pool.submit(write, table(frames), directory / name) for name, table in TABLES.items()}
        for rows in written.values():
            rows.result()
    return {name: _rows_for_page(directory / name, newest_last=name in NEWEST_LAST) for name in TABLES}


def _write(table: DataFrame, target: Path) -> None:
    table.write.parquet(f"{target}")


def _write_few(table: DataFrame, target: Path) -> None:
    """Writes Parquet without a further Spark job."""
    _write_arrow(table.toArrow(), target)


def _rows_for_page(target: Path, *, newest_last: bool) -> list[dict[str, Any]]:
    """Reads the first or last MOST_ROWS rows of a table."""
    rows: list[dict[str, Any]] = []
    for path in target.glob("*.parquet"):
        with pyarrow.parquet.ParquetFile(path) as file:
            groups = range(file.num_row_groups)
            for group in reversed(groups) if newest_last else groups:
                more = file.read_row_group(group).to_pylist()
                rows = [*more, *rows] if newest_last else [*rows, *more]
                if len(rows) >= MOST_ROWS:
                    break
    return rows[-MOST_ROWS:] if newest_last else rows[:MOST_ROWS]


def write_skipped(skipped: Mapping[str, int], target: Path) -> None:
    columns = {"reason": pyarrow.array(skipped.keys(), "string"), "lines": pyarrow.array(skipped.values(), "int64")}
    _write_arrow(pyarrow.table(columns), target)


def _write_arrow(rows: Any, target: Path) -> None:
    target.mkdir(parents=True)
    pyarrow.parquet.write_table(rows, target / "part-00000.snappy.parquet")
