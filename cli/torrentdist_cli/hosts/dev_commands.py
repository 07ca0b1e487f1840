"""`torrentdist dev`: runs a whole cluster on this machine."""

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import click

from torrentdist.dev.dev_cluster import DevCluster, DevSpec, default_dir, stop
from torrentdist.dev.dev_processes import DevState, read_state
from torrentdist.model.wording import counted
from torrentdist_cli.frame.command import Command, Group, OutputFormat, Session
from torrentdist_cli.frame.rendering import facts, grid, show
from torrentdist_cli.frame.terminal import say

_DIR = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="The cluster's directory; by default below $XDG_STATE_HOME or ~/.local/state.",
)


@click.group(cls=Group)
def dev() -> None:
    """A whole cluster on this machine, for trials and tests."""


@dev.command(cls=Command)
@click.option("--masters", "masters_", type=click.IntRange(1, 9), default=3, show_default=True)
@click.option("--supervisors", type=click.IntRange(0, 64), default=2, show_default=True)
@click.option("--zookeepers", type=click.Choice(["1", "3"]), default="1", show_default=True)
@click.option("--zookeeper", metavar="HOST:PORT", default="", help="Use this ZooKeeper instead of starting one.")
@click.option(
    "--first-port", type=click.IntRange(0, 65000), default=0, help="The first port to use; 0 takes free ports."
)
@_DIR
@click.option("--tls", is_flag=True, help="With TLS: a CA, a certificate for each daemon, and a token.")
@click.option(
    "--simulate",
    metavar="N",
    type=click.IntRange(0, 2000),
    default=0,
    help="Add N hosts that register and report like real ones and move no byte: they fill the console.",
)
@click.option(
    "--zones",
    metavar="A,B",
    default="",
    callback=lambda _, __, text: tuple(filter(None, map(str.strip, text.split(",")))),
    help="Put the supervisors in these zones, in turn.",
)
@click.option("--detach", is_flag=True, help="Run in the background; `dev down` stops it.")
def up(
    session: Session, /, masters_: int, zookeepers: str, directory: Path | None, detach: bool, **members: Any
) -> None:
    """Start ZooKeeper, masters and supervisors, and stay until Ctrl-C.

    With -q: the path of the client's configuration.
    """
    if members["tls"] and members["simulate"]:
        raise click.UsageError("--simulate and --tls exclude each other: simulated hosts have no certificates")
    spec = DevSpec(dir=directory or default_dir(), masters=masters_, zookeepers=int(zookeepers), **members)
    cluster = DevCluster(spec)
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: told.set())
    cluster.up(say=lambda text: None if session.quiet else say(text))
    try:
        client_toml = cluster.dir / "client.toml"
        show(session, cluster.state, value=str(client_toml), table=lambda: _table(cluster.state))
        if session.output in (None, OutputFormat.TABLE) and not session.quiet:
            _say_how(cluster, detach)
        sys.stdout.flush()
        while not (detach or told.wait(1.0)):
            pass
    except KeyboardInterrupt:
        told.set()
    finally:
        if told.is_set() or not detach:
            say("stopping")
            cluster.down()


def _say_how(cluster: DevCluster, detach: bool) -> None:
    prefix = f"torrentdist --config {cluster.dir / 'client.toml'}"
    say("")
    say("To use it:")
    for line in ("cluster", "upload PATH --id my-bundle", "bundle distribute my-bundle", "download my-bundle DEST"):
        say(f"  {prefix} {line}")
    stop = f"torrentdist dev down --dir {cluster.dir}" if detach else "Ctrl-C"
    say("The console, with the token in " + str(cluster.token_file) + ":")
    say(f"  {cluster.masters()[0]}/ui/")
    say("To stop it:")
    say(f"  {stop}")


@dev.command(cls=Command)
@_DIR
def status(session: Session, directory: Path | None) -> None:
    """Show what runs. With -q: the directory."""
    state = read_state(directory or default_dir())
    show(session, state, value=state.dir, table=lambda: _table(state))


@dev.command(cls=Command)
@_DIR
def down(session: Session, directory: Path | None) -> None:
    """Stop what `dev up` started, and nothing else. The data stays. With -q: the number of
    processes stopped."""
    directory = (directory or default_dir()).absolute()
    stopped = stop(directory)
    show(
        session,
        {"dir": str(directory), "stopped": stopped},
        value=str(stopped),
        table=lambda: f"stopped {counted(stopped, 'process')}",
    )


def _table(state: DevState) -> str:
    rows = [(p.id, p.role, str(p.pid), p.url) for p in state.processes]
    return "\n\n".join(
        [
            facts([("directory", state.dir), ("zookeeper", state.zookeeper)]),
            grid(("PROCESS", "ROLE", "PID", "ADDRESS"), rows, right=("PID",)) if rows else "nothing runs",
        ]
    )
