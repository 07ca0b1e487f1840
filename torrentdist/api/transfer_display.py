"""Shows the progress of a call on stderr: as a bar on a terminal, otherwise as a line from time to
time.

Always: text from outside is made printable first, so that no name can control a terminal.
Never: slow down the transfer. It may skip any of the transfer's reports.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from torrentdist.api.human_units import duration, percent, rate, size
from torrentdist.client.bundles.transfer_progress import TransferProgress, TransferStage, UploadProgress
from torrentdist.model.wire.fleet_messages import FleetView, HostState
from torrentdist.model.wording import counted, printable

if TYPE_CHECKING:
    from rich.console import Console

Picture = TransferProgress | UploadProgress | FleetView
Show = Callable[[Picture], None]
P = TypeVar("P", bound=Picture)
Progress = bool | Callable[[P], None] | None
"""How a call shows its progress. None: a bar, if stderr is a terminal. True: a bar, or lines where
stderr is no terminal. False: not at all. A function gets every report."""
T = TypeVar("T")

LINE_SECS = 10.0
_NAMED = 3
"""Most masters named in one line."""


@contextmanager
def shown(progress: Progress[P]) -> Iterator[Callable[[P], None]]:
    """Yields the function to call with every report of a call that was told to show `progress`."""
    if callable(progress):
        yield progress
    elif progress is False or (progress is None and not sys.stderr.isatty()):
        yield lambda picture: None
    elif sys.stderr.isatty():
        with transfer_bar() as show:
            yield show
    else:
        yield paced(lambda picture: print(printable(sentence(picture)), file=sys.stderr))


def paced(
    show: Callable[[T], None], period: float = LINE_SECS, clock: Callable[[], float] = time.monotonic
) -> Callable[[T], None]:
    """Returns a function that calls `show` at most once per period, and not before the first period
    is over."""
    due = clock() + period

    def show_if_due(picture: T) -> None:
        nonlocal due
        if clock() >= due:
            due = clock() + period
            show(picture)

    return show_if_due


def sentence(picture: Picture) -> str:
    """Returns one line about a transfer: `fetching 45%, 1.2 GiB of 2.6 GiB, 118.3 MiB/s, 12s left,
    80% from peers`."""
    done, whole = amounts(picture)
    share = percent(done / whole) if whole else "0%"
    return ", ".join([f"{_phase(picture)} {share}", f"{size(done)} of {size(whole)}", *_details(picture)])


def amounts(picture: Picture) -> tuple[int, int]:
    """Returns the bytes that are done and the bytes of the whole."""
    if not isinstance(picture, FleetView):
        return picture.done, picture.size
    done = sum(picture.size if host.state is HostState.DONE else min(host.done, picture.size) for host in picture.hosts)
    return done, picture.size * len(picture.hosts)


def _phase(picture: Picture) -> str:
    return "fetching" if isinstance(picture, FleetView) else picture.phase.value


def _details(picture: Picture) -> Iterator[str]:
    if isinstance(picture, FleetView):
        yield from _fleet_details(picture)
        return
    if picture.rate:
        yield rate(picture.rate)
    if picture.eta is not None and picture.done < picture.size:
        yield f"{duration(picture.eta)} left"
    if isinstance(picture, UploadProgress):
        if picture.wanted:
            yield f"{picture.replicas} of {counted(picture.wanted, 'replica')}"
        if picture.done >= picture.size and picture.lacking and picture.replicas < picture.wanted:
            yield "; ".join(f"{master} {why}" for master, why in list(picture.lacking.items())[:_NAMED])
    elif received := picture.from_masters + picture.from_peers:
        yield f"{percent(picture.from_peers / received)} from peers"
    if picture.phase is TransferStage.FETCHING:
        yield counted(picture.peers, "peer")


def _fleet_details(fleet: FleetView) -> Iterator[str]:
    if flow := sum(host.rate for host in fleet.hosts):
        yield rate(flow)
    done = sum(host.state is HostState.DONE for host in fleet.hosts)
    yield f"{done} of {counted(len(fleet.hosts), 'host')} done"


@contextmanager
def transfer_bar() -> Iterator[Show]:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description:<9}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[details]}", markup=False),
    )
    with Bars(*columns, console=stderr_console(), transient=True) as bars:
        task = bars.add_task("", total=None, details="")

        def show(picture: Picture) -> None:
            done, whole = amounts(picture)
            details = [f"{size(done)} of {size(whole)}", *_details(picture)]
            bars.update(
                task,
                description=_phase(picture),
                completed=done,
                total=whole or None,
                details=printable(", ".join(details)),
            )

        yield show


def stderr_console() -> Console:
    from rich.console import Console

    return Console(stderr=True)
