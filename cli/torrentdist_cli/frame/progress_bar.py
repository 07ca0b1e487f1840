"""Shows a command's transfer on stderr: as a bar on a terminal, otherwise as a line every ten
seconds, and not at all with --quiet.

Never: slow down the transfer. It may skip any of the transfer's reports.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from torrentdist.api.transfer_display import Picture, Show, paced, sentence, stderr_console, transfer_bar
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.frame.terminal import say

__all__ = ["Picture", "Show", "paced", "sentence", "stderr_console", "transfer_display"]


@contextmanager
def transfer_display(session: Session) -> Iterator[Show]:
    """Yields a function to call with every report of a transfer."""
    if session.quiet:
        yield lambda picture: None
    elif sys.stderr.isatty():
        with transfer_bar() as show:
            yield show
    else:
        yield paced(lambda picture: say(sentence(picture)))
