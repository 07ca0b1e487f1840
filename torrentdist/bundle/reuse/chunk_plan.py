"""Decides which parts of a large file are taken from which files of this host.

Always: likely files come first: under the same path, then under the same name without its numbers;
the newest versions of each first. What is read for one file has a bound.
Pure: no I/O and no clock.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Final, Generic, TypeVar

import msgspec

from torrentdist.bundle.metafile import FileEntry, Metafile
from torrentdist.bundle.reuse.recipe import MAX_RECIPE_BYTES, PER_CHUNK, Chunk, FileRecipe, Recipe
from torrentdist.bundle.reuse.reuse_plan import bytes_in

MOST_CANDIDATES: Final = 3
"""Most files that are read for one arriving file."""
READ_TIMES: Final = 3
"""Most bytes that are read for one arriving file, as a multiple of its size."""
MOST_CHUNKS: Final = 4 * MAX_RECIPE_BYTES // PER_CHUNK
"""Most chunks that `known_parts` looks at, here and in what arrives. Equal files share those of
one, and may be very many."""
_NUMBERS: Final = re.compile(r"[0-9]+([._-][0-9]+)*")

S = TypeVar("S")


class OwnFile(msgspec.Struct, Generic[S], frozen=True):
    """A file that this host has, in the bundle or directory `source`."""

    source: S
    path: str
    size: int
    root: bytes


class Copy(msgspec.Struct, frozen=True, gc=False):
    """Bytes to copy from a file that is here into one that arrives."""

    start: int
    length: int
    source_start: int


def stem(path: str) -> str:
    """Returns the file's name without version numbers: `env-42.tar` and `env-43.tar` are alike."""
    return _NUMBERS.sub("#", path.rpartition("/")[2])


class LikelyFiles(Generic[S]):
    """Finds the files of this host that probably have chunks in common with one that arrives. They
    are grouped once, however many arrive."""

    def __init__(self, own: Iterable[OwnFile[S]]) -> None:
        """`own`: the newest bundle's files first."""
        self._by_path: defaultdict[str, list[OwnFile[S]]] = defaultdict(list)
        self._by_stem: defaultdict[str, list[OwnFile[S]]] = defaultdict(list)
        for one in own:
            _add_distinct(self._by_path[one.path], one)
            _add_distinct(self._by_stem[stem(one.path)], one)

    def of(self, file: FileEntry) -> list[OwnFile[S]]:
        """Returns the likely files that may be read for `file`."""
        found: list[OwnFile[S]] = []
        for one in (*self._by_path.get(file.path, ()), *self._by_stem.get(stem(file.path), ())):
            _add_distinct(found, one)
        chosen: list[OwnFile[S]] = []
        left = READ_TIMES * file.size
        for one in found:
            left -= one.size
            if left >= 0:
                chosen.append(one)
        return chosen


def _add_distinct(files: list[OwnFile[S]], one: OwnFile[S]) -> None:
    """Adds a file unless there are enough, or one with the same content."""
    if len(files) < MOST_CANDIDATES and all(_content(one) != _content(other) for other in files):
        files.append(one)


def _content(one: OwnFile[S]) -> object:
    return one.root or (one.source, one.path)


def share(wanted: Iterable[Chunk], known: FileRecipe) -> tuple[list[Copy], list[Chunk]]:
    """Returns what to copy from the other file, and the chunks that it lacks. Neighbouring chunks
    are copied together."""
    here = {(chunk.hash, chunk.length): chunk.offset for chunk in known.chunks()}
    found: list[Copy] = []
    lacking: list[Chunk] = []
    for chunk in wanted:
        source = here.get((chunk.hash, chunk.length))
        if source is None:
            lacking.append(chunk)
            continue
        last = found[-1] if found else None
        if last and (last.start + last.length, last.source_start + last.length) == (chunk.offset, source):
            found[-1] = Copy(last.start, last.length + chunk.length, last.source_start)
        else:
            found.append(Copy(chunk.offset, chunk.length, source))
    return found, lacking


def known_parts(
    meta: Metafile,
    recipe: Recipe,
    own: Sequence[OwnFile[S]],
    chunks_of: Callable[[OwnFile[S]], FileRecipe | None],
    skip: Set[str],
) -> dict[S, int]:
    """Returns how many bytes of the files but `skip` are in whole pieces that chunks of other files
    make up, by the source that has most of the file."""
    counts: dict[S, int] = {}
    left = MOST_CHUNKS
    likely = LikelyFiles(own)
    for file in meta.files:
        chunks = recipe.by_root.get(file.root)
        if chunks is None or file.path in skip or chunks.size != file.size:
            continue
        left -= chunks.count
        if left < 0:
            break
        wanted, found, best = list(chunks.chunks()), list[Copy](), dict[S, int]()
        for one in likely.of(file):
            here = chunks_of(one)
            if here is not None and wanted:
                left -= here.count
                parts, wanted = share(wanted, here)
                found += parts
                best[one.source] = best.get(one.source, 0) + sum(part.length for part in parts)
        covered = bytes_in(file.size, meta.piece_length, covered_pieces(file.size, meta.piece_length, found))
        if covered:
            source = max(best, key=lambda one: best[one])
            counts[source] = counts.get(source, 0) + covered
    return counts


def covered_pieces(size: int, piece_length: int, parts: Iterable[Copy]) -> list[bool]:
    """Returns for each piece of a file whether the parts bring every byte of it."""
    missing = [min(piece_length, size - start) for start in range(0, size, piece_length)]
    end = 0
    for part in sorted(parts, key=lambda one: one.start):
        start, end = max(end, part.start), max(end, part.start + part.length)
        for piece in range(start // piece_length, -(-end // piece_length)):
            low, high = piece * piece_length, (piece + 1) * piece_length
            missing[piece] -= max(0, min(high, end) - max(low, start))
    return [not left for left in missing]
