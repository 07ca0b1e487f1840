"""Looks at what a daemon tells masters of its host: the room of its store, when that is used up,
whether its clock is right, and when its certificate ends.

Always: the pace is that of the last week. A sample an hour of the room is kept on disk, so that a
restart forgets none. A damaged file is begun anew: nothing is decided by it.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from torrentdist.bundle.files.durability import write_durably
from torrentdist.bundle.store.retention import StoreMarks, room_for, why_full
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.host.host_store import HostStore
from torrentdist.log import get_logger
from torrentdist.model.wire.swarm_messages import HostCondition
from torrentdist.model.wire.view import decode_json
from torrentdist.security.live_tls import LiveTls

log = get_logger()

NAME = "room.json"
CLOCK_SECS = 5.0
"""A clock that is wrong by more is worth a look: people compare logs by it."""
ROOM_STEP = 2**20
"""Room is told in steps of this many bytes."""
SAMPLE_SECS = 3600.0
WEEK_SECS = 7 * 86_400.0
LEAST_SECS = 6 * 3600.0
"""Samples of a shorter time say nothing about tomorrow."""
Sample = tuple[float, int]
"""A time, and the room then."""


def sampled(samples: Sequence[Sample], now: float, room: int) -> tuple[Sample, ...]:
    """Returns the samples of the last week, with a new one if it is time."""
    kept = tuple(sample for sample in samples if now - WEEK_SECS <= sample[0] <= now)
    return kept if kept and now - kept[-1][0] < SAMPLE_SECS else (*kept, (now, room))


def fills_in(samples: Sequence[Sample], now: float, room: int) -> float:
    """Returns the seconds until the room is used up at the pace of the samples; 0: it does not get
    less, or nobody can tell yet."""
    if not samples or now - samples[0][0] < LEAST_SECS:
        return 0.0
    began, before = samples[0]
    return room / (before - room) * (now - began) if before > room else 0.0


class ConditionWatch:
    """`marks`: those that the store is kept below."""

    def __init__(
        self, store: HostStore, data_dir: Path, zookeeper: ZooKeeper, marks: StoreMarks, tls: LiveTls | None
    ) -> None:
        self._tls = tls
        self._store = store
        self._zookeeper = zookeeper
        self._marks = marks
        self._path = data_dir / NAME
        self._samples: tuple[Sample, ...] | None = None
        self.last = HostCondition()

    async def look(self) -> HostCondition:
        taken, usage = await self._store.taken_bytes() if self._marks.high else 0, self._store.usage()
        room, error, now = room_for(usage, self._marks, taken), self._zookeeper.clock_error(), time.time()
        samples = await self._noted(now, room)
        self.last = HostCondition(
            full=why_full(usage, self._marks, taken),
            free=room // ROOM_STEP * ROOM_STEP,
            fills_in=float(round(fills_in(samples, now, room), -2)),
            clock=float(round(error)) if abs(error) > CLOCK_SECS else 0.0,
            certificate_ends_at=0.0 if self._tls is None else self._tls.facts.expires_at,
        )
        return self.last

    async def _noted(self, now: float, room: int) -> tuple[Sample, ...]:
        known = await asyncio.to_thread(self._read) if self._samples is None else self._samples
        self._samples = samples = sampled(known, now, room)
        if samples != known:
            try:
                await asyncio.to_thread(write_durably, self._path, msgspec.json.encode(samples), 0o600)
            except OSError as exc:
                log.debug("the room of the store is not noted", path=str(self._path), reason=str(exc))
        return samples

    def _read(self) -> tuple[Sample, ...]:
        try:
            return decode_json(self._path.read_bytes(), tuple[Sample, ...])
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, msgspec.MsgspecError) as exc:
            log.warning("the samples of the store's room are begun anew", path=str(self._path), reason=str(exc))
            return ()
