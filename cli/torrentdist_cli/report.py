"""`torrentdist report`: what the daemons' events say, as tables and one page, made by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torrentdist.model.errors import TorrentdistError
from torrentdist_cli.command import Command
from torrentdist_cli.output import facts, show
from torrentdist_cli.session import Session
from torrentdist_cli.terminal import say
from torrentdist_cli.text import DURATION, duration

if TYPE_CHECKING:
    from torrentdist.spark.report import ReportView


@click.command(cls=Command)
@click.argument("events")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("torrentdist-report"),
    show_default=True,
    help="Where the tables and the page go.",
)
@click.option("--follow", is_flag=True, help="Go on, and renew the report whenever files have come, until Ctrl-C.")
@click.option("--every", type=DURATION, default="30s", show_default=True, help="With --follow: how often to look.")
@click.option(
    "--keep", type=DURATION, default="30d", show_default=True, help="With --follow: forget what is older; 0: nothing."
)
@click.option("--spark-master", metavar="URL", default="", help="Where Spark runs; by default as configured, or here.")
@click.option("--conf", metavar="KEY=VALUE", multiple=True, help="A setting for Spark; may be given several times.")
@click.pass_obj
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
    """Show how bundles travelled, as a page and Parquet tables.

    EVENTS is what daemons write below their data_dir: a directory, a pattern such as '/var/lib/torrentdist/*/events',
    or any URI that Spark reads. Directories are searched whole, for *.jsonl, compressed or not.

    The page OUT/report.html needs nothing else; OUT/tables holds all rows. With a cluster as --spark-master, OUT has to
    be a directory that its executors share. --follow keeps what it has read in OUT, and goes on there when it is run
    again.

    With -q: the path of the page.
    """
    from torrentdist.spark.session import require_spark, spark_session

    require_spark()
    from torrentdist.spark import report as reporting

    settings = _settings(conf)
    _refuse_foreign_progress(out, follow=follow)
    if not session.quiet:
        say("starting Spark")
    with spark_session("torrentdist report", master=spark_master, conf=settings, log=session.verbose) as spark:
        if follow:
            reporting.follow(
                spark,
                events,
                out.absolute(),
                every_secs=every,
                keep_secs=keep,
                say=lambda view: _show(session, view),
            )
        else:
            _show(session, reporting.run_once(spark, events, out.absolute()))


def _show(session: Session, view: ReportView) -> None:
    show(session, view, value=view.page, table=lambda: _table(view))


def _table(view: ReportView) -> str:
    skipped = {reason: count for reason, count in view.skipped.items() if count}
    return facts(
        [
            ("events", f"{view.events:,} of {view.hosts:,} daemons"),
            ("skipped", ", ".join(f"{count:,} {reason}" for reason, count in skipped.items()) or "none"),
            ("bundles", f"{view.bundles:,}"),
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
    """What --follow has gathered would be mixed with, or hidden by, a report of other events."""
    if not follow and (out / "checkpoint").is_dir():
        raise TorrentdistError("usage", detail=f"{out} belongs to a report that is followed: choose another --out")
