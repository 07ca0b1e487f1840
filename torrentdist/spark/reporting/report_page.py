"""The report as one HTML page: its head, its tiles, and the order of its sections.

Always: the page needs no script, no font and no network. Text from outside is escaped.
Never: compute what a table can; report_tables.py does that.
"""

from collections.abc import Mapping
from html import escape
from importlib.resources import files

from torrentdist.charts import svg
from torrentdist.charts.quantities import percent, size
from torrentdist.spark.reporting.page_markup import Tables, duration, fleet_rows, moment
from torrentdist.spark.reporting.page_sections import (
    arrival,
    failed_downloads,
    failovers,
    identical_files,
    lines_read,
    not_everywhere,
    origin,
    rack_traffic,
    slow_hosts,
    worker_restarts,
)


def render(tables: Tables, skipped: Mapping[str, int], *, lines: int, unclocked: int = 0) -> str:
    """`lines`: all that were read, `skipped` those that were not used, by reason. `unclocked`:
    daemons without a known clock."""
    sections = [
        not_everywhere(tables),
        failed_downloads(tables),
        slow_hosts(tables),
        arrival(tables),
        origin(tables),
        rack_traffic(tables),
        worker_restarts(tables),
        failovers(tables),
        identical_files(tables),
        lines_read(tables, skipped, lines, unclocked),
    ]
    style = svg.style() + files("torrentdist.spark.reporting").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>torrentdist: how bundles travelled</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<style>{style}</style></head><body><main><h1>How bundles travelled</h1>{_period(tables)}"
        f"{_tiles(tables, skipped, unclocked)}{''.join(sections)}</main></body></html>\n"
    )


def _period(tables: Tables) -> str:
    first = min((row["first"] for row in tables["kinds"]), default=None)
    last = max((row["last"] for row in tables["kinds"]), default=None)
    if first is None or last is None:
        return "<p>No event could be used.</p>"
    return f"<p>From {moment(first)} to {moment(last)}, ZooKeeper's clock (UTC).</p>"


def _tiles(tables: Tables, skipped: Mapping[str, int], unclocked: int) -> str:
    every, fleet = tables["summary"], next(iter(fleet_rows(tables["summary"])), None)
    incomplete, failed = (sum(row[name] for row in every) for name in ("incomplete", "failures"))
    bundles = max((row["bundles"] for row in every), default=0)
    most = max((row["incomplete"] for row in every), default=0)
    complete, slowest = (fleet["complete"], fleet["slowest_secs"]) if fleet else (0, None)
    parts = {name: fleet[name] if fleet else 0 for name in ("from_masters", "from_peers", "local")}
    total = sum(parts.values())
    tiles = [
        (f"{most:,} of {bundles:,}", "bundles not everywhere", bool(incomplete)),
        (f"{failed:,}", "failed downloads", bool(failed)),
        (duration(slowest), f"slowest of the {complete:,} bundles that are everywhere", False),
        (f"{fleet['hosts'] if fleet else 0:,}", "hosts at most", False),
        (size(total), "brought to hosts", False),
        (percent(parts["from_peers"] / total) if total else "–", "of it from peers", False),
        (f"{len(tables['failovers']):,}", "failovers", False),
        (f"{sum(row['restarts'] for row in tables['restarts']):,}", "worker restarts", False),
        (f"{sum(skipped.values()):,}", "lines skipped", False),
        (f"{unclocked:,}", "daemons without a known clock", bool(unclocked)),
    ]
    cells = (
        f"<div{' class=bad' if bad else ''}><b>{escape(value)}</b><span>{escape(name)}</span></div>"
        for value, name, bad in tiles
    )
    return f'<div class="tiles">{"".join(cells)}</div>'
