"""Sends parts of pages to open browsers again and again, as server-sent events.

Always: each part is made once a second at most, for all browsers that show it, and only while one
does and there is something new to show. One that takes long to make is made less often, so that it
takes a small share of a processor. A stream ends by itself, so that its sender proves itself anew.
Never: keep what a slow browser has not read; it gets the newest part next.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.web import StreamedAnswer, number_parameter
from torrentdist.host.telemetry.metrics import Metrics
from torrentdist.model.errors import TorrentdistError

PERIOD_SECS = 1.0
LONGEST_PERIOD_SECS = 5.0
MOST_SHARE = 0.005
"""Largest share of a processor that one part may take. An expensive part is made less often, but
at least every LONGEST_PERIOD_SECS."""
OLDEST_SECS = 60.0
"""A part is made anew after this time even if its state is the same: certificates expire without
any change of a record."""
STREAM_SECS = 30.0
"""A stream's length. The browser opens the next one by itself."""
SAME: Final = b": the same\nevent: tick\ndata: 1\n\n"
"""Says that the last event still holds, so that a page knows its age."""
RETRY: Final = b"retry: 1000\n"
"""How soon a browser opens the next stream."""
MOST_STREAMS = 200
MOST_STREAMS_EACH = 50
"""Most streams of one sender."""
MOST_PARTS = 2 * MOST_STREAMS
"""Most parts that are kept, because callers can ask for any number of different ones."""
Make = Callable[[], Awaitable[str]]
State = Callable[[], Hashable]
"""Returns a value that changes whenever the content of a part may have changed."""
ALWAYS_NEW: Final[State] = object
"""The state of parts that are made from hosts' answers: this master cannot know whether the
answers have changed."""


class _PartSource(msgspec.Struct, frozen=True):
    make: Make
    state: State


@dataclass
class _Part:
    """The newest event of one part."""

    event: bytes = b""
    state: Hashable = None
    """The state when the event was made."""
    made_at: float = float("-inf")
    next_at: float = float("-inf")
    """When its state is looked at again, if a browser shows it."""
    making: asyncio.Lock = field(default_factory=asyncio.Lock)


class LiveFeeds:
    def __init__(self, metrics: Metrics, state: State) -> None:
        """`state` is used for every part that has no state of its own."""
        self._metrics = metrics
        self._state = state
        self._parts: dict[str, _Part] = {}
        self._streams: Counter[str] = Counter()
        """The open streams of each sender."""
        self._opening: Counter[str] = Counter()
        """Streams of which the first part is made just now."""

    async def answer(self, request: Request, part: str, make: Make, state: State | None = None) -> Response:
        """Answers with a stream of one part. `part` is its name, and `make` returns its content.
        Only those who may read the same bundles share a part."""
        sender = principal_of(request)
        part = f"{sender.reads} {sorted(sender.own_bundles)} {part}"
        secs = number_parameter(request, "timeout", STREAM_SECS, low=0.0, high=STREAM_SECS)
        own = self._streams[sender.name] + self._opening[sender.name]
        count = self._streams.total() + self._opening.total()
        if own >= MOST_STREAMS_EACH or count >= MOST_STREAMS:
            raise TorrentdistError(
                "not_ready", detail=f"{count} pages of the console are open here, {own} of them yours"
            )
        source = _PartSource(make, state or self._state)
        self._opening[sender.name] += 1
        try:
            first = await self._event(part, source)  # raises what is wrong before the answer begins
        finally:
            self._opening -= Counter([sender.name])
        events = self._events(sender.name, part, source, first, secs)
        return StreamedAnswer(events, media_type="text/event-stream")

    async def _events(
        self, sender: str, part: str, source: _PartSource, event: bytes, secs: float
    ) -> AsyncIterator[bytes]:
        self._streams[sender] += 1
        try:
            loop = asyncio.get_running_loop()
            end, sent = loop.time() + secs, b""
            while True:
                yield SAME if event == sent else RETRY + event
                sent = event
                if loop.time() + PERIOD_SECS > end:
                    return
                await asyncio.sleep(PERIOD_SECS)
                event = await self._event(part, source)
        except TorrentdistError:
            return  # what it showed is gone
        finally:
            self._streams -= Counter([sender])
            if not self._streams:
                self._parts.clear()

    async def _event(self, name: str, source: _PartSource) -> bytes:
        part = self._parts.setdefault(name, _Part())
        async with part.making:
            now = asyncio.get_running_loop().time()
            if now >= part.next_at:
                try:
                    cost = await self._renew(part, source, now)
                except BaseException:
                    self._parts.pop(name, None)
                    raise
                part.next_at = now + period_of(cost) * 0.9
                self._keep(name, part)
            return part.event

    async def _renew(self, part: _Part, source: _PartSource, now: float) -> float:
        """Makes a part anew if its state has changed. Returns the processor time that this took."""
        began = time.thread_time()
        state = source.state()
        cost = time.thread_time() - began
        if state != part.state or now >= part.made_at + OLDEST_SECS:
            work = _Timed(source.make)
            part.event = event_of(await work)
            part.state, part.made_at = state, now
            cost += work.cost
            self._metrics.count("console_parts_total")
        self._metrics.count("console_seconds_total", by=cost)
        return cost

    def _keep(self, name: str, part: _Part) -> None:
        """Keeps a part. If there are too many, drops those that were asked for longest ago."""
        self._parts.pop(name, None)
        self._parts[name] = part
        while len(self._parts) > MOST_PARTS:
            self._parts.pop(next(iter(self._parts)))


class _Timed:
    """Awaits the result of `make`. `cost` is the processor time of this work alone, without that of
    other tasks which ran on this thread meanwhile."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self.cost = 0.0

    def __await__(self) -> Generator[Any, Any, str]:
        steps = self._make().__await__()
        step: Callable[[], Any] = partial(next, steps)
        while True:
            began = time.thread_time()
            try:
                waits_for = step()
            except StopIteration as end:
                return str(end.value)
            finally:
                self.cost += time.thread_time() - began
            try:
                yield waits_for
                step = partial(next, steps)
            except BaseException as exc:  # above all, a cancellation
                step = partial(steps.throw, exc)


def period_of(cost: float) -> float:
    """Returns the seconds until a part is made again that costs `cost` seconds of processor
    time."""
    return min(LONGEST_PERIOD_SECS, max(PERIOD_SECS, cost / MOST_SHARE))


def event_of(text: str) -> bytes:
    """Returns a text as one event."""
    return "".join(f"data: {line}\n" for line in text.splitlines() or [""]).encode() + b"\n"
