"""The sections of the report's page, each a chart and a table, from the rows of the small tables.

Always: a section says what its chart leaves out, and what it says when there is nothing to show.
Never: decide the order of sections; report_page.py does.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from torrentdist.charts.bars import Bar, bar_plot
from torrentdist.charts.curves import Curve, step_plot
from torrentdist.charts.matrix import matrix_plot
from torrentdist.charts.quantities import count, percent, seconds, size
from torrentdist.charts.svg import SERIES, shorten
from torrentdist.spark.reporting.page_markup import (
    Columns,
    Row,
    Tables,
    bundle_name,
    drawn_note,
    duration,
    fleet_rows,
    moment,
    row_table,
    section,
)

MOST_DRAWN = 12
"""Number of bars in a chart. The tables have all rows."""


def not_everywhere(tables: Tables) -> str:
    newest = {(row["bundle"], row["digest"], row["role"]): row for row in tables["spread"]}  # the oldest come first
    lacking = [row for row in newest.values() if row["done"] < row["hosts"]]
    failed: Counter[tuple[str, str]] = Counter()
    for row in tables["missing"]:
        failed[row["digest"], row["role"]] += row["code"] is not None
    worst = sorted(lacking, key=lambda row: row["done"] - row["hosts"])
    bars = []
    for row in worst[:MOST_DRAWN]:
        gone = failed[row["digest"], row["role"]]
        left = row["hosts"] - row["done"]
        bars.append(Bar(bundle_name(row), [row["done"], gone, left - gone], f"{left:,} of {row['hosts']:,} lack it"))
    parts = ("have it", "failed", "not finished")
    plot = bar_plot(
        bars, parts, form=count, x_label="hosts", title="Bundles that are not everywhere", colours=(2, 6, 7)
    )
    columns: Columns = [
        ("bundle", bundle_name),
        ("host", lambda row: row["node"]),
        ("kind", lambda row: row["role"]),
        ("began", lambda row: moment(row["since"])),
        ("failed", lambda row: f"{row['failures']:,} ×" if row["failures"] else "–"),
        ("why", lambda row: f"{row['code']}: {row['reason']}" if row["code"] else "not finished when the events end"),
    ]
    text = "Hosts that began to fetch a bundle and do not have it." + drawn_note(
        len(bars), len(lacking), "worst", "bundles"
    )
    none = "Every host that began to fetch a bundle has it."
    return section("What is not everywhere", text, plot if bars else "", row_table(columns, tables["missing"]), none)


def _upload_of(row: Row) -> tuple[Any, ...]:
    return row["digest"], row["role"], row["uploaded"]


def failed_downloads(tables: Tables) -> str:
    rows = tables["failures"]
    codes: dict[str, list[float]] = {}
    for row in rows:
        sums = codes.setdefault(row["code"], [0.0, 0.0])
        sums[0] += row["hosts"] - row["lacking"]
        sums[1] += row["lacking"]
    worst = sorted(codes.items(), key=lambda item: -sum(item[1]))
    bars = [Bar(code, sums) for code, sums in worst[:MOST_DRAWN]]
    parts = ("hosts that have the bundle by now", "hosts that still lack it")
    x_label = "hosts, once for each bundle"
    plot = bar_plot(bars, parts, form=count, x_label=x_label, title="Failed downloads by error", colours=(2, 6))
    columns: Columns = [
        ("error", lambda row: row["code"]),
        ("bundle", bundle_name),
        ("to", lambda row: f"{row['role']}s"),
        ("downloads", lambda row: f"{row['failures']:,}"),
        ("hosts", lambda row: f"{row['hosts']:,}"),
        ("still lack it", lambda row: f"{row['lacking']:,}"),
        ("last", lambda row: moment(row["last"])),
        ("reason given last", lambda row: row["reason"]),
    ]
    text = "Downloads that ended with an error." + drawn_note(len(bars), len(codes), "most frequent", "errors")
    return section("What failed, and why", text, plot if bars else "", row_table(columns, rows), "No download failed.")


def arrival(tables: Tables) -> str:
    fleet = fleet_rows(tables["spread"])
    points: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for row in tables["curve"]:
        points.setdefault(_upload_of(row), []).append((row["secs"], row["share"]))
    drawn = [row for row in fleet if _upload_of(row) in points][-SERIES:]
    curves = [Curve(bundle_name(row), points[_upload_of(row)]) for row in drawn]
    plot = step_plot(
        curves, x_label="since the first host began", y_label="hosts that have it", title="Share of hosts over time"
    )
    columns: Columns = [
        ("bundle", bundle_name),
        ("to", lambda row: f"{row['role']}s"),
        ("size", lambda row: size(row["size"])),
        ("hosts", lambda row: f"{row['done']:,} of {row['hosts']:,}"),
        ("clock unknown", lambda row: f"{row['unclocked']:,}"),
        ("50 %", lambda row: duration(row["secs_50"])),
        ("90 %", lambda row: duration(row["secs_90"])),
        ("100 %", lambda row: duration(row["secs_100"])),
    ]
    text = "Each step is a group of hosts that had the whole bundle, verified and in place."
    text += drawn_note(len(drawn), len(fleet), "newest", "bundles")
    return section(
        "Time to reach the hosts", text, plot if curves else "", row_table(columns, list(reversed(tables["spread"])))
    )


def origin(tables: Tables) -> str:
    newest = fleet_rows(tables["sources"])[-MOST_DRAWN:]
    bars = [
        Bar(
            bundle_name(row), [row[f"{part}_share"] or 0.0 for part in ("peers", "masters", "local")], size(_total(row))
        )
        for row in newest
    ]
    plot = bar_plot(
        bars,
        ("peers", "masters", "already there"),
        form=percent,
        x_label="share of the bytes",
        most=1.0,
        title="Where the bytes came from",
    )
    text = "Bytes that hosts took from each other did not pass through the masters' links."
    text += drawn_note(len(newest), len(fleet_rows(tables["sources"])), "newest", "bundles")
    return section("Where the bytes came from", text, plot if bars else "", "")


def _total(row: Row) -> float:
    return sum(row[part] or 0 for part in ("masters", "peers", "local"))


def slow_hosts(tables: Tables) -> str:
    rows = [row for row in tables["slow_hosts"] if not row["why"].startswith("failed")]
    bars = [
        Bar(
            f"{shorten(row['node'], 20)} · {shorten(bundle_name(row), 11)}",
            [row["wait_secs"], row["fetch_secs"], row["disk_secs"]],
            row["why"],
        )
        for row in rows[:MOST_DRAWN]
    ]
    phases = ("until the first byte", "fetching", "disk")
    plot = bar_plot(bars, phases, form=seconds, x_label="time taken", title="The slowest hosts")
    columns: Columns = [
        ("host", lambda row: row["node"]),
        ("rack", lambda row: row["rack"]),
        ("bundle", bundle_name),
        ("took", lambda row: duration(row["seconds"])),
        ("× median", lambda row: "–" if row["times"] is None else f"{row['times']:.1f}"),
        ("why", lambda row: row["why"]),
        ("peers", lambda row: f"{row['peers']}"),
        ("from other racks", lambda row: "–" if row["far"] is None else percent(row["far"])),
        ("hash failures", lambda row: f"{row['hash_failures']}"),
    ]
    text = "Downloads that took at least 1.5 times the median of their bundle, and the main cause."
    text += drawn_note(len(bars), len(rows), "slowest", "downloads")
    none = "No host took much longer than the others."
    return section("What is slow", text, plot if bars else "", row_table(columns, rows), none)


def rack_traffic(tables: Tables) -> str:
    values = {(row["from_rack"], row["to_rack"]): float(row["bytes"]) for row in tables["racks"] if row["bytes"]}
    plot = matrix_plot(values, form=size, title="Traffic between racks")
    text = (
        "Bytes received, by the racks of sender and receiver. “outside”: senders that write no events, like uploaders."
    )
    return section("Traffic between racks", text, plot if values else "", "")


def failovers(tables: Tables) -> str:
    rows = tables["failovers"]
    bars = [
        Bar(f"{row['at']:%m-%d %H:%M} · {row['current']}", [row["vacant_secs"] or 0.0], row["reason"])
        for row in rows[-MOST_DRAWN:]
    ]
    plot = bar_plot(bars, ("without a leader",), form=seconds, x_label="without a leader", title="Failovers")
    columns: Columns = [
        ("at", lambda row: moment(row["at"])),
        ("epoch", lambda row: f"{row['epoch']}"),
        ("from", lambda row: row["previous"]),
        ("to", lambda row: row["current"]),
        ("why", lambda row: row["reason"]),
        ("nobody led for", lambda row: duration(row["vacant_secs"])),
        ("old leader silent for", lambda row: duration(row["silent_secs"])),
    ]
    text = "From the end of the old leader's claim to the new leader's first act, by the new leader's clock."
    text += drawn_note(len(bars), len(rows), "newest", "failovers")
    return section("Failovers", text, plot if bars else "", row_table(columns, list(reversed(rows))))


def worker_restarts(tables: Tables) -> str:
    columns: Columns = [
        ("job", lambda row: row["job"]),
        ("worker", lambda row: f"{row['worker']}"),
        ("starts", lambda row: f"{row['starts']}"),
        ("restarts", lambda row: f"{row['restarts']}"),
        ("hosts", lambda row: f"{row['hosts']}"),
        ("now", lambda row: row["state"] or ""),
        ("last exit code", lambda row: "–" if row["last_exit_code"] is None else f"{row['last_exit_code']}"),
        ("detail", lambda row: row["last_detail"] or ""),
    ]
    return section(
        "Workers", "The workers that were restarted most often come first.", "", row_table(columns, tables["restarts"])
    )


def identical_files(tables: Tables) -> str:
    rows = tables["savings"]
    bars = [
        Bar(
            bundle_name(row),
            [row["same_bytes"], row["bytes"] - row["same_bytes"]],
            f"{percent(row['same_share'] or 0.0)} known",
        )
        for row in rows[-MOST_DRAWN:]
    ]
    plot = bar_plot(
        bars,
        ("in an earlier bundle too", "new"),
        form=size,
        x_label="bytes of the bundle",
        title="Identical files",
    )
    total = size(sum(row["saved_bytes"] for row in rows))
    text = f"Files that an earlier bundle already had. Without them, hosts would have received {total} less."
    text += drawn_note(len(bars), len(rows), "newest", "bundles")
    return section("Identical files across versions", text, plot if bars else "", "")


def lines_read(tables: Tables, skipped: Mapping[str, int], lines: int, unclocked: int) -> str:
    columns: Columns = [
        ("event", lambda row: row["event"]),
        ("count", lambda row: f"{row['count']:,}"),
        ("daemons", lambda row: f"{row['nodes']:,}"),
    ]
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in skipped.items())
    text = f"{lines:,} lines; skipped: {reasons}."
    if unclocked:
        text += (
            f" For {unclocked:,} daemons no line says how far their clock is off. They do not set the start of any"
            " bundle, and their own times count from their own start."
        )
    return section("What was read", text, "", row_table(columns, tables["kinds"]))
