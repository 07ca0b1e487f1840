"""`torrentdist job`: submit jobs, see what they do, steer and kill them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from torrentdist.client import job_client as client_jobs
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.ids import job_id
from torrentdist.model.wire.job_messages import JobView, WorkerState, WorkerView
from torrentdist_cli.frame.command import Command, Group, Lazy
from torrentdist_cli.frame.interruption import run
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.frame.progress_bar import transfer_display
from torrentdist_cli.frame.reads import masters
from torrentdist_cli.frame.rendering import facts, grid, show, show_all
from torrentdist_cli.frame.units import DURATION, duration

T = TypeVar("T")


COMMANDS = {
    "logs": Lazy("torrentdist_cli.jobs.job_logs_command:logs", "Print what its workers print, wherever they run.")
}


@click.group(cls=Group, lazy=COMMANDS)
def job() -> None:
    """Submit, show, steer and kill jobs."""


@job.command(cls=Command)
@click.argument("what", metavar="PATH|ID")
@click.option("--name", help="Another name than job.toml's.")
@click.option("--workers", type=click.IntRange(min=1), help="Another number of workers than job.toml's.")
@click.option("--conf", metavar="K=V", multiple=True, help="Another value of job.toml, as restart.policy=never.")
@click.option("--inactive", is_flag=True, help="Replicate and record it, but let nothing run yet.")
@click.pass_obj
def submit(
    session: Session, what: str, name: str | None, workers: int | None, conf: tuple[str, ...], inactive: bool
) -> None:
    """Submit a directory with a job.toml, or a bundle that has one.

    With -q: the job's id.
    """
    pairs = dict(_pair(text) for text in conf)

    async def work() -> JobView:
        config = session.config()
        async with masters(config.client) as client:
            with transfer_display(session) as progress:
                return await client_jobs.submit(
                    client,
                    what,
                    name=name,
                    workers=workers,
                    conf=pairs,
                    activate=not inactive,
                    swarm=config.client_swarm,
                    progress=progress,
                )

    _show(session, run(work()))


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r} is not of the form K=V", param_hint="--conf")
    return key, value


@job.command(cls=Command)
@click.pass_obj
def ls(session: Session) -> None:
    """List all jobs.

    With -q: their ids.
    """
    rows = run(_with_client(session, client_jobs.jobs))
    show_all(session, rows, value=lambda row: row.id, table=lambda: _list(rows))


@job.command("show", cls=Command)
@click.argument("name")
@click.pass_obj
def show_one(session: Session, name: str) -> None:
    """Show one job, its workers and its story.

    With -q: its status.
    """
    view = run(_with_client(session, lambda client: client_jobs.job(client, job_id(name))))
    show(session, view, value=view.status.value, table=lambda: _table(view))


@job.command(cls=Command)
@click.argument("name")
@click.pass_obj
def activate(session: Session, name: str) -> None:
    """Let the workers run.

    With -q: the job's id.
    """
    _show(session, run(_with_client(session, lambda client: client_jobs.activate(client, job_id(name)))))


@job.command(cls=Command)
@click.argument("name")
@click.pass_obj
def deactivate(session: Session, name: str) -> None:
    """Stop the workers with grace, and keep their places.

    With -q: the job's id.
    """
    _show(session, run(_with_client(session, lambda client: client_jobs.deactivate(client, job_id(name)))))


@job.command(cls=Command)
@click.argument("name")
@click.option("-w", "--wait", type=DURATION, default="0", help="How long to wait before.")
@click.option("--workers", type=click.IntRange(min=1), help="The new number of workers.")
@click.pass_obj
def rebalance(session: Session, name: str, wait: float, workers: int | None) -> None:
    """Spread the workers evenly anew, maybe in another number.

    With -q: the job's id.
    """

    async def work(client: MasterClient) -> JobView:
        return await client_jobs.rebalance(client, job_id(name), wait=wait, workers=workers)

    _show(session, run(_with_client(session, work)))


@job.command(cls=Command)
@click.argument("name")
@click.option("-w", "--wait", type=DURATION, help="The delay before it is removed; as job.toml says if not given.")
@click.pass_obj
def kill(session: Session, name: str, wait: float | None) -> None:
    """Deactivate it now, and remove it after a delay.

    With -q: the job's id.
    """
    _show(session, run(_with_client(session, lambda client: client_jobs.kill(client, job_id(name), wait=wait))))


async def _with_client(session: Session, work: Callable[[MasterClient], Awaitable[T]]) -> T:
    async with masters(session.config().client) as client:
        return await work(client)


def _show(session: Session, view: JobView) -> None:
    """What was just changed: its workers are about to follow, and `job show` tells of each."""
    show(session, view, value=view.id, table=lambda: facts(_facts(view)))


UNKNOWN = "?"


def _running(view: JobView) -> str:
    """`2/3`; `?/3` while it is not known of every worker."""
    states = [worker.state for worker in view.workers]
    return f"{UNKNOWN if None in states else states.count(WorkerState.RUNNING)}/{view.wanted}"


def _list(rows: list[JobView]) -> str:
    return grid(
        ("ID", "NAME", "STATUS", "RUNNING", "BUNDLE", "NOTE"),
        [(row.id, row.name, row.status.value, _running(row), row.bundle, row.reason) for row in rows],
        right=("RUNNING",),
    )


def _state(worker: WorkerView) -> str:
    return "unknown" if worker.state is None else worker.state.value


def _states(view: JobView) -> str:
    others = Counter(_state(worker) for worker in view.workers if worker.state is not WorkerState.RUNNING)
    return ", ".join([f"{_running(view)} running", *(f"{count} {state}" for state, count in sorted(others.items()))])


def _facts(view: JobView) -> list[tuple[str, str]]:
    pairs = [
        ("id", view.id),
        ("name", view.name),
        ("status", view.status.value),
        ("bundle", view.bundle),
        ("workers", _states(view)),
    ]
    if view.dependencies:
        pairs.append(("needs", ", ".join(view.dependencies)))
    if view.due_in is not None:
        pairs.append(("due in", duration(view.due_in)))
    pairs += [("application", f"{w.application} {w.ui}".strip()) for w in view.workers if w.application]
    if view.reason:
        pairs.append(("note", view.reason))
    return pairs


def _table(view: JobView) -> str:
    rows = [
        (
            str(w.worker),
            w.supervisor or "",
            _state(w),
            UNKNOWN if w.pid is None else str(w.pid or ""),
            "" if w.exit_code is None else str(w.exit_code),
            UNKNOWN if w.restarts is None else str(w.restarts),
            w.detail,
        )
        for w in view.workers
    ]
    workers = grid(("WORKER", "SUPERVISOR", "STATE", "PID", "EXIT", "RESTARTS", "NOTE"), rows)
    return "\n\n".join([facts(_facts(view)), workers, *([_story(view)] if view.events != [] else [])])


def _story(view: JobView) -> str:
    if view.events is None:
        return "its story is unknown while ZooKeeper is away"
    rows = [
        (
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at)),
            event.event.value,
            "" if event.worker is None else str(event.worker),
            event.supervisor or "",
            event.detail,
        )
        for event in view.events
    ]
    return grid(("AT", "EVENT", "WORKER", "SUPERVISOR", "NOTE"), rows)
