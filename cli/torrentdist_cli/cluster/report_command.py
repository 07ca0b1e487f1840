"""`torrentdist report`: turns the daemons' events into tables and a page, with Spark."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torrentdist.model.errors import TorrentdistError
from torrentdist_cli.frame.command import Command, Session
from torrentdist_cli.frame.rendering import DURATION, duration, facts, show
from torrentdist_cli.frame.terminal import say

if TYPE_CHECKING:
    from torrentdist.spark.reporting.report import ReportView


@click.command(cls=Command)
@click.argument("events")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("torrentdist-report"),
    show_default=True,
    help="The directory for the tables and the page.",
)
@click.option("--follow", is_flag=True, help="Renew the report whenever there are new files, until Ctrl-C.")
@click.option(
    "--every", type=DURATION, default="30s", show_default=True, help="With --follow: interval between checks."
)
@click.option(
    "--keep",
    type=DURATION,
    default="30d",
    show_default=True,
    help="With --follow: drop events older than this; 0 keeps all.",
)
@click.option(
    "--spark-master", metavar="URL", default="", help="The Spark master; by default the configured one, or this host."
)
@click.option("--conf", metavar="KEY=VALUE", multiple=True, help="A Spark setting; may be repeated.")
def report(
    session: Session,
    events: str,
    out: Path,
    follow: bool,
    every: float,
    keep: float,
    spark_master: str,
    conf: tuple[str, ...],
) -> None:
    """Show what is not everywhere, what failed and what is slow, as a page and Parquet tables.

    EVENTS is what daemons write below their data_dir: a directory, a pattern such as
    '/var/lib/torrentdist/*/events', or any URI that Spark reads. Directories are searched
    recursively for *.jsonl, compressed or not. On this host, files that daemons are still writing
    are read too.

    The page OUT/report.html is self-contained; OUT/tables holds all rows. OUT must be empty or an
    earlier report, which is replaced; other files are never deleted. With a cluster as
    --spark-master, its executors must share OUT. --follow keeps what it has read in OUT, and
    continues there when it is run again.

    With -q: the path of the page.
    """
    from torrentdist.spark.reporting.event_files import FEW_BYTES, find_events
    from torrentdist.spark.reporting.report_directory import ReportDirectory
    from torrentdist.spark.spark_session import require_spark, spark_session

    require_spark()
    settings = _settings(conf)
    source = find_events(events, settings, empty_ok=follow)
    _refuse_foreign_progress(out, follow=follow)
    out = out.absolute()
    ReportDirectory(out).claim()
    size = source.size()
    brief = not follow and size is not None and size <= FEW_BYTES
    if not session.quiet:
        say("starting Spark")
    from torrentdist.spark.reporting import report as reporting

    how: dict[str, Any] = {"master": spark_master, "conf": settings, "log": session.verbose, "brief": brief}
    with spark_session("torrentdist report", **how) as spark:
        if not follow:
            _show(session, reporting.run_once(spark, source, out))
            return
        with _until_signal() as stopping:
            told = partial(_show, session)
            reporting.follow(spark, source, out, every_secs=every, keep_secs=keep, say=told, stopping=stopping)
        if not session.quiet:
            say("stopped; the same command continues from here")


@contextlib.contextmanager
def _until_signal() -> Iterator[threading.Event]:
    """Yields an event that the first Ctrl-C or SIGTERM sets, which is how --follow ends. The second
    signal ends the process at once."""
    stopping = threading.Event()

    def on_signal(number: int, frame: object) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()
        say("stopping; once more to stop at once")

    # Spark's own handler for Ctrl-C would end the running batch with a stack trace.
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(session: Session, view: ReportView) -> None:
    show(session, view, value=view.page, table=lambda: _table(view))


def _table(view: ReportView) -> str:
    skipped = {reason: count for reason, count in view.skipped.items() if count}
    return facts(
        [
            ("events", f"{view.events:,} of {view.hosts:,} daemons"),
            ("skipped", ", ".join(f"{count:,} {reason}" for reason, count in skipped.items()) or "none"),
            ("bundles", f"{view.bundles:,}" + (f", {view.incomplete:,} not everywhere" if view.incomplete else "")),
            ("failures", f"{view.failures:,} downloads" if view.failures else "none"),
            ("seconds", duration(view.seconds)),
            ("page", view.page),
        ]
    )


def _settings(pairs: tuple[str, ...]) -> Mapping[str, str]:
    settings = dict(pair.partition("=")[::2] for pair in pairs)
    wrong = [key for key in settings if not key.startswith("spark.")]
    if wrong:
        raise TorrentdistError("usage", detail=f"--conf {wrong[0]!r} is not a setting of Spark: spark.KEY=VALUE")
    return settings


def _refuse_foreign_progress(out: Path, *, follow: bool) -> None:
    """Refuses an OUT that mixes --follow's collected data with a report of other events."""
    if not follow and (out / "checkpoint").is_dir():
        raise TorrentdistError("usage", detail=f"{out} belongs to a report of --follow: choose another --out")
