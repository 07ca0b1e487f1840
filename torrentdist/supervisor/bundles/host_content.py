"""The files of one bundle on this host, whether it is published or still arriving.

Always: of a bundle that arrives only pieces are given that were read and hashed here, whoever brought them. A file of a
published one is checked before it is read. A fetch that fails ends the reading with its error.
Never: fetch; the keeper does.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from torrentdist.bundle import merkle
from torrentdist.bundle.metafile import FileEntry, Metafile
from torrentdist.host.http.file_answers import CHUNK, read_part
from torrentdist.model.errors import TorrentdistError

LOOK_SECS = 0.05
"""How often it looks for the piece that it waits for."""
PLUGIN_LOOK_SECS = 0.25
"""The same where nobody can tell which pieces are there, and each look reads one."""
PATIENCE_SECS = 10.0


class Pieces(Protocol):
    """What a transfer knows of its pieces."""

    def run_from(self, piece: int, most: int) -> int:
        """How many pieces from this one on are verified, `most` at most, as far as was known a moment ago."""

    def hurry(self, piece: int) -> None:
        """It is needed before all others."""

    def save(self) -> None:
        """What is here goes to the files."""


@dataclass(frozen=True)
class HostContent:
    meta: Metafile
    directory: Path
    """Where the files lie, and stay lying when they are published."""
    published: Callable[[], bool]
    failure: Callable[[], TorrentdistError | None]
    """Why the rest won't come."""
    pieces: Callable[[], Pieces | None]
    checked: Callable[[str], Awaitable[bool]]
    """Whether this file of the published bundle is as it was published; if not, the bundle arrives again."""
    stall_secs: float = 45.0
    """A reader for whom nothing comes for so long gets the error of `stalled`."""
    stalled: Callable[[], TorrentdistError | None] = lambda: None

    @cached_property
    def _first_piece(self) -> dict[str, int]:
        counts = (-(-file.size // self.meta.piece_length) for file in self.meta.files)
        starts = accumulate(counts, initial=0)
        return dict(zip((file.path for file in self.meta.files), starts, strict=False))

    def read_all(self, file: FileEntry) -> AsyncIterator[bytes]:
        """For a reader that wants the whole bundle, in this order or another."""
        return self.read(file, 0, file.size, PATIENCE_SECS)

    def read_part(self, file: FileEntry, start: int, end: int) -> AsyncIterator[bytes]:
        """For a reader of a part. The larger it is, the less does it matter to it in which order the swarm works:
        asking for one piece after the other makes all hosts want the same one at the same time."""
        return self.read(file, start, end, PATIENCE_SECS * (end - start) / self.meta.size)

    async def read(self, file: FileEntry, start: int, end: int, patience: float) -> AsyncIterator[bytes]:
        """The bytes from `start` to `end`; a piece is hurried when it was waited for with `patience`."""
        path = self.directory / file.path
        while start < end:
            if self.published() and await self.checked(file.path):
                async for data in read_part(path, start, end):
                    yield data
                return
            length = self.meta.piece_length
            number = start // length
            # Many at a time: each time costs a turn of several threads, here and at whoever passes it on.
            most = min(-(-end // length) - number, max(1, CHUNK // length))
            data = await self._wait_for(file, path, number, most, patience)
            offset = number * length
            yield data[start - offset : end - offset]
            start = offset + len(data)

    async def _wait_for(self, file: FileEntry, path: Path, number: int, most: int, patience: float) -> bytes:
        """The pieces from `number` on that are here, one at least."""
        index, began, hurried = self._first_piece[file.path] + number, time.monotonic(), False
        while True:
            pieces = self.pieces()
            run = most if pieces is None or self.published() else pieces.run_from(index, most)
            if run:
                data = await asyncio.to_thread(self._verified, file, path, number, run)
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

    def _verified(self, file: FileEntry, path: Path, number: int, count: int) -> bytes:
        """The pieces from `number` on, up to the first whose bytes aren't there or aren't right."""
        length, found = self.meta.piece_length, []
        try:
            with open(path, "rb") as stream:
                for piece in range(number, number + count):
                    data = os.pread(stream.fileno(), min(length, file.size - piece * length), piece * length)
                    if not self._is_right(file, piece, data):
                        break
                    found.append(data)
        except OSError:
            pass
        return b"".join(found)

    def _is_right(self, file: FileEntry, number: int, data: bytes) -> bool:
        length = self.meta.piece_length
        if len(data) < min(length, file.size - number * length):
            return False
        blocks = merkle.leaves(memoryview(data))
        if file.size <= length:
            return merkle.root(blocks) == file.root
        expected = self.meta.piece_layers[file.root][number * merkle.HASH : (number + 1) * merkle.HASH]
        return merkle.piece_hash(blocks, length) == expected
