"""Shows an answer again and again until Ctrl-C: in place on a terminal, otherwise once for each
change.

Always: the terminal's size is read for each answer. Ctrl-C ends it with exit code 0. An outage is
shown, and the question repeated.
Never: draw for a program. It gets whole answers, one after another.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.wording import printable
from torrentdist_cli.frame.asking_masters import masters
from torrentdist_cli.frame.command import OutputFormat, Session
from torrentdist_cli.frame.terminal import say

if TYPE_CHECKING:
    from torrentdist.client.masters.master_client import MasterClient

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
EVERY_SECS = 2.0


def watch_option(function: F) -> F:
    """Adds --watch to a command that shows something."""
    option = click.option("--watch", "watches", is_flag=True, help="Show it again and again, until Ctrl-C.")
    return option(function)


def on_terminal(session: Session) -> bool:
    """Whether the answer is drawn in place."""
    return sys.stdout.isatty() and session.output in (None, OutputFormat.TABLE) and not session.value_only


def watch(
    session: Session,
    ask: Callable[[MasterClient], Awaitable[T]],
    picture: Callable[[T], str],
    show: Callable[[T], None],
    every: float = EVERY_SECS,
) -> None:
    """Asks every `every` seconds. `picture` returns the text for a terminal, `show` writes the
    answer for a program."""
    if on_terminal(session):
        _draw(session, ask, picture, every)
        return
    seen: list[T] = []

    def tell(view: T) -> None:
        if seen != [view]:
            seen[:] = [view]
            show(view)
            sys.stdout.flush()

    asyncio.run(_ask_for_ever(session, ask, tell, say, every))


def _draw(
    session: Session, ask: Callable[[MasterClient], Awaitable[T]], picture: Callable[[T], str], every: float
) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def lines(text: str) -> Text:
            rows = printable(text, keep="\n").splitlines()[: max(1, console.height - 1)]
            return Text("\n".join(rows), no_wrap=True, overflow="ellipsis")

        def show(text: str) -> None:
            live.update(lines(text), refresh=True)

        last: list[str] = [""]

        def tell(view: T) -> None:
            last[0] = picture(view)
            show(last[0])

        def trouble(sentence: str) -> None:
            show(f"{sentence}\n\n{last[0]}")

        asyncio.run(_ask_for_ever(session, ask, tell, trouble, every))


async def _ask_for_ever(
    session: Session,
    ask: Callable[[MasterClient], Awaitable[T]],
    tell: Callable[[T], None],
    trouble: Callable[[str], None],
    every: float,
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    heard = False
    async with masters(session.config().client) as client:
        while not stopped.is_set():
            asking = asyncio.ensure_future(ask(client))
            stopping = asyncio.ensure_future(stopped.wait())
            await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking})
                return
            try:
                tell(asking.result())
                heard = True
            except TorrentdistError as error:
                if not heard or error.exit_code != EXIT_UNAVAILABLE:
                    raise
                trouble(error.message)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await stopped.wait()
