"""The files of one bundle on this host, whether it is published or still arriving.

Always holds: of a bundle that arrives only pieces are given that were read and hashed here, whoever brought them; a
fetch that fails ends the reading with its error. Must not do: fetch; the keeper does.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from torrentdist.bundle import merkle
from torrentdist.bundle.metafile import FileEntry, Metafile
from torrentdist.model.errors import TorrentdistError

CHUNK = 1024 * 1024
LOOK_SECS = 0.05
"""How often it looks for the piece that it waits for."""
PLUGIN_LOOK_SECS = 0.25
"""The same where nobody can tell which pieces are there, and each look reads one."""
PATIENCE_SECS = 10.0


class Pieces(Protocol):
    """What a transfer knows of its pieces."""

    def has_piece(self, piece: int) -> bool: ...

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
            if self.published():
                async for data in _plain(path, start, end):
                    yield data
                return
            number = start // self.meta.piece_length
            offset = number * self.meta.piece_length
            piece = await self._wait_for(file, path, number, patience)
            yield piece[start - offset : end - offset]
            start = offset + len(piece)

    async def _wait_for(self, file: FileEntry, path: Path, number: int, patience: float) -> bytes:
        index, began, hurried = self._first_piece[file.path] + number, time.monotonic(), False
        while True:
            pieces = self.pieces()
            if pieces is None or pieces.has_piece(index) or self.published():
                data = await asyncio.to_thread(self._verified, file, path, number)
                if data is not None:
                    return data
                if pieces is not None:
                    pieces.save()
            if (error := self.failure()) is not None:
                raise error
            if pieces is not None and not hurried and time.monotonic() - began >= patience:
                pieces.hurry(index)
                hurried = True
            await asyncio.sleep(PLUGIN_LOOK_SECS if pieces is None else LOOK_SECS)

    def _verified(self, file: FileEntry, path: Path, number: int) -> bytes | None:
        """The piece, if its bytes are there and right."""
        length = self.meta.piece_length
        wanted = min(length, file.size - number * length)
        try:
            with open(path, "rb") as stream:
                data = os.pread(stream.fileno(), wanted, number * length)
        except OSError:
            return None
        if len(data) < wanted:
            return None
        blocks = merkle.leaves(memoryview(data))
        if file.size <= length:
            return data if merkle.root(blocks) == file.root else None
        layer = self.meta.piece_layers[file.root]
        expected = layer[number * merkle.HASH : (number + 1) * merkle.HASH]
        return data if merkle.piece_hash(blocks, length) == expected else None


async def _plain(path: Path, start: int, end: int) -> AsyncIterator[bytes]:
    try:
        with await asyncio.to_thread(open, path, "rb") as stream:
            while start < end:
                data = await asyncio.to_thread(os.pread, stream.fileno(), min(CHUNK, end - start), start)
                if not data:
                    raise TorrentdistError("corrupt", path=str(path), detail=f"it ends at {start}")
                yield data
                start += len(data)
    except OSError as exc:
        raise TorrentdistError("disk_error", path=str(path), detail=exc.strerror or str(exc)) from exc
