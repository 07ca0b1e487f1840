"""The holds on this host's bundles, each with who reads it, in memory and on this host's disk. A
held bundle is neither evicted nor dropped.

Always: a hold counts from before it is written, and until its end is written, so that a crash
leaves too many holds rather than too few. Whoever takes a hold compares it with its mounts again
and again, and takes a missing one anew.
Never: decide when a hold ends. Whoever took it says so.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import msgspec

from torrentdist.bundle.files.durability import disk_failures, write_durably
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.swarm_messages import SwarmEntry
from torrentdist.model.wire.view import decode_json

log = get_logger()

FILE = "holds.json"
MOST_HOLDS = 5000
MOST_NAMED = 16
"""Readers of a bundle that masters are told by name."""
_SCHEMA = 1


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    bundle: BundleId
    digest: Digest
    target: str
    path: str = ""
    user: str = ""
    taken_at: float


class _SavedHolds(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = _SCHEMA
    holds: dict[str, Hold] = {}


class Holds:
    """`on_change` is called after a hold was taken or has ended."""

    def __init__(self, data_dir: Path, on_change: Callable[[], None]) -> None:
        self._file = data_dir / FILE
        self._on_change = on_change
        self._turn = asyncio.Lock()
        self._holds: Mapping[str, Hold] = MappingProxyType({})
        """Replaced as a whole, because other threads read it."""
        self._digests: frozenset[Digest] = frozenset()

    def load(self) -> None:
        """Reads what an earlier process has written. Blocks."""
        try:
            saved = decode_json(self._file.read_bytes(), _SavedHolds)
            if saved.schema != _SCHEMA:
                raise msgspec.ValidationError(f"schema {saved.schema}")
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as exc:
            log.error("cannot read the holds on bundles, starting without them", path=str(self._file), reason=str(exc))
            with suppress(OSError):
                self._file.rename(self._file.with_suffix(".damaged"))
            return
        self._now(saved.holds)

    def all(self) -> Mapping[str, Hold]:
        return self._holds

    def digests(self) -> frozenset[Digest]:
        """Returns the bundles that are held. Any thread may call it."""
        return self._digests

    def users(self, digest: Digest) -> list[str]:
        """Returns who reads a bundle, by name; a long list ends with how many more there are."""
        users = sorted({hold.user or hold.target for hold in self._holds.values() if hold.digest == digest})
        more = len(users) - MOST_NAMED
        return users if more <= 0 else [*users[:MOST_NAMED], f"{more} more"]

    def named_in(self, entries: list[SwarmEntry]) -> list[SwarmEntry]:
        """Adds the readers of held bundles to what masters are told of them."""
        held = self._digests
        return [
            msgspec.structs.replace(one, used_by=self.users(one.digest)) if one.digest in held else one
            for one in entries
        ]

    async def take(self, name: str, hold: Hold) -> None:
        async with self._turn:
            before = self._holds
            if name not in before and len(before) >= MOST_HOLDS:
                detail = f"this host has {MOST_HOLDS} holds on bundles, the most"
                raise TorrentdistError("bundle_unavailable", id=hold.bundle, detail=detail)
            self._now({**before, name: hold})
            try:
                await self._save(self._holds)
            except TorrentdistError:
                self._now(before)
                raise
        self._on_change()

    async def end(self, name: str) -> Hold | None:
        """Ends a hold. Returns what it was; None if there was none."""
        async with self._turn:
            ended = self._holds.get(name)
            if ended is not None:
                left = {other: hold for other, hold in self._holds.items() if other != name}
                await self._save(left)
                self._now(left)
        if ended is not None:
            self._on_change()
        return ended

    def _now(self, holds: Mapping[str, Hold]) -> None:
        self._holds = MappingProxyType(dict(holds))
        self._digests = frozenset(hold.digest for hold in holds.values())

    async def _save(self, holds: Mapping[str, Hold]) -> None:
        content = msgspec.json.encode(_SavedHolds(holds=dict(holds)))
        with disk_failures(self._file.parent):
            await asyncio.to_thread(write_durably, self._file, content, 0o600)
