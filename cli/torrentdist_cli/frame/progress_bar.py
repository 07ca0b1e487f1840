"""Shows a command's transfer on stderr as --progress says: by default as a bar on a terminal,
otherwise as a line every ten seconds, and not at all with --quiet.

Never: slow down the transfer. It may skip any of the transfer's reports.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from torrentdist.api.transfer_display import P, Picture, Show, amounts, paced, sentence, transfer_bar
from torrentdist.model.wire.fleet_messages import FleetView, HostState
from torrentdist_cli.frame.command import ProgressStyle, Session
from torrentdist_cli.frame.terminal import say

JSON_SECS = 1.0
"""A program that reads the progress gets at most one line in this time."""


@contextmanager
def transfer_display(session: Session) -> Iterator[Show]:
    """Yields a function to call with every report of a transfer."""
    lines = lines_of(session.progress_style, sentence)
    if lines is not None:
        yield lines
    else:
        with transfer_bar() as show:
            yield show


def lines_of(style: ProgressStyle, line: Callable[[P], str]) -> Callable[[P], None] | None:
    """Returns the function that shows reports as lines, or not at all. None: a terminal gets a
    bar."""
    if style is ProgressStyle.NONE:
        return lambda picture: None
    if style is ProgressStyle.JSON:
        return paced(lambda picture: say(as_json(picture)), JSON_SECS)
    if style is ProgressStyle.AUTO and sys.stderr.isatty():
        return None
    return paced(lambda picture: say(line(picture)))


def as_json(picture: Picture) -> str:
    """Returns a report as one line of JSON. That of a fleet counts its hosts and names none."""
    if not isinstance(picture, FleetView):
        return msgspec.json.encode(picture).decode()
    done, whole = amounts(picture)
    hosts = sum(host.state is HostState.DONE for host in picture.hosts)
    rate = sum(host.rate for host in picture.hosts)
    fleet = {"phase": "fetching", "done": done, "size": whole, "rate": rate}
    return msgspec.json.encode({**fleet, "hosts": len(picture.hosts), "hosts_done": hosts}).decode()
