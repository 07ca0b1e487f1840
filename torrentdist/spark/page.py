"""The report as one HTML page that needs nothing else: no script, no font, no network.

Always holds: everything in it comes from the small tables, all text of theirs is escaped, and what was skipped is said.
Must not do: compute; tables.py does.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from torrentdist.spark import plots
from torrentdist.spark.plots import SERIES, Bar, Curve

Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row]]
NEWEST = 12
"""So many bundles are drawn; the tables have them all."""
ROWS = 100


def render(tables: Tables, skipped: Mapping[str, int], *, lines: int) -> str:
    sections = [
        _arrival(tables),
        _origin(tables),
        _slowest(tables),
        _between_racks(tables),
        _leaders(tables),
        _workers(tables),
        _saved(tables),
        _counted(tables, skipped, lines),
    ]
    style = files("torrentdist.spark").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>torrentdist: how bundles travelled</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<style>{style}</style></head><body><main><h1>How bundles travelled</h1>{_period(tables)}"
        f"{_tiles(tables, skipped)}{''.join(sections)}</main></body></html>\n"
    )


def _period(tables: Tables) -> str:
    first = min((row["first"] for row in tables["kinds"]), default=None)
    last = max((row["last"] for row in tables["kinds"]), default=None)
    if first is None or last is None:
        return "<p>No event could be used.</p>"
    return f"<p>From {_moment(first)} to {_moment(last)}, ZooKeeper's clock (UTC).</p>"


def _tiles(tables: Tables, skipped: Mapping[str, int]) -> str:
    fleet, sums = _of_fleet(tables["spread"]), _of_fleet(tables["sources"])
    parts = {part: sum(row[part] or 0 for row in sums) for part in ("masters", "peers", "local")}
    total = sum(parts.values())
    slowest = max((row["secs_100"] for row in fleet if row["secs_100"] is not None), default=None)
    tiles = [
        (f"{len({row['digest'] for row in tables['spread']}):,}", "bundles"),
        (f"{max((row['hosts'] for row in fleet), default=0):,}", "hosts at most"),
        (plots.size(total), "brought to hosts"),
        (plots.percent(parts["peers"] / total) if total else "–", "of it from peers"),
        (plots.seconds(slowest) if slowest is not None else "–", "slowest bundle to all"),
        (f"{len(tables['failovers']):,}", "failovers"),
        (f"{sum(row['restarts'] for row in tables['restarts']):,}", "worker restarts"),
        (f"{sum(skipped.values()):,}", "lines skipped"),
    ]
    cells = (f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in tiles)
    return f'<div class="tiles">{"".join(cells)}</div>'


def _of_fleet(rows: Sequence[Row]) -> list[Row]:
    """Supervisors' rows; where there are none, the masters'."""
    return [row for row in rows if row["role"] == "supervisor"] or list(rows)


def _name(row: Row) -> str:
    return str(row["bundle"] or row["digest"][:12])


def _arrival(tables: Tables) -> str:
    fleet = _of_fleet(tables["spread"])
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in tables["curve"]:
        points.setdefault((row["digest"], row["role"]), []).append((row["secs"], row["share"]))
    drawn = [row for row in fleet if (row["digest"], row["role"]) in points][-SERIES:]
    curves = [Curve(_name(row), points[row["digest"], row["role"]]) for row in drawn]
    plot = plots.line_plot(
        curves, x_label="since the first host began", y_label="hosts that have it", title="Share of hosts over time"
    )
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("bundle", _name),
        ("to", lambda row: f"{row['role']}s"),
        ("size", lambda row: plots.size(row["size"])),
        ("hosts", lambda row: f"{row['done']:,} of {row['hosts']:,}"),
        ("50 %", lambda row: _secs(row["secs_50"])),
        ("90 %", lambda row: _secs(row["secs_90"])),
        ("100 %", lambda row: _secs(row["secs_100"])),
    ]
    say = "Each step is a group of hosts that had the whole bundle, verified and in place."
    return _section(
        "Time to reach the hosts", say, plot if curves else "", _table(columns, list(reversed(tables["spread"])))
    )


def _origin(tables: Tables) -> str:
    newest = _of_fleet(tables["sources"])[-NEWEST:]
    bars = [
        Bar(
            _name(row), [row[f"{part}_share"] or 0.0 for part in ("peers", "masters", "local")], plots.size(_total(row))
        )
        for row in newest
    ]
    plot = plots.bar_plot(
        bars,
        ("peers", "masters", "already there"),
        form=plots.percent,
        x_label="share of the bytes",
        most=1.0,
        title="Where the bytes came from",
    )
    say = "What hosts took from each other is what the masters' links did not have to carry."
    return _section("Where the bytes came from", say, plot if bars else "", "")


def _total(row: Row) -> float:
    return sum(row[part] or 0 for part in ("masters", "peers", "local"))


def _slowest(tables: Tables) -> str:
    rows = [row for row in tables["slow_hosts"] if not row["why"].startswith("failed")]
    bars = [
        Bar(
            f"{plots.short(row['node'], 14)} · {plots.short(_name(row), 7)}",
            [row["wait_secs"], row["fetch_secs"], row["disk_secs"]],
            row["why"],
        )
        for row in rows[:NEWEST]
    ]
    phases = ("until the first byte", "fetching", "disk")
    plot = plots.bar_plot(bars, phases, form=plots.seconds, x_label="time taken", title="The slowest hosts")
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("host", lambda row: row["node"]),
        ("rack", lambda row: row["rack"]),
        ("bundle", _name),
        ("took", lambda row: _secs(row["seconds"])),
        ("× median", lambda row: "–" if row["times"] is None else f"{row['times']:.1f}"),
        ("why", lambda row: row["why"]),
        ("peers", lambda row: f"{row['peers']}"),
        ("from other racks", lambda row: "–" if row["far"] is None else plots.percent(row["far"])),
        ("hash failures", lambda row: f"{row['hash_failures']}"),
    ]
    say = "Hosts that took half as long again as the median of their bundle, or failed, and what explains most of it."
    return _section("Slowest hosts", say, plot if bars else "", _table(columns, tables["slow_hosts"]))


def _between_racks(tables: Tables) -> str:
    values = {(row["from_rack"], row["to_rack"]): float(row["bytes"]) for row in tables["racks"] if row["bytes"]}
    plot = plots.matrix_plot(values, form=plots.size, title="Traffic between racks")
    say = "Bytes received, by the racks of who sent and who received; “outside” writes no events: an uploader, for one."
    return _section("Traffic between racks", say, plot if values else "", "")


def _leaders(tables: Tables) -> str:
    rows = tables["failovers"]
    bars = [
        Bar(f"{row['at']:%m-%d %H:%M} · {row['current']}", [row["vacant_secs"] or 0.0], row["reason"])
        for row in rows[-NEWEST:]
    ]
    plot = plots.bar_plot(
        bars, ("without a leader",), form=plots.seconds, x_label="without a leader", title="Failovers"
    )
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("at", lambda row: _moment(row["at"])),
        ("epoch", lambda row: f"{row['epoch']}"),
        ("from", lambda row: row["previous"]),
        ("to", lambda row: row["current"]),
        ("why", lambda row: row["reason"]),
        ("nobody led for", lambda row: _secs(row["vacant_secs"])),
        ("old leader silent for", lambda row: _secs(row["silent_secs"])),
    ]
    say = "As the new leader saw it, by its own clock: from the old one's place falling vacant to its own first act."
    return _section("Failovers", say, plot if bars else "", _table(columns, list(reversed(rows))))


def _workers(tables: Tables) -> str:
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("job", lambda row: row["job"]),
        ("worker", lambda row: f"{row['worker']}"),
        ("starts", lambda row: f"{row['starts']}"),
        ("restarts", lambda row: f"{row['restarts']}"),
        ("hosts", lambda row: f"{row['hosts']}"),
        ("now", lambda row: row["state"] or ""),
        ("last exit code", lambda row: "–" if row["last_exit_code"] is None else f"{row['last_exit_code']}"),
        ("detail", lambda row: row["last_detail"] or ""),
    ]
    return _section("Workers", "Those that were restarted most come first.", "", _table(columns, tables["restarts"]))


def _saved(tables: Tables) -> str:
    rows = tables["savings"]
    bars = [
        Bar(
            _name(row),
            [row["same_bytes"], row["bytes"] - row["same_bytes"]],
            f"{plots.percent(row['same_share'] or 0.0)} known",
        )
        for row in rows[-NEWEST:]
    ]
    plot = plots.bar_plot(
        bars,
        ("in an earlier bundle too", "new"),
        form=plots.size,
        x_label="bytes of the bundle",
        title="Identical files",
    )
    total = plots.size(sum(row["saved_bytes"] for row in rows))
    say = f"Files that an earlier bundle had too. Without them, {total} less would have gone to the hosts."
    return _section("Identical files across versions", say, plot if bars else "", "")


def _counted(tables: Tables, skipped: Mapping[str, int], lines: int) -> str:
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("event", lambda row: row["event"]),
        ("count", lambda row: f"{row['count']:,}"),
        ("daemons", lambda row: f"{row['nodes']:,}"),
    ]
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in skipped.items())
    return _section("What was read", f"{lines:,} lines; skipped: {reasons}.", "", _table(columns, tables["kinds"]))


def _section(title: str, say: str, plot: str, table: str) -> str:
    content = plot + table or '<p class="none">Nothing of the kind happened.</p>'
    return f"<section><h2>{escape(title)}</h2><p>{escape(say)}</p>{content}</section>"


def _table(columns: Sequence[tuple[str, Callable[[Row], str]]], rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name, _ in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell(row))}</td>" for _, cell in columns) + "</tr>" for row in rows[:ROWS]
    )
    more = f"<p>{len(rows) - ROWS:,} more are in the Parquet table.</p>" if len(rows) > ROWS else ""
    inside = f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'
    count = f"{len(rows):,} rows" if len(rows) > 1 else "1 row"
    return f"<details{' open' if len(rows) <= 12 else ''}><summary>{count}</summary>{inside}</details>"


def _secs(value: float | None) -> str:
    return "–" if value is None else plots.seconds(value)


def _moment(at: datetime.datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"
