"""`torrentdist job`: submits, shows, steers and kills jobs, and prints what their workers write.

Never: import the calls of jobs before a command needs them, since completion waits for imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from torrentdist.client.job_logs import STREAMS, LogLine, Wanted, follow_logs, read_logs
from torrentdist.model.ids import job_id
from torrentdist.model.wire.job_messages import JobView
from torrentdist_cli.frame.asking_masters import ask_masters, masters, run
from torrentdist_cli.frame.command import Command, Group, Lazy, OutputFormat, Session, dry_run_option
from torrentdist_cli.frame.rendering import DURATION, show, show_all
from torrentdist_cli.frame.terminal import put_data, put_output, say
from torrentdist_cli.frame.watching import watch, watch_option
from torrentdist_cli.jobs.job_tables import job_list, job_page, show_changed
from torrentdist_cli.shell.candidates import job_ids

if TYPE_CHECKING:
    from torrentdist.client.masters.master_client import MasterClient

COMMANDS = {
    "submit": Lazy("jobs.job_submit_command", "Submit a directory with a job.toml, or a bundle that has one."),
    "logs": Lazy("jobs.job_commands", "Print what a job's workers write, wherever they run."),
}


@click.group(cls=Group, lazy=COMMANDS)
def job() -> None:
    """Submit, show, steer and kill jobs."""


@job.command(cls=Command)
def ls(session: Session) -> None:
    """List all jobs.

    With -q: their ids.
    """
    from torrentdist.client import job_client

    rows = ask_masters(session, lambda client: job_client.jobs(client))
    show_all(session, rows, value=lambda row: row.id, table=lambda: job_list(rows))


@job.command("show", cls=Command)
@click.argument("name", shell_complete=job_ids)
@watch_option
def show_one(session: Session, name: str, watches: bool) -> None:
    """Show one job, its workers and its story.

    With -q: its status.
    """
    from torrentdist.client import job_client

    id_ = job_id(name)

    def tell(view: JobView) -> None:
        show(session, view, value=view.status.value, table=lambda: job_page(view))

    if watches:
        watch(session, lambda client: job_client.job(client, id_), job_page, tell)
    else:
        tell(ask_masters(session, lambda client: job_client.job(client, id_)))


@job.command(cls=Command)
@click.argument("name", shell_complete=job_ids)
@dry_run_option
def activate(session: Session, name: str) -> None:
    """Let the workers run.

    With -q: the job's id.
    """
    from torrentdist.client import job_client

    show_changed(session, ask_masters(session, lambda client: job_client.activate(client, job_id(name))))


@job.command(cls=Command)
@click.argument("name", shell_complete=job_ids)
@dry_run_option
def deactivate(session: Session, name: str) -> None:
    """Stop the workers gracefully, and keep their places.

    With -q: the job's id.
    """
    from torrentdist.client import job_client

    show_changed(session, ask_masters(session, lambda client: job_client.deactivate(client, job_id(name))))


@job.command(cls=Command)
@click.argument("name", shell_complete=job_ids)
@click.option("-w", "--wait", type=DURATION, default="0", help="How long to wait first.")
@click.option("--workers", type=click.IntRange(min=1), help="The new number of workers.")
@dry_run_option
def rebalance(session: Session, name: str, wait: float, workers: int | None) -> None:
    """Spread the workers evenly again, and change their number if wanted.

    With -q: the job's id.
    """
    from torrentdist.client import job_client

    async def work(client: MasterClient) -> JobView:
        return await job_client.rebalance(client, job_id(name), wait=wait, workers=workers)

    show_changed(session, ask_masters(session, work))


@job.command(cls=Command)
@click.argument("name", shell_complete=job_ids)
@click.option("-w", "--wait", type=DURATION, help="The delay before it is removed; by default that of job.toml.")
@dry_run_option
def kill(session: Session, name: str, wait: float | None) -> None:
    """Deactivate the job now, and remove it after a delay.

    With -q: the job's id.
    """
    from torrentdist.client import job_client

    show_changed(session, ask_masters(session, lambda client: job_client.kill(client, job_id(name), wait=wait)))


@click.command(cls=Command)
@click.argument("name", shell_complete=job_ids)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new output until the job has ended.")
@click.option("--worker", "workers", type=click.IntRange(min=0), multiple=True, help="Only these workers.")
@click.option("--stream", type=click.Choice(STREAMS), help="Only this stream; by default both.")
@click.option("-n", "--lines", type=click.IntRange(min=0), help="Only the last lines of each stream.")
def logs(
    session: Session, name: str, follow: bool, workers: tuple[int, ...], stream: str | None, lines: int | None
) -> None:
    """Print what a job's workers write, wherever they run.

    A line begins with its worker's number, and with `stderr` if it is of that stream. With one
    --worker and a --stream, or with -q, there are only the lines.
    """
    job = job_id(name)
    wanted = Wanted(frozenset(workers) if workers else None, (stream,) if stream else STREAMS, lines)
    bare = session.quiet or (len(workers) == 1 and stream is not None)
    found: list[dict[str, Any]] = []

    def emit(line: LogLine) -> None:
        if session.output in (None, OutputFormat.TABLE):
            put_output("" if bare else _prefix(line), line.line)
        elif session.output is OutputFormat.JSONL or follow:
            put_data(msgspec.json.encode(_view(line)))
        else:
            found.append(_view(line))

    async def work() -> None:
        async with masters(session.config().client) as client:
            read = follow_logs if follow else read_logs
            await read(client, job, wanted, emit, say)

    run(work())
    if session.output is OutputFormat.JSON and not follow:
        show_all(session, found, value=lambda line: line["line"], table=str)


def _prefix(line: LogLine) -> str:
    return f"[{line.worker}] " if line.stream == STREAMS[0] else f"[{line.worker} {line.stream}] "


def _view(line: LogLine) -> dict[str, Any]:
    text = line.line.decode(errors="replace")
    return {"worker": line.worker, "supervisor": line.supervisor, "stream": line.stream, "line": text}
