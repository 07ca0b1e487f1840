"""The audit of one master: the changes that it was asked for, and the refusals that it gave. A
client asks every master over HTTP, and merges what they say.

Each change is an event of the master, so it is kept as long as the events are. The last ones are
in memory, and are read from the events when the master starts.

Always: the memory is bounded. Refusals are counted by source.
Never: fail or delay a request.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.web import json_response, number_parameter
from torrentdist.host.telemetry.audit_log import AuditLog
from torrentdist.host.telemetry.event_log import EventLog
from torrentdist.master.http.routes import LONGEST_WAIT, Routes, operation, seconds_of
from torrentdist.model.access.audit_messages import AuditView
from torrentdist.model.events import AccessAudited
from torrentdist.model.wire.view import decode_json, view_of
from torrentdist.security.authorization import Principal, Role, may_read, reads_everything

MOST_ENTRIES: Final = 10_000
MOST_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of the events, counted from the newest, that are read when the master starts."""
_MARK: Final = b'"event":"access_audited"'


class AuditTrail:
    """`now` returns the time by ZooKeeper's clock; by this host's clock while it is unknown."""

    def __init__(self, master: str, events: EventLog, now: Callable[[], float]) -> None:
        self._master = master
        self._events = events
        self._now = now
        self._entries: deque[AuditView] = deque(maxlen=MOST_ENTRIES)
        self.log = AuditLog(self._keep)

    async def load(self, directory: Path) -> None:
        """Reads the changes from the events that this master has written."""
        self._entries.extend(await asyncio.to_thread(lambda: deque(told_in(directory), maxlen=MOST_ENTRIES)))

    def entries(self, sender: Principal, within: float, who: str, bundle: str, most: int) -> list[AuditView]:
        """Returns the entries of the last `within` seconds that match and that the sender may see,
        the newest first.

        Empty text matches all.
        """
        since = self._now() - within
        pending = [self._view(fact) for fact in self.log.pending()]
        found: list[AuditView] = []
        for entry in (*pending, *reversed(self._entries)):
            matches = entry.at >= since and who in ("", entry.who) and bundle in ("", entry.bundle)
            if matches and may_see(sender, entry):
                found.append(entry)
                if len(found) == most:
                    break
        return found

    def _keep(self, fact: AccessAudited) -> None:
        self._events.emit(fact)
        self._entries.append(self._view(fact))

    def _view(self, fact: AccessAudited) -> AuditView:
        return _view_of(fact, self._now(), self._master)


def may_see(sender: Principal, entry: AuditView) -> bool:
    """Whether an entry tells nothing of what is hidden from the sender. Everybody sees the own
    changes.
    """
    is_own = entry.who == sender.name
    return is_own or reads_everything(sender) or (entry.bundle != "" and may_read(sender, entry.bundle))


def _view_of(fact: AccessAudited, at: float, master: str) -> AuditView:
    return view_of(AuditView, fact, at=at, role=fact.sender_role, master=master)


class _AuditLine(msgspec.Struct, frozen=True):
    node: str
    at: float
    clock: float | None = None


def told_in(directory: Path) -> Iterator[AuditView]:
    """The entries in the files of a directory, the oldest first. A torn line is skipped."""
    for line in _lines(directory):
        if _MARK in line:
            try:
                told, fact = decode_json(line, _AuditLine), decode_json(line, AccessAudited)
            except msgspec.MsgspecError:
                continue
            yield _view_of(fact, told.at + (told.clock or 0.0), told.node)


def _lines(directory: Path) -> Iterator[bytes]:
    files: list[tuple[int, Path]] = []
    room = MOST_BYTES
    for path in sorted(directory.glob("events-*.jsonl"), key=lambda path: path.name.rpartition("-")[2], reverse=True):
        try:
            size = path.stat().st_size
        except OSError:  # another program may move files away
            continue
        if size > room:
            break
        room -= size
        files.append((size, path))
    for _, path in reversed(files):
        try:
            yield from path.read_bytes().splitlines()
        except OSError:
            continue


DEFAULT_ENTRIES = 1000


class AuditApi(Routes, msgspec.Struct, frozen=True):
    trail: AuditTrail

    @operation("GET", "/v1/audit", list[AuditView], Role.READER)
    async def audit(self, request: Request) -> Response:
        """The changes at this master with their authors, the newest first."""
        within = seconds_of(request, "within", LONGEST_WAIT)
        most = int(number_parameter(request, "n", DEFAULT_ENTRIES, low=1, high=MOST_ENTRIES))
        who, bundle = request.query_params.get("who", ""), request.query_params.get("bundle", "")
        return json_response(self.trail.entries(principal_of(request), within, who, bundle, most))
