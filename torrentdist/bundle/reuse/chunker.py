"""Cuts files into chunks by their content (FastCDC 2020), and hashes each chunk.

The library is optional: without it, uploads have no recipe and downloads follow none.
Always: where a file is cut depends on its content alone, not on how it was read.
Never: map a file into memory, since reading a shortened one would end the process.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from torrentdist.bundle.hashing import LOOK_FROM, LOOK_RANGE, FileHash, FileToHash
from torrentdist.bundle.reuse.recipe import (
    LEAST,
    MAX_RECIPE_BYTES,
    MOST,
    PER_CHUNK,
    USUAL,
    FileRecipe,
    Recipe,
    file_recipe,
)

if TYPE_CHECKING:
    from pyfastcdc import FastCDC

Cut = tuple[int, bytes]
"""Length and hash of a chunk."""
LARGE_FILE: Final = LOOK_FROM
"""In bytes. Only larger files are cut: of a smaller one, little would be saved."""
MOST_CUTS: Final = MAX_RECIPE_BYTES // PER_CHUNK
"""Cuts that are kept. No recipe has room for more."""


@cache
def _libraries() -> tuple[Callable[[], FastCDC], Callable[[Any], bytes]] | None:
    """Returns what makes a cutter, and the hash function. The cutter in plain Python is too slow to
    be of use."""
    try:
        import pyfastcdc.cy
        import xxhash
    except ImportError:
        return None
    return lambda: pyfastcdc.cy.FastCDC(USUAL, min_size=LEAST, max_size=MOST), xxhash.xxh3_128_digest


def can_cut() -> bool:
    return _libraries() is not None


def hash_chunk(data: bytes) -> bytes | None:
    """Returns the hash of a chunk, or None where the library that hashes it is not here."""
    libraries = _libraries()
    return None if libraries is None else libraries[1](data)


def cut(data: memoryview | bytes) -> list[Cut]:
    """Cuts a whole file, or a range as if it were one."""
    libraries = _libraries()
    assert libraries is not None
    cutter, hashed = libraries
    return [(chunk.length, hashed(chunk.data)) for chunk in cutter().cut_buf(data)]


def cut_file(path: bytes, go_on: Callable[[], bool] = lambda: True) -> FileRecipe | None:
    """Reads a file and cuts it. None: it cannot be read, no library is here, or `go_on` says no."""
    libraries = _libraries()
    if libraries is None:
        return None
    cutter, hashed = libraries
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as file:
            chunks = takewhile(lambda _: go_on(), cutter().cut_stream(file))
            made = file_recipe(bytes(32), ((chunk.length, hashed(chunk.data)) for chunk in chunks))
            return made if go_on() else None
    except OSError:
        return None


class RecipeMaker:
    """Cuts files while they are hashed: its `look` is a `hashing.Look`.

    Ranges of one file are cut side by side, each as if it were a file. `recipe` then joins them:
    from the last cut of one range it cuts on until a cut coincides with one of the next range.
    Files beyond `most` cuts get no recipe.
    """

    def __init__(self, most: int = MOST_CUTS) -> None:
        self._left = most
        self._lock = threading.Lock()
        self._cuts: dict[tuple[int, int], list[Cut]] = {}

    def look(self, file: int, offset: int, data: memoryview) -> None:
        if self._left <= 0:
            return
        cuts = cut(data)
        with self._lock:
            self._left -= len(cuts)
            self._cuts[file, offset] = cuts

    def recipe(self, files: list[tuple[FileToHash, FileHash]]) -> Recipe:
        """Joins the cuts. Raises an OSError if a file cannot be read any more."""
        made: dict[bytes, FileRecipe] = {}
        for number, (file, hashed) in enumerate(files):
            if hashed.root not in made and self._is_cut(number, file):
                made[hashed.root] = file_recipe(hashed.root, self._joined(number, file))
        return Recipe(tuple(made.values()))

    def _is_cut(self, number: int, file: FileToHash) -> bool:
        """Whether all ranges of the file were cut."""
        return file.size > LARGE_FILE and all(
            (number, offset) in self._cuts for offset in range(0, file.size, LOOK_RANGE)
        )

    def _joined(self, number: int, file: FileToHash) -> Iterator[Cut]:
        if file.size <= LOOK_RANGE:
            yield from self._cuts[number, 0]
            return
        fd = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            at = 0
            for offset in range(0, file.size, LOOK_RANGE):
                cuts = self._cuts[number, offset]
                starts = _starts(offset, cuts)
                is_last = offset + LOOK_RANGE >= file.size
                while at < starts[-1]:
                    index = bisect_left(starts, at)
                    if starts[index] == at:
                        # The last chunk ends where the range ends, which is no cut of the file.
                        rest = cuts[index:] if is_last else cuts[index:-1]
                        yield from rest
                        at += sum(length for length, _ in rest)
                        break
                    one = _next_cut(fd, at)
                    yield one
                    at += one[0]
            while at < file.size:
                one = _next_cut(fd, at)
                yield one
                at += one[0]
        finally:
            os.close(fd)


def _next_cut(fd: int, at: int) -> Cut:
    data = os.pread(fd, MOST, at)
    if not data:
        raise OSError("it became shorter while it was being read")
    return cut(data)[0]


def _starts(offset: int, cuts: list[Cut]) -> list[int]:
    """Returns where each chunk of a range starts in its file."""
    starts = []
    for length, _ in cuts:
        starts.append(offset)
        offset += length
    return starts
