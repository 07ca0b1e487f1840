"""`torrentdist job logs`: prints what a job's workers write, wherever they run."""

from typing import Any

import click
import msgspec

from torrentdist.client.job_logs import STREAMS, LogLine, Wanted, follow_logs, read_logs
from torrentdist.model.ids import job_id
from torrentdist_cli.frame.asking_masters import masters
from torrentdist_cli.frame.command import Command
from torrentdist_cli.frame.interruption import run
from torrentdist_cli.frame.invocation import OutputFormat, Session
from torrentdist_cli.frame.rendering import show_all
from torrentdist_cli.frame.terminal import put_data, put_output, say
from torrentdist_cli.shell.candidates import job_ids


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
