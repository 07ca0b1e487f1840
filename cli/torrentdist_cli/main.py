"""The command `torrentdist`: its tree of commands, and how every run of it ends.

Always: the exit code is one of the table, and stderr says what to do.
Never: import anything that a help page does not need; each command imports its own modules.
"""

import os
import shlex
import sys
from collections.abc import Sequence

import click

import torrentdist
from torrentdist.standard_streams import protect_streams
from torrentdist_cli.frame.command import Group, Lazy, Session
from torrentdist_cli.frame.failures import EXIT_INTERRUPTED, EXIT_PIPE, report, say_interrupted

COMMANDS = {
    "upload": Lazy("bundles.upload_command", "Put a directory or a file into the cluster as a bundle."),
    "download": Lazy("bundles.download_command", "Get a bundle into a directory or a file of this host."),
    "unpack": Lazy("bundles.download_command", "Make a bundle's tree from what another BitTorrent client has fetched."),
    "bundle": Lazy("bundles.bundle_commands", "Distribute, list, check, pin and remove bundles."),
    "image": Lazy("bundles.image_commands", "Import container images, and list them."),
    "job": Lazy("jobs.job_commands", "Submit, show, steer and kill jobs."),
    "spark-submit": Lazy(
        "jobs.spark_submit_command", "Start a Spark application whose Python and data are bundles.", "spark_submit"
    ),
    "group": Lazy("cluster.group_commands", "Resource groups: see them, add and remove resources."),
    "cluster": Lazy("cluster.cluster_command", "Show the cluster: leader, masters, supervisors, bundles."),
    "top": Lazy("cluster.cluster_command", "Show what happens in the cluster now, until Ctrl-C."),
    "supervisor": Lazy("hosts.supervisor_commands", "Run this host's supervisor, or list all supervisors."),
    "master": Lazy("hosts.daemon_start", "Run a master, in the foreground, until SIGTERM or Ctrl-C."),
    "csi": Lazy("hosts.csi_command", "Run this node's CSI driver, in the foreground, until SIGTERM or Ctrl-C."),
    "ha": Lazy("cluster.ha_commands", "See and steer the masters' high availability."),
    "ca": Lazy("hosts.ca_commands", "Make the cluster's CA, and certificates from it."),
    "host": Lazy(
        "access.host_commands", "Invite hosts, let this one join, list them, shut one out, and forget one that is gone."
    ),
    "token": Lazy("access.token_commands", "Create, list and revoke tokens of people and programs."),
    "url": Lazy("access.url_command", "Print a URL that opens a bundle for pods, until it ends."),
    "key": Lazy("access.key_commands", "Make keys that sign bundles and jobs, and replace the key of URLs."),
    "whoami": Lazy(
        "access.whoami_command",
        "Show who you are to the cluster: name, role, bundles, what you may read, and the proof.",
    ),
    "audit": Lazy(
        "access.audit_command", "Show who changed what, when, from where, and with which result, the newest first."
    ),
    "report": Lazy(
        "cluster.report_command",
        "Show what is not everywhere, what failed and what is slow, as a page and Parquet tables.",
    ),
    "doctor": Lazy("cluster.doctor_command", "Say what is wrong with this host or its cluster."),
    "dev": Lazy("hosts.dev_commands", "A whole cluster on this machine, for trials and tests."),
    "config": Lazy("hosts.config_commands", "Show the configuration, and where each value comes from."),
    "completion": Lazy(
        "shell.completion_command", "Print the script that completes commands, options and ids in your shell."
    ),
    "help": Lazy(
        "shell.help_command", "Explain exit-codes, config or formats, or show the help of a command.", "help_command"
    ),
}


@click.group(name="torrentdist", cls=Group, lazy=COMMANDS)
@click.version_option(torrentdist.__version__, prog_name="torrentdist")
def cli() -> None:
    """Puts a Spark job bundle on every host of a cluster, and keeps it there."""


def main(argv: Sequence[str] | None = None) -> int:
    protect_streams()
    session = Session()
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _invoke(args, session)
        sys.stdout.flush()
        return code
    except BaseException as exc:
        try:
            return _end(exc, args, session)
        except BrokenPipeError:
            return _end_of_pipe()
        finally:
            _give_up_unwritable_output()


def _invoke(args: list[str], session: Session) -> int:
    if "_TORRENTDIST_COMPLETE" in os.environ:  # a shell asks for completions, which click answers
        cli.main(args, prog_name="torrentdist", obj=session)
    # Not cli.main(): it would answer a closed pipe itself, with exit code 1.
    try:
        with cli.make_context("torrentdist", list(args), obj=session) as ctx:
            code = cli.invoke(ctx)
    except click.exceptions.Exit as exc:
        return exc.exit_code
    return code if isinstance(code, int) else 0


def _end(exc: BaseException, args: list[str], session: Session) -> int:
    from torrentdist_cli.frame.asking_masters import Interrupted

    match exc:
        case BrokenPipeError():
            return _end_of_pipe()
        case Interrupted():
            say_interrupted(shlex.join(["torrentdist", *args]))
            return exc.exit_code
        case KeyboardInterrupt() | click.Abort():
            return EXIT_INTERRUPTED
        case SystemExit():
            return exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    return report(exc, verbose=session.verbose)


def _end_of_pipe() -> int:
    _give_up_output()
    return EXIT_PIPE


def _give_up_unwritable_output() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _give_up_output()


def _give_up_output() -> None:
    """Python flushes stdout once more when it ends, which would fail again and change the exit
    code.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
