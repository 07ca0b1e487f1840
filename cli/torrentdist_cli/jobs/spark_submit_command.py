"""`torrentdist spark-submit`: starts a Spark application whose Python and data are bundles.

Always: what belongs to spark-submit is handed on as it was given.
"""

from __future__ import annotations

import os
from typing import Any

import click

from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.fleet_messages import DistributeView
from torrentdist.model.wording import counted
from torrentdist.spark.submission.submit_arguments import SparkArguments, split_arguments
from torrentdist.spark.submission.submit_plan import (
    all_bundles,
    hosts_to_wait_for,
    plan_command,
)
from torrentdist_cli.bundles.distribute_command import parse_labels
from torrentdist_cli.bundles.fleet_picture import fleet_display
from torrentdist_cli.frame.asking_masters import cluster_of, run_with_progress
from torrentdist_cli.frame.command import Command, Session
from torrentdist_cli.frame.rendering import DURATION, SHARE, show
from torrentdist_cli.frame.terminal import say
from torrentdist_cli.shell.candidates import bundle_ids

SPARK = "torrentdist.spark"
MOST_TOLD = 5
"""Hosts without a bundle that are named."""


class SubmitCommand(Command):
    """Takes its own options from the command line, and keeps the rest for spark-submit."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {
            name: not (isinstance(option, click.Option) and (option.is_flag or option.count))
            for option in self.get_params(ctx)
            for name in option.opts
        }
        # spark-submit has --verbose too, and it says more there.
        own = {name: takes for name, takes in own.items() if name not in ("-v", "--verbose")}
        try:
            split = split_arguments(args, own)
        except TorrentdistError as error:
            if not ctx.resilient_parsing:
                raise click.UsageError(error.message, ctx) from None
            return super().parse_args(ctx, args)
        ctx.meta[SPARK] = split.spark
        return super().parse_args(ctx, list(split.own))


@click.command(
    name="spark-submit",
    cls=SubmitCommand,
    options_metavar="[OPTIONS] [OPTIONS OF SPARK-SUBMIT] APP [ARGUMENTS]",
)
@click.option("--env", metavar="ID", shell_complete=bundle_ids, help="The bundle with the Python environment.")
@click.option(
    "--bundle", "bundles", metavar="ID", multiple=True, shell_complete=bundle_ids, help="A bundle that tasks read."
)
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Executors run on hosts with this label.")
@click.option("--keep", type=DURATION, default="7d", show_default=True, help="How long these hosts keep the bundles.")
@click.option(
    "--wait",
    type=SHARE,
    help="The share of these hosts that must have the bundles before the application starts. Python waits for its "
    "bundles itself, so it starts at once; for a jar all hosts must have them.",
)
@click.option("--timeout", type=DURATION, default="1h", show_default=True, help="Longest time to wait for them.")
@click.option("--print", "print_only", is_flag=True, help="Only show the plain command that would run.")
def spark_submit(
    session: Session,
    env: str | None,
    bundles: tuple[str, ...],
    labels: tuple[str, ...],
    print_only: bool,
    wait: float | None,
    **how: Any,
) -> None:
    """Start a Spark application whose Python and data are bundles.

    Brings the bundles to the hosts, adds the configuration that local, standalone, YARN or
    Kubernetes needs, and becomes spark-submit. An executor on a host that lacks a bundle waits for
    it.

    Exit 3 if there is no such bundle, and 10 if fewer hosts than wanted have it in time.

    With -q: nothing but what spark-submit prints.
    """
    from torrentdist.spark.submission.submit_checks import environment_of, expect_driver, request_here, write_files

    spark: SparkArguments = click.get_current_context().meta.get(SPARK, SparkArguments())
    wanted = [ids.bundle_id(bundle) for bundle in bundles]
    request = request_here(
        spark, ids.bundle_id(env) if env else None, wanted, session.config().supervisor.ids_dir, os.environ
    )
    view = plan_command(request)
    write_files(view.files)
    if print_only:
        show(session, view, value=view.shell(), table=view.shell)
        return
    expect_driver(request)
    share = hosts_to_wait_for(request, wait)
    for bundle in all_bundles(request.env, wanted):
        _bring(session, bundle, labels=parse_labels(labels), wait=share, **how)
    os.execve(view.command[0], view.command, environment_of(os.environ, view.environment))


def _bring(session: Session, bundle: BundleId, **how: Any) -> None:
    run_with_progress(
        fleet_display(session),
        lambda progress: cluster_of(session).distribute(bundle, progress=progress, **how),
        lambda view: _tell(session, view),
    )


def _tell(session: Session, view: DistributeView) -> None:
    if not session.quiet:
        say(f"bundle {view.id} is on {view.done} of {counted(view.hosts, 'host')}; the others fetch it")
    for host in [] if session.quiet else view.failed[:MOST_TOLD]:
        if host.reason:
            say(f"{host.supervisor} does not get {view.id}: {host.reason}", label="warning:", color="yellow")
