"""The event loop of a test or of a daemon never waits: a callback that takes 50 ms of processor
time turns the test red.

Daemons of clusters and job hosts log their slow callbacks; every test looks at what was logged
since the one before it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from torrentdist.host.event_loop.slow_callbacks import LIMIT_SECS, SlowCallback, watched_callbacks
from torrentdist.model.configuration.settings import SLOW_CALLBACKS

WATCHED = {SLOW_CALLBACKS: str(LIMIT_SECS)}
"""Makes a daemon log its slow callbacks: a part of its environment."""
STARTED = (b'"master started"', b'"supervisor started"')
"""Until it logs this, a daemon serves nobody, and may take long: libtorrent needs 30 to 45 ms for
its session alone, and its threads get their priority from the thread that makes it."""

_open: list[DaemonLogs] = []


class DaemonLogs:
    """What daemons have logged; each line is read once."""

    def __init__(self, find: Callable[[], Iterable[Path]]) -> None:
        self._find = find
        self._read: dict[Path, int] = {}
        self._starting: set[Path] = set()

    def slow_callbacks(self) -> list[str]:
        return [told for log in self._find() for told in self._slow_in(log)]

    def _slow_in(self, log: Path) -> list[str]:
        found = []
        for line in self._new_lines(log):
            if b'"starting"' in line:
                self._starting.add(log)
            elif any(word in line for word in STARTED):
                self._starting.discard(log)
            elif b'"slow callback"' in line and log not in self._starting:
                said = json.loads(line)
                found.append(f"{log}: {said['secs']} s: {said['stack'] or said['callback']}")
        return found

    def _new_lines(self, log: Path) -> list[bytes]:
        """Returns the whole lines that were not returned before."""
        if not log.exists():
            return []
        with log.open("rb") as file:
            file.seek(self._read.get(log, 0))
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read[log] = self._read.get(log, 0) + len(whole)
        return whole.splitlines()


@contextlib.contextmanager
def quick_daemons(find: Callable[[], Iterable[Path]]) -> Iterator[None]:
    """Tests fail while and after this block if a daemon with one of these logs was slow."""
    logs = DaemonLogs(find)
    _open.append(logs)
    try:
        yield
    finally:
        _open.remove(logs)
    fail_if(logs.slow_callbacks())


def fail_if(told: list[str]) -> None:
    if told:
        pytest.fail("an event loop was held up:\n" + "\n".join(told), pytrace=False)


def overlook_start() -> None:
    """Passes over what the daemons have logged so far. For a test whose daemon starts with very
    many records: it reads them in one go, before it leads."""
    for logs in _open:
        logs.slow_callbacks()


@pytest.fixture(autouse=True)
def _daemons_are_quick() -> Iterator[None]:
    yield
    fail_if([told for logs in _open for told in logs.slow_callbacks()])


@pytest.fixture
def quick_callbacks() -> Iterator[list[SlowCallback]]:
    """The callbacks that were too slow so far. The list must be empty at the end of the test."""
    found: list[SlowCallback] = []
    with watched_callbacks(found.append):
        yield found
    fail_if([f"{slow.secs:.3f} s: {slow.stack or slow.callback}" for slow in found])
