"""Texts that a job or its host chooses stay short on their way to the leader's records."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from torrentdist.http.connection_pool import Http
from torrentdist.master.console.console_markup import UNKNOWN, moment
from torrentdist.model.ids import JobId
from torrentdist.model.jobs.report_bounds import MOST_DETAIL, MOST_TIME, MOST_UI, bounded
from torrentdist.model.wire.job_messages import WorkerReport, WorkerState
from torrentdist.supervisor.process.spark_applications import MOST_LIST_BYTES, Application, Applications, SparkDriver

IDS = ["app-20260131120000-0001", "spark-0123abcd", "application_1_0001", "local-1.2", "a" * 128]
KEY = (JobId("etl-00000001"), 0)


def report(**own: Any) -> WorkerReport:
    return WorkerReport(job=KEY[0], worker=KEY[1], state=WorkerState.ENDED, **own)


@pytest.mark.parametrize("id_", IDS)
def test_a_sensible_report_stays_as_it_is(id_: str) -> None:
    """If this fails, `job show` hides why a worker failed, or where its Spark pages are."""
    whole = report(detail="d" * MOST_DETAIL, application=id_, ui="http://h:4040".ljust(MOST_UI, "/"))

    assert whole is bounded(whole)


@pytest.mark.parametrize("id_", ["a" * 129, "a b", "a/b", "a\n", "\u00e4", "<a>"])
def test_a_report_of_any_size_becomes_a_short_one(id_: str) -> None:
    """If this fails, one job or one host fills the records of jobs until the leader can write
    none."""
    long = report(detail="d" * 2_000_000, application=id_, ui="http://" + "u" * MOST_UI)

    assert report(detail="d" * (MOST_DETAIL - 1) + "…") == bounded(long)


@pytest.mark.parametrize("at", [1e300, MOST_TIME * 1.01, -1.0])
def test_a_time_that_no_calendar_has_is_none(at: float) -> None:
    """If this fails, one host's report keeps the page of a job and `job show` from everybody."""
    told = report(since=at, fetched_at=at, ended_at=at)

    assert report() == bounded(told)
    assert UNKNOWN == moment(at)
    assert "9892-03-08 12:26:40 UTC" in moment(MOST_TIME)
    assert report(since=MOST_TIME) == bounded(report(since=MOST_TIME))


async def found(body: bytes, *before: SparkDriver) -> Application:
    """Returns what a supervisor takes from a driver that answers with this. `before`: the drivers
    that it looks at first."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, Http() as http:
        port = server.sockets[0].getsockname()[1]
        applications = Applications("host", lambda: None)
        await applications.look([*before, SparkDriver(KEY, "run", os.getpid(), port)], http)
    application = applications.of(KEY)
    return Application(application.id, application.ui.removesuffix(f":{port}"))


def pages(id_: str, **more: str) -> bytes:
    return json.dumps([{"id": id_, **more}]).encode()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda: pages("app-1"), Application("app-1", "http://host")),
        (lambda: pages("a" * 1_000_000), Application()),
        (lambda: pages("a" * 129), Application()),
        (lambda: pages("app-1", name="n" * MOST_LIST_BYTES), Application()),
    ],
)
def test_a_driver_chooses_no_long_id(body: Callable[[], bytes], expected: Application) -> None:
    """If this fails, a job that serves a false page ends the heartbeats of its host."""
    assert expected == asyncio.run(found(body()))


def test_a_strange_driver_hides_no_other() -> None:
    """If this fails, one Spark job keeps the applications of all others from `job show`."""
    odd: Any = "no port"
    strange = SparkDriver((JobId("odd-00000001"), 0), "run", os.getpid(), odd)

    assert Application("app-1", "http://host") == asyncio.run(found(pages("app-1"), strange))
