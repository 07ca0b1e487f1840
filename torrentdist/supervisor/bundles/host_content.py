"""Reads the files of one bundle on this host, whether it is published or still arriving.

Always: pieces of an arriving bundle are read and hashed here before they are handed out. A file of
a published bundle is checked before it is read. If the fetch fails, reading fails with the same
error.
Never: fetch a bundle; the keeper does.
"""

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import msgspec

from torrentdist.bundle import merkle
from torrentdist.bundle.metafile import FileEntry, Metafile, WireFile
from torrentdist.host.http.file_answers import CHUNK, read_part
from torrentdist.model.errors import TorrentdistError

LOOK_SECS = 0.05
"""Interval between checks for a piece that a reader waits for."""
PLUGIN_LOOK_SECS = 0.25
"""The same interval if the plug-in cannot tell which pieces are here: each check then reads a piece
from disk."""
PACKS_AT_HAND = 8
"""Packs that a reader of the whole bundle keeps in memory. Neighbours are in few of them."""
PATIENCE_SECS = 10.0
"""How long a reader of the whole bundle waits for a piece before it asks for that piece first."""


class Pieces(Protocol):
    """The pieces of a running transfer."""

    def run_from(self, piece: int, most: int) -> int:
        """Returns how many pieces from this one on are verified, at most `most`."""

    def hurry(self, piece: int) -> None:
        """Requests this piece before all others."""

    def save(self) -> None:
        """Writes the received pieces to the files."""


class HostContent(msgspec.Struct, frozen=True, dict=True):
    meta: Metafile
    directory: Path
    """Where the files are, both before and after publication."""
    published: Callable[[], bool]
    failure: Callable[[], TorrentdistError | None]
    """Returns why the transfer failed; None if it has not."""
    pieces: Callable[[], Pieces | None]
    checked: Callable[[str], Awaitable[bool]]
    """Returns whether this file is as it was published. If it is not, the bundle is fetched
    again."""
    stall_secs: float = 45.0
    """Seconds without a new piece after which a reader gets the error of `stalled`."""
    stalled: Callable[[], TorrentdistError | None] = lambda: None

    @cached_property
    def _first_piece(self) -> dict[str, int]:
        """The number of the first piece of each file of the torrent, by its place."""
        counts = (-(-file.size // self.meta.piece_length) for file in self.meta.wire_files)
        starts = accumulate(counts, initial=0)
        return dict(zip((file.place for file in self.meta.wire_files), starts, strict=False))

    @cached_property
    def _packs(self) -> OrderedDict[str, bytes]:
        """The packs that were read last, by their place."""
        return OrderedDict()

    async def read_all(self, file: FileEntry) -> AsyncIterator[bytes]:
        """Reads a file for a reader who wants the whole bundle. Small files come from whole packs,
        which are read once."""
        wire, base = await self._place(file)
        pack = await self._pack(wire) if wire.is_pack else None
        if pack is not None:
            yield pack[base : base + file.size]
            return
        async for data in self.read(file, 0, file.size, PATIENCE_SECS):
            yield data

    async def _pack(self, wire: WireFile) -> bytes | None:
        """Returns a pack that is here and right; None if a piece of it is missing."""
        if (data := self._packs.get(wire.place)) is not None:
            self._packs.move_to_end(wire.place)
            return data
        count = -(-wire.size // self.meta.piece_length)
        if not self.published():
            pieces = self.pieces()
            if pieces is not None and pieces.run_from(self._first_piece[wire.place], count) < count:
                return None
        elif not await self.checked(wire.path):
            return None
        data = await asyncio.to_thread(self._verified, wire, 0, count)
        if len(data) < wire.size:
            return None
        self._packs[wire.place] = data
        if len(self._packs) > PACKS_AT_HAND:
            self._packs.popitem(last=False)
        return data

    async def _place(self, file: FileEntry) -> tuple[WireFile, int]:
        """Returns where a file lies in the torrent. An empty file lies nowhere, and is read from
        itself."""
        if "whereabouts" not in self.meta.__dict__:
            await asyncio.to_thread(getattr, self.meta, "whereabouts")
        return self.meta.whereabouts.get(file.path) or (WireFile(file.path, "", 0, b""), 0)

    def read_part(self, file: FileEntry, start: int, end: int) -> AsyncIterator[bytes]:
        """Reads part of a file. The smaller the part, the sooner its pieces are requested first.

        The pieces of a large part are not requested one by one, because then all hosts would want
        the same piece at the same time.
        """
        return self.read(file, start, end, PATIENCE_SECS * (end - start) / self.meta.size)

    async def read_now(self, file: FileEntry, start: int, end: int) -> bytes | None:
        """Returns the bytes from `start` to `end`; None if some of them have not arrived."""
        if self.published() and await self.checked(file.path):
            return b"".join([data async for data in read_part(self.directory / file.path, start, end)])
        if start == end:
            return b""
        wire, base = await self._place(file)
        length = self.meta.piece_length
        first = (base + start) // length
        count = -(-(base + end) // length) - first
        if (pieces := self.pieces()) is not None:
            count = pieces.run_from(self._first_piece[wire.place] + first, count)
        data = await asyncio.to_thread(self._verified, wire, first, count)
        offset = first * length - base
        found = data[start - offset : end - offset]
        return found if len(found) == end - start else None

    async def read(self, file: FileEntry, start: int, end: int, patience: float) -> AsyncIterator[bytes]:
        """Yields the bytes from `start` to `end`. After `patience` seconds of waiting, a piece is
        requested before all others."""
        path = self.directory / file.path
        while start < end:
            if self.published() and await self.checked(file.path):
                async for data in read_part(path, start, end):
                    yield data
                return
            wire, base = await self._place(file)
            length = self.meta.piece_length
            number = (base + start) // length
            # Read many pieces at once: each read costs several thread switches, here and in the
            # reader.
            most = min(-(-(base + end) // length) - number, max(1, CHUNK // length))
            data = await self._wait_for(wire, number, most, patience)
            offset = number * length - base
            yield data[start - offset : end - offset]
            start = offset + len(data)

    async def _wait_for(self, file: WireFile, number: int, most: int, patience: float) -> bytes:
        """Waits for piece `number`, and returns it together with the available pieces that follow
        it."""
        index, began, hurried = self._first_piece[file.place] + number, time.monotonic(), False
        while True:
            pieces = self.pieces()
            run = most if pieces is None or self.published() else pieces.run_from(index, most)
            if run:
                data = await asyncio.to_thread(self._verified, file, number, run)
                if data:
                    return data
                if pieces is not None:
                    pieces.save()
            if (error := self.failure()) is not None:
                raise error
            if pieces is not None and not hurried and time.monotonic() - began >= patience:
                pieces.hurry(index)
                hurried = True
            if time.monotonic() - began >= self.stall_secs and (error := self.stalled()) is not None:
                raise error
            await asyncio.sleep(PLUGIN_LOOK_SECS if pieces is None else LOOK_SECS)

    def _verified(self, file: WireFile, number: int, count: int) -> bytes:
        """Returns the pieces from `number` on, up to the first whose bytes are missing or wrong.
        Blocks."""
        length, found = self.meta.piece_length, []
        try:
            with open(self.directory / file.path, "rb") as stream:
                for piece in range(number, number + count):
                    data = os.pread(stream.fileno(), min(length, file.size - piece * length), piece * length)
                    if not self._is_right(file, piece, data):
                        break
                    found.append(data)
        except OSError:
            pass
        return b"".join(found)

    def _is_right(self, file: WireFile, number: int, data: bytes) -> bool:
        length = self.meta.piece_length
        if len(data) < min(length, file.size - number * length):
            return False
        blocks = merkle.leaves(memoryview(data))
        if file.size <= length:
            return merkle.root(blocks) == file.root
        expected = self.meta.piece_layers[file.root][number * merkle.HASH : (number + 1) * merkle.HASH]
        return merkle.piece_hash(blocks, length) == expected
