"""The report as one HTML page that needs nothing else: no script, no font, no network.

Always holds: everything in it comes from the small tables, all text of theirs is escaped, and what was skipped is said.
Must not do: compute; tables.py does.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from torrentdist.spark.reporting import plots
from torrentdist.spark.reporting.plots import SERIES, Bar, Curve

Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row]]
NEWEST = 12
"""So many bundles are drawn; the tables have them all."""
ROWS = 100
NOTHING = "Nothing of the kind happened."


def render(tables: Tables, skipped: Mapping[str, int], *, lines: int, unclocked: int = 0) -> str:
    sections = [
        _not_everywhere(tables),
        _failures(tables),
        _slowest(tables),
        _arrival(tables),
        _origin(tables),
        _between_racks(tables),
        _workers(tables),
        _leaders(tables),
        _saved(tables),
        _counted(tables, skipped, lines, unclocked),
    ]
    style = files("torrentdist.spark").joinpath("page.css").read_text(encoding="utf-8")
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
    return f"<p>From {_moment(first)} to {_moment(last)}, ZooKeeper's clock (UTC).</p>"


def _tiles(tables: Tables, skipped: Mapping[str, int], unclocked: int) -> str:
    every, fleet = tables["summary"], next(iter(_of_fleet(tables["summary"])), None)
    incomplete, failed = (sum(row[name] for row in every) for name in ("incomplete", "failures"))
    bundles = max((row["bundles"] for row in every), default=0)
    most = max((row["incomplete"] for row in every), default=0)
    complete, slowest = (fleet["complete"], fleet["slowest_secs"]) if fleet else (0, None)
    parts = {name: fleet[name] if fleet else 0 for name in ("from_masters", "from_peers", "local")}
    total = sum(parts.values())
    tiles = [
        (f"{most:,} of {bundles:,}", "bundles not everywhere", bool(incomplete)),
        (f"{failed:,}", "failed downloads", bool(failed)),
        (_secs(slowest), f"slowest of the {complete:,} bundles that are everywhere", False),
        (f"{fleet['hosts'] if fleet else 0:,}", "hosts at most", False),
        (plots.size(total), "brought to hosts", False),
        (plots.percent(parts["from_peers"] / total) if total else "–", "of it from peers", False),
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


def _not_everywhere(tables: Tables) -> str:
    lacking = [row for row in tables["spread"] if row["done"] < row["hosts"]]
    failed: Counter[tuple[str, str]] = Counter()
    for row in tables["missing"]:
        failed[row["digest"], row["role"]] += row["code"] is not None
    worst = sorted(lacking, key=lambda row: row["done"] - row["hosts"])
    bars = []
    for row in worst[:NEWEST]:
        gone = failed[row["digest"], row["role"]]
        left = row["hosts"] - row["done"]
        bars.append(Bar(_name(row), [row["done"], gone, left - gone], f"{left:,} of {row['hosts']:,} lack it"))
    parts = ("have it", "failed", "not finished")
    plot = plots.bar_plot(
        bars, parts, form=plots.count, x_label="hosts", title="Bundles that are not everywhere", colours=(2, 6, 7)
    )
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("bundle", _name),
        ("host", lambda row: row["node"]),
        ("kind", lambda row: row["role"]),
        ("began", lambda row: _moment(row["since"])),
        ("failed", lambda row: f"{row['failures']:,} ×" if row["failures"] else "–"),
        ("why", lambda row: f"{row['code']}: {row['reason']}" if row["code"] else "not finished when the events end"),
    ]
    say = "Hosts that began with a bundle and don't have it." + _drawn(len(bars), len(lacking), "worst", "bundles")
    none = "Every host that began with a bundle has it."
    return _section("What is not everywhere", say, plot if bars else "", _table(columns, tables["missing"]), none)


def _failures(tables: Tables) -> str:
    rows = tables["failures"]
    codes: dict[str, list[float]] = {}
    for row in rows:
        sums = codes.setdefault(row["code"], [0.0, 0.0])
        sums[0] += row["hosts"] - row["lacking"]
        sums[1] += row["lacking"]
    worst = sorted(codes.items(), key=lambda item: -sum(item[1]))
    bars = [Bar(code, sums) for code, sums in worst[:NEWEST]]
    parts = ("hosts that have the bundle by now", "hosts that still lack it")
    x_label = "hosts, once for each bundle"
    plot = plots.bar_plot(
        bars, parts, form=plots.count, x_label=x_label, title="Failed downloads by error", colours=(2, 6)
    )
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("error", lambda row: row["code"]),
        ("bundle", _name),
        ("to", lambda row: f"{row['role']}s"),
        ("downloads", lambda row: f"{row['failures']:,}"),
        ("hosts", lambda row: f"{row['hosts']:,}"),
        ("still lack it", lambda row: f"{row['lacking']:,}"),
        ("last", lambda row: _moment(row["last"])),
        ("reason given last", lambda row: row["reason"]),
    ]
    say = "Downloads that ended with an error." + _drawn(len(bars), len(codes), "most frequent", "errors")
    return _section("What failed, and why", say, plot if bars else "", _table(columns, rows), "No download failed.")


def _drawn(drawn: int, there_are: int, which: str, what: str) -> str:
    """A sentence that says so if not all are drawn."""
    return f" The picture shows the {drawn:,} {which} of {there_are:,} {what}." if drawn < there_are else ""


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
        ("clock unknown", lambda row: f"{row['unclocked']:,}"),
        ("50 %", lambda row: _secs(row["secs_50"])),
        ("90 %", lambda row: _secs(row["secs_90"])),
        ("100 %", lambda row: _secs(row["secs_100"])),
    ]
    say = "Each step is a group of hosts that had the whole bundle, verified and in place."
    say += _drawn(len(drawn), len(fleet), "newest", "bundles")
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
    say += _drawn(len(newest), len(_of_fleet(tables["sources"])), "newest", "bundles")
    return _section("Where the bytes came from", say, plot if bars else "", "")


def _total(row: Row) -> float:
    return sum(row[part] or 0 for part in ("masters", "peers", "local"))


def _slowest(tables: Tables) -> str:
    rows = [row for row in tables["slow_hosts"] if not row["why"].startswith("failed")]
    bars = [
        Bar(
            f"{plots.short(row['node'], 20)} · {plots.short(_name(row), 11)}",
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
    say = "Downloads that took half as long again as the median of their bundle, and what explains most of it."
    say += _drawn(len(bars), len(rows), "slowest", "downloads")
    none = "No host took much longer than the others."
    return _section("What is slow", say, plot if bars else "", _table(columns, rows), none)


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
    say += _drawn(len(bars), len(rows), "newest", "failovers")
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
    say += _drawn(len(bars), len(rows), "newest", "bundles")
    return _section("Identical files across versions", say, plot if bars else "", "")


def _counted(tables: Tables, skipped: Mapping[str, int], lines: int, unclocked: int) -> str:
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("event", lambda row: row["event"]),
        ("count", lambda row: f"{row['count']:,}"),
        ("daemons", lambda row: f"{row['nodes']:,}"),
    ]
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in skipped.items())
    say = f"{lines:,} lines; skipped: {reasons}."
    if unclocked:
        say += (
            f" For {unclocked:,} daemons no line says how far their clock is off: they set no bundle's start, and their"
            " own times count from their own beginning."
        )
    return _section("What was read", say, "", _table(columns, tables["kinds"]))


def _section(title: str, say: str, plot: str, table: str, none: str = NOTHING) -> str:
    content = plot + table or f'<p class="none">{escape(none)}</p>'
    return f"<section><h2>{escape(title)}</h2><p>{escape(say)}</p>{content}</section>"


def _table(columns: Sequence[tuple[str, Callable[[Row], str]]], rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name, _ in columns)
    body = "".join("<tr>" + "".join(_cell(cell(row)) for _, cell in columns) + "</tr>" for row in rows[:ROWS])
    more = f"<p>{len(rows) - ROWS:,} more are in the Parquet table.</p>" if len(rows) > ROWS else ""
    inside = f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'
    count = f"{len(rows):,} rows" if len(rows) > 1 else "1 row"
    return f"<details{' open' if len(rows) <= 12 else ''}><summary>{count}</summary>{inside}</details>"


def _cell(text: str) -> str:
    """Sentences are broken into lines, values are not."""
    return f"<td{' class=text' if len(text) > 40 else ''}>{escape(text)}</td>"


def _secs(value: float | None) -> str:
    return "–" if value is None else plots.seconds(value)


def _moment(at: datetime.datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"
