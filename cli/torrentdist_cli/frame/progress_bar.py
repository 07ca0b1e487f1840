"""Shows a transfer on stderr: as a bar on a terminal, otherwise as a line every ten seconds, and
not at all with --quiet.

Never: slow down the transfer. It may skip any of the transfer's reports.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from torrentdist.client.bundles.transfer_progress import TransferProgress, TransferStage, UploadProgress
from torrentdist.model.wording import counted, printable
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.frame.terminal import say
from torrentdist_cli.frame.units import duration, percent, rate, size

if TYPE_CHECKING:
    from rich.console import Console

Picture = TransferProgress | UploadProgress
Show = Callable[[Picture], None]
T = TypeVar("T")

LINE_SECS = 10.0
_NAMED = 3
"""Most masters named in one line."""


@contextmanager
def transfer_display(session: Session) -> Iterator[Show]:
    """Yields a function to call with every report of a transfer."""
    if session.quiet:
        yield lambda picture: None
    elif sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield paced(lambda picture: say(sentence(picture)))


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
    share = percent(picture.done / picture.size) if picture.size else "0%"
    return ", ".join(
        [f"{picture.phase.value} {share}", f"{size(picture.done)} of {size(picture.size)}", *_details(picture)]
    )


def _details(picture: Picture) -> Iterator[str]:
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


@contextmanager
def _bar() -> Iterator[Show]:
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description:<9}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[details]}", markup=False),
    )
    with Progress(*columns, console=stderr_console(), transient=True) as progress:
        task = progress.add_task("", total=None, details="")

        def show(picture: Picture) -> None:
            details = [f"{size(picture.done)} of {size(picture.size)}", *_details(picture)]
            progress.update(
                task,
                description=picture.phase.value,
                completed=picture.done,
                total=picture.size or None,
                details=printable(", ".join(details)),
            )

        yield show


def stderr_console() -> Console:
    from rich.console import Console

    return Console(stderr=True)
