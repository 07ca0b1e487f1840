"""The report's tables for small stories with known results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from event_fixtures import Events, line, small_data, write_lines
from pyspark.sql import DataFrame, SparkSession

from torrentdist.spark.reporting import report_tables
from torrentdist.spark.reporting.event_reading import duplicates, read_lines, usable

D1, D2 = "1" * 64, "2" * 64
END: dict[str, Any] = {
    "bundle": "etl-1",
    "digest": D1,
    "size": 100,
    "seconds": 10.0,
    "prepare_secs": 0.0,
    "wait_secs": 0.5,
    "fetch_secs": 9.0,
    "publish_secs": 0.5,
    "from_masters": 20,
    "from_peers": 70,
    "local": 10,
    "peers": 4,
    "hash_failures": 0,
    "sources": [],
}


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in frame.collect()]


def started(node: str, at: float, **fields: Any) -> dict[str, Any]:
    return line("download_started", node=node, at=at, bundle="etl-1", digest=D1, size=100, **fields)


def finished(node: str, at: float, **fields: Any) -> dict[str, Any]:
    return line("download_finished", node=node, at=at, **{**END, **fields})


def test_how_long_until_half_most_and_all_hosts_had_it(events: Events) -> None:
    """The most important number of a distribution would be wrong."""
    story = [started(f"h{n}", 100.0 + n / 10) for n in range(10)]
    story += [finished(f"h{n}", 110.0 + n) for n in range(10)]
    found = report_tables.spread(events(*story))

    assert [("etl-1", 10, 10, 14.0, 18.0, 19.0)] == rows(
        found, "bundle", "hosts", "done", "secs_50", "secs_90", "secs_100"
    )


def test_a_share_that_was_not_reached_has_no_time(events: Events) -> None:
    """A bundle that got stuck would look as if it had arrived."""
    found = report_tables.spread(events(started("h1", 100.0), started("h2", 100.0), finished("h1", 105.0)))

    assert [(2, 1, 5.0, None)] == rows(found, "hosts", "done", "secs_50", "secs_100")


def test_clocks_out_of_step_change_nothing(events: Events) -> None:
    """One host whose clock is an hour ahead would make every bundle take an hour."""
    ahead = [started("h2", 3700.0, clock=None), finished("h2", 3704.0, clock=-3600.0)]
    found = report_tables.spread(events(started("h1", 100.0), finished("h1", 102.0), *ahead))

    assert [(2, 2.0, 4.0)] == rows(found, "hosts", "secs_50", "secs_100")


def test_a_host_without_a_known_clock_distorts_no_bundle(events: Events) -> None:
    """One host whose clock says 1970, and that never reached ZooKeeper, made every bundle take
    fifty years."""
    lost = [started("h3", 5.0, clock=None), finished("h3", 65.0, clock=None, seconds=6.0)]
    story = [started("h1", 100.0), finished("h1", 102.0), started("h2", 101.0), finished("h2", 104.0)]
    found = report_tables.spread(events(*lost, *story))

    columns = ("hosts", "done", "unclocked", "secs_50", "secs_90", "secs_100")
    assert [(3, 3, 1, 4.0, 6.0, 6.0)] == rows(found, *columns)
    assert [(100,)] == rows(found.selectExpr("unix_seconds(began) as began"), "began")


def failed(node: str, at: float, **fields: Any) -> dict[str, Any]:
    about = {**END, "code": "disk_full", "reason": "no room"}
    return line("download_failed", node=node, at=at, **{**about, **fields})


def test_what_is_not_everywhere_comes_with_hosts_and_reasons(events: Events) -> None:
    """A report that names only the hosts that have a bundle does not show what is wrong."""
    story = [started(f"h{n}", 100.0) for n in range(5)] + [finished("h0", 110.0), failed("h1", 103.0)]
    story += [failed("h2", 103.0, reason="old"), failed("h2", 105.0, code="bundle_lost", reason="gone")]
    story += [failed("h3", 104.0), finished("h3", 120.0)]
    whole = [{**started("h0", 90.0), "digest": D2}, finished("h0", 95.0, digest=D2)]
    found = events(*story, *whole)

    lacking = [("h1", 1, "disk_full", "no room"), ("h2", 2, "bundle_lost", "gone"), ("h4", 0, None, None)]
    assert lacking == sorted(rows(report_tables.missing(found), "node", "failures", "code", "reason"))
    assert [("bundle_lost", 1, 1, 1), ("disk_full", 3, 3, 2)] == sorted(
        rows(report_tables.failures(found), "code", "failures", "hosts", "lacking")
    )
    columns = ("bundles", "complete", "incomplete", "lacking", "hosts", "slowest_secs", "failures")
    assert [(2, 1, 1, 3, 5, 5.0, 4)] == rows(report_tables.summary(found), *columns)


def test_masters_and_supervisors_are_told_apart(events: Events) -> None:
    """Masters get a bundle during the upload, hosts when they are told to. One curve for both would
    show nothing."""
    story = [started("m1", 100.0, role="master"), finished("m1", 101.0, role="master")]
    found = report_tables.spread(events(*story, started("h1", 500.0), finished("h1", 503.0)))

    assert [("master", 1.0), ("supervisor", 3.0)] == rows(found, "role", "secs_100")


def test_what_was_shipped_twice_counts_once(events: Events) -> None:
    """A shipper that sends a file again would double the traffic."""
    once = {**finished("h1", 105.0), "seq": 7}
    found = report_tables.sources(events(once, once, once))

    assert [(20, 70, 10, 0.7)] == rows(found, "masters", "peers", "local", "peers_share")


def test_only_what_is_there_more_than_once_is_a_duplicate(local_spark: SparkSession, tmp_path: Path) -> None:
    """Numbers are checked 64 at a time: neighbours, gaps or another start of the daemon would count
    as duplicates."""
    numbers = [-65, -64, -1, 0, 1, 63, 64, 4095, 2**40, 2**62]
    lines: list[dict[str, Any] | str] = [line("hash_failed", seq=seq, digest=D1, piece=1) for seq in numbers]
    lines += [line("hash_failed", seq=63, digest=D1, piece=1), started("h1", 1.0, seq=65), started("h2", 1.0, seq=63)]
    lines += [started("h1", 1.0, seq=2**40, run="r2"), *[started("h2", 1.0, seq=-64, run="r3")] * 3]
    with small_data(local_spark):
        found = duplicates(usable(read_lines(local_spark, str(write_lines(tmp_path, lines)))))

    assert {"hash_failed": 1, "download_started": 2} == found


def test_a_slow_host_comes_with_the_reason_that_its_numbers_give(events: Events) -> None:
    """An operator would look at the network of a host whose disk is broken."""
    near = [{"host": "10.0.0.1", "port": 7071, "bytes": 100}]
    far = [{"host": "10.0.9.9", "port": 7071, "bytes": 100}]
    usual = [finished(f"h{n}", 110.0, sources=near) for n in range(10)]
    slow: dict[str, dict[str, Any]] = {
        "hash failures": {"hash_failures": 2, "fetch_secs": 29.0},
        "slow disk": {"publish_secs": 20.5},
        "late first byte": {"wait_secs": 20.5},
        "few peers": {"peers": 1, "fetch_secs": 29.0},
        "far rack": {"sources": far, "fetch_secs": 29.0},
        "slow link": {"fetch_secs": 29.0},
    }
    slow_ends = [finished(why, 130.0, **{"seconds": 30.0, "sources": near, **how}) for why, how in slow.items()]
    failed = line("download_failed", node="failed: disk_full", **END, code="disk_full", reason="no room")
    where = [
        line("daemon_started", node="a", rack="a", host="10.0.0.1", port=7071, version="1"),
        line("daemon_started", node="b", rack="b", host="10.0.9.9", port=7071, version="1"),
    ]
    found = rows(report_tables.slow_hosts(events(*where, *usual, *slow_ends, failed)), "node", "why")

    assert sorted([*slow, "failed: disk_full"]) == sorted(why for _, why in found)
    assert [] == [(node, why) for node, why in found if node != why]


def test_traffic_is_told_by_the_racks_of_both_ends(events: Events) -> None:
    """A spine link that carries all traffic would not be visible."""
    where = [
        line("daemon_started", node="h1", rack="a", host="10.0.0.1", port=1, version="1"),
        line("daemon_started", node="h2", rack="b", host="10.0.0.2", port=1, version="1"),
    ]
    came = [("10.0.0.1", 30), ("10.0.0.2", 50), ("192.168.0.9", 20)]
    sources = [{"host": host, "port": 1, "bytes": count} for host, count in came]
    found = report_tables.racks(events(*where, finished("h2", 110.0, rack="b", sources=sources)))

    assert [("a", "b", 30), ("b", "b", 50), ("outside", "b", 20)] == rows(found, "from_rack", "to_rack", "bytes")


def test_a_failover_says_for_how_long_nobody_led(events: Events) -> None:
    """The report would hide how long an outage was."""
    last = line("leader_elected", node="m1", at=100.0, epoch=1, previous="", reason="", vacant_secs=None)
    heard = line("hash_failed", node="m1", at=150.0, digest=D1, piece=0)
    new = line("leader_elected", node="m2", at=158.0, epoch=2, previous="m1", reason="died", vacant_secs=0.4)
    found = report_tables.failovers(events(last, heard, new))

    assert [("m1", "m2", "died", 0.4, 8.0)] == rows(
        found, "previous", "current", "reason", "vacant_secs", "silent_secs"
    )


def test_a_distribution_that_is_over_is_a_row(events: Events) -> None:
    """Nobody could ask Spark how long distributions took last year; or one that a failover told
    twice would count twice."""
    about: dict[str, Any] = {"bundle": "etl-1", "digest": D1, "size": 100, "began_at": 100.0, "cancelled": False}
    about |= {"ended_at": 160.0, "hosts": 10, "done": 9, "left": 0, "secs_50": 20.0, "secs_90": 40.0, "secs_100": None}
    about |= {"from_masters": 200, "from_peers": 690, "from_plugin": 0, "local": 10}
    about |= {"failures": [{"host": "h9", "state": "stuck", "reason": "the disk is full"}]}
    first = line("distribution_ended", node="m1", at=160.0, distribution="etl-1@100000", **about)
    again = line("distribution_ended", node="m2", at=161.0, distribution="etl-1@100000", **about)
    whole = about | {"began_at": 200.0, "ended_at": 230.0, "hosts": 3, "done": 0, "left": 7, "failures": []}
    later = line("distribution_ended", node="m2", at=230.0, distribution="etl-2@200000", **whole | {"cancelled": True})
    found = report_tables.distributions(events(later, again, first))

    columns = ("distribution", "hosts", "done", "lacking", "left", "cancelled", "secs_50", "secs_90", "secs_100")
    assert [
        ("etl-1@100000", 10, 9, 1, 0, False, 20.0, 40.0, None),
        ("etl-2@200000", 3, 0, 3, 7, True, 20.0, 40.0, None),
    ] == rows(found, *columns)
    assert [(200, 690, 0, 10, "h9", "the disk is full"), (200, 690, 0, 10, None, None)] == rows(
        found, "masters", "peers", "plugin", "local", "lacking_host", "reason"
    )
    assert [(100, 160), (200, 230)] == rows(
        found.selectExpr("unix_seconds(began) as began", "unix_seconds(ended) as ended"), "began", "ended"
    )


def test_restarts_are_starts_but_the_first(events: Events) -> None:
    """A worker that ends every minute would look like one that runs."""

    def worker(at: float, state: str, fencing: int, node: str = "h1", code: int | None = None) -> dict[str, Any]:
        about = {"job": "etl", "worker": 0, "before": None, "pid": 1, "restarts": 0, "detail": ""}
        return line("worker_changed", node=node, at=at, state=state, fencing=fencing, exit_code=code, **about)

    story = [
        worker(0, "running", 0),
        worker(1, "running", 1),
        worker(2, "backoff", 1, code=3),
        worker(3, "running", 2),
        worker(4, "running", 2),
    ]
    found = report_tables.restarts(events(*story, worker(9, "running", 3, node="h2")))

    assert [("etl", 0, 3, 2, 2, "running", 3)] == rows(
        found, "job", "worker", "starts", "restarts", "hosts", "state", "last_exit_code"
    )


def test_an_activation_is_no_restart(events: Events) -> None:
    """A job that is switched off every night would look like one that fails every night."""

    def worker(at: float, state: str, fencing: int) -> dict[str, Any]:
        about = {"job": "etl", "worker": 0, "before": None, "pid": 1, "restarts": 0, "detail": "", "exit_code": None}
        return line("worker_changed", at=at, state=state, fencing=fencing, **about)

    nights = [(0, "inactive", 0), (1, "running", 1), (2, "stopping", 1), (3, "inactive", 0), (4, "running", 2)]
    crash = [(5, "backoff", 2), (6, "running", 3), (7, "stopping", 3), (8, "inactive", 0), (9, "running", 4)]
    found = report_tables.restarts(events(*(worker(*change) for change in [*nights, *crash])))

    assert [(4, 1, 1, "running")] == rows(found, "starts", "restarts", "hosts", "state")


def test_a_bundle_that_is_uploaded_again_begins_anew(events: Events) -> None:
    """A fetch of less than a second took 20 s, because the same content had been removed and
    uploaded again in between."""

    def uploaded(at: float) -> dict[str, Any]:
        return line("bundle_uploaded", node="m1", role="master", at=at, bundle="etl-1", digest=D1, size=1, seconds=1.0)

    first = [uploaded(100.0), started("h1", 101.0), finished("h1", 102.0), started("h2", 101.0), failed("h2", 103.0)]
    again = [uploaded(120.0), started("h2", 121.0), finished("h2", 121.5), started("h1", 121.0), finished("h1", 121.75)]
    found = events(*first, *again)

    assert [(2, 1, 1.0, None), (2, 2, 0.5, 0.75)] == rows(
        report_tables.spread(found), "hosts", "done", "secs_50", "secs_100"
    )
    assert [(1, 1, 0, 0, 0.75)] == rows(
        report_tables.summary(found), "bundles", "complete", "incomplete", "lacking", "slowest_secs"
    )
    assert [] == report_tables.missing(found).collect()
    known = report_tables.curve(found).selectExpr("unix_seconds(uploaded) as uploaded", "secs")
    assert [(99, 1.0), (119, 0.5), (119, 0.75)] == rows(known, "uploaded", "secs")


@pytest.mark.case("F14")
def test_the_audit_is_a_table(events: Events) -> None:
    """Nobody could ask Spark who changed what in a year of events."""
    about: dict[str, Any] = {
        "who": "ann",
        "sender_role": "uploader",
        "how": "token",
        "target": "etl-1",
        "bundle": "etl-1",
    }
    about |= {"source": "10.0.0.9", "result": "ok", "count": 1}
    later = line("access_audited", node="m2", at=2, operation="DELETE /v1/bundles/{id}", **about)
    found = report_tables.audit(
        events(later, line("access_audited", node="m1", at=1, operation="POST /v1/bundles/{id}", **about))
    )

    assert [("m1", "POST /v1/bundles/{id}", "ann", 1), ("m2", "DELETE /v1/bundles/{id}", "ann", 1)] == rows(
        found, "node", "operation", "who", "count"
    )


def test_files_of_an_earlier_version_need_not_travel_again(events: Events) -> None:
    """The report would not show what a transfer of changes only would save."""

    def files(at: float, bundle: str, digest: str, *roots: tuple[str, int]) -> dict[str, Any]:
        named = [{"root": root, "size": size} for root, size in roots]
        return line("bundle_files", node="m1", at=at, bundle=bundle, digest=digest, files=named)

    old = files(1, "etl-1", D1, ("a", 60), ("b", 40))
    new = files(2, "etl-2", D2, ("a", 60), ("c", 40))
    reached = [finished(f"h{n}", 110.0, digest=D2, bundle="etl-2") for n in range(3)]
    found = report_tables.savings(events(old, new, *reached))

    assert [("etl-1", 0, 0), ("etl-2", 60, 180)] == rows(found, "bundle", "same_bytes", "saved_bytes")
    assert 0.6 == pytest.approx(rows(found, "same_share")[1][0])
