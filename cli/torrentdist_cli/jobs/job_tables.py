"""How jobs look on a terminal: the list of jobs, the page of one job, and the facts after a change.

Always: a value that no supervisor has reported yet is shown as unknown, not as zero.
Never: ask a master.
"""

import time
from collections import Counter

from torrentdist.model.jobs.folded_story import folded
from torrentdist.model.wire.job_messages import JobView, WorkerState, WorkerView
from torrentdist_cli.frame.command import Session
from torrentdist_cli.frame.rendering import duration, facts, grid, show

UNKNOWN = "?"


def show_changed(session: Session, view: JobView) -> None:
    """Shows a job that was just changed, without its workers. They change a little later, and `job
    show` lists them."""
    show(session, view, value=view.id, table=lambda: facts(job_facts(view)))


def _running(view: JobView) -> str:
    """Returns the number of running workers, as `2/3`, or `?/3` until every worker is known."""
    states = [worker.state for worker in view.workers]
    return f"{UNKNOWN if None in states else states.count(WorkerState.RUNNING)}/{view.wanted}"


def job_list(rows: list[JobView]) -> str:
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


def job_facts(view: JobView) -> list[tuple[str, str]]:
    pairs = [
        ("id", view.id),
        ("name", view.name),
        ("status", view.status.value),
        ("bundle", view.bundle),
        ("workers", _states(view)),
    ]
    if view.dependencies:
        pairs.append(("needs", ", ".join(view.dependencies)))
    if view.signature is not None:
        pairs.append(("signed by", ", ".join(view.signature.key_ids)))
    if view.due_in is not None:
        pairs.append(("due in", duration(view.due_in)))
    pairs += [("application", f"{w.application} {w.ui}".strip()) for w in view.workers if w.application]
    if view.reason:
        pairs.append(("note", view.reason))
    return pairs


def job_page(view: JobView) -> str:
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
    return "\n\n".join([facts(job_facts(view)), workers, *([_story(view)] if view.events != [] else [])])


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
        for event in folded(view.events)
    ]
    return grid(("AT", "EVENT", "WORKER", "SUPERVISOR", "NOTE"), rows)
