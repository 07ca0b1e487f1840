"""Takes parts of large files from older versions on this host: copies the chunks that a recipe
names, then hashes the file.

Always: a piece counts only if it hashes to what the metafile says, so a wrong recipe or a changed
source costs bytes and never content. A file that was there before is left alone.
Never: write into a source, or leave a file behind that the disk had no room for.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from torrentdist.bundle import hashing, merkle
from torrentdist.bundle.file_tree import TreeFile
from torrentdist.bundle.files.durability import disk_failure
from torrentdist.bundle.files.file_cloner import copy_some
from torrentdist.bundle.hashing import FileHash, FileToHash
from torrentdist.bundle.metafile import FileEntry, Metafile, WireFile
from torrentdist.bundle.reuse.chunk_plan import Copy, LikelyFiles, OwnFile, share
from torrentdist.bundle.reuse.chunker import LARGE_FILE, cut_file, hash_chunk
from torrentdist.bundle.reuse.recipe import MAX_RECIPE_BYTES, Chunk, FileRecipe, Recipe, parse_recipe
from torrentdist.bundle.reuse.reuse_plan import bytes_in

RECIPE: Final = "recipe"
"""The name of a bundle's recipe, next to its metafile."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_COPY: Final = 8 * 1024 * 1024

GoOn = Callable[[], bool]
Own = OwnFile[Path]


class FilledParts(msgspec.Struct, frozen=True):
    pieces: dict[str, list[bool]]
    """Which pieces of each file are here and right."""
    sources: frozenset[Path]
    """What the parts were copied from."""
    suspects: frozenset[Path] = frozenset()
    """Sources whose bytes are not those that their recipes tell."""


def large_own_files(source: Path, files: Iterable[TreeFile]) -> Iterator[Own]:
    """Yields the files of a bundle or directory that may have chunks in common with others."""
    for file in files:
        if file.size > LARGE_FILE:
            yield OwnFile(source, os.fsdecode(file.path), file.size, file.root)


def read_recipe(home: Path) -> bytes | None:
    """Returns the recipe in the directory of a bundle."""
    with suppress(OSError), (home / RECIPE).open("rb") as file:
        return file.read(MAX_RECIPE_BYTES + 1)
    return None


class KnownChunks:
    """The chunks of files on this host: from the recipes of their bundles, else by reading."""

    def __init__(self, go_on: GoOn = lambda: True) -> None:
        self._go_on = go_on
        self._recipes: dict[Path, Recipe | None] = {}

    def of(self, own: Own) -> FileRecipe | None:
        stored = self.stored(own)
        return stored if stored is not None else cut_file(os.fsencode(own.source / own.path), self._go_on)

    def stored(self, own: Own) -> FileRecipe | None:
        """Returns what the recipe of its bundle says. A directory of a user has none."""
        if not own.root:
            return None
        if own.source not in self._recipes:
            self._recipes[own.source] = parse_recipe(read_recipe(own.source.parent))
        recipe = self._recipes[own.source]
        found = recipe.by_root.get(own.root) if recipe else None
        return found if found is not None and found.size == own.size else None


def fill_parts(
    meta: Metafile,
    content: Path,
    recipe: Recipe,
    own: Sequence[Own],
    *,
    skip: Set[str],
    is_new: bool,
    go_on: GoOn = lambda: True,
) -> FilledParts:
    """Fills all files but `skip` as far as they are known.

    Unless the arriving bundle `is_new`, files that exist are left alone. Raises `disk_full` if the
    disk is full.
    """
    likely, known = LikelyFiles(own), KnownChunks(go_on)
    pieces: dict[str, list[bool]] = {}
    sources: set[Path] = set()
    suspects: set[Path] = set()
    for file in meta.files:
        if not go_on():
            break
        chunks = recipe.by_root.get(file.root)
        if chunks is None or file.path in skip or chunks.size != file.size:
            continue
        target = content / file.path
        if not is_new and os.path.lexists(target):
            continue
        if copied := _copy_chunks(chunks, target, likely.of(file), known, go_on):
            sources |= copied.keys()
            right = pieces[file.path] = right_pieces(file, target, meta, go_on)
            suspects |= _wrong_sources(target, copied, _lies_in_wrong(right, meta.piece_length), go_on)
    return FilledParts(pieces, frozenset(sources), frozenset(suspects))


def _copy_chunks(
    chunks: FileRecipe, target: Path, likely: Sequence[Own], known: KnownChunks, go_on: GoOn
) -> dict[Path, list[Chunk]]:
    """Copies every chunk that is known. Returns the chunks that each source had."""
    wanted = list(chunks.chunks())
    sources: dict[Path, list[Chunk]] = {}
    for one in likely:
        here = known.of(one) if wanted and go_on() else None
        if here is None:
            continue
        before = wanted
        parts, wanted = share(before, here)
        if parts:
            lacking = {chunk.offset for chunk in wanted}
            sources.setdefault(one.source, []).extend(chunk for chunk in before if chunk.offset not in lacking)
            try:
                _copy_parts(one.source / one.path, target, chunks.size, parts, go_on)
            except OSError as exc:
                if exc.errno in _NO_ROOM:
                    with suppress(OSError):
                        target.unlink()
                    raise disk_failure(exc, target, chunks.size) from exc
    return sources


def _wrong_sources(
    target: Path, copied: Mapping[Path, Iterable[Chunk]], wrong: Callable[[Chunk], bool], go_on: GoOn
) -> set[Path]:
    """Returns the sources of chunks that do not have their hash. Only those are read of which a
    piece is `wrong`."""
    suspects: set[Path] = set()
    with suppress(OSError), open(target, "rb") as file:
        for source, chunks in copied.items():
            for chunk in filter(wrong, chunks):
                if not go_on():
                    return suspects
                if hash_chunk(os.pread(file.fileno(), chunk.length, chunk.offset)) not in (None, chunk.hash):
                    suspects.add(source)
                    break
    return suspects


def _copy_parts(source: Path, target: Path, size: int, parts: Iterable[Copy], go_on: GoOn) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    from_fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        to_fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(to_fd, size)
            for part in parts:
                done = 0
                while done < part.length and go_on():
                    left = min(_COPY, part.length - done)
                    count = copy_some(from_fd, to_fd, part.source_start + done, part.start + done, left)
                    if not count:
                        break
                    done += count
        finally:
            os.close(to_fd)
    finally:
        os.close(from_fd)


def _lies_in_wrong(right: Sequence[bool], piece_length: int) -> Callable[[Chunk], bool]:
    """Returns a test of whether a part of a chunk lies in a piece that is not right."""

    def lies(chunk: Chunk) -> bool:
        last = (chunk.offset + chunk.length - 1) // piece_length
        return not all(right[chunk.offset // piece_length : last + 1])

    return lies


def right_pieces(file: FileEntry | WireFile, target: Path, meta: Metafile, go_on: GoOn) -> list[bool]:
    """Reads a file, and returns which of its pieces are right."""
    count = -(-file.size // meta.piece_length)
    arrived, progress = [FileToHash(os.fsencode(target), file.size)], hashing.stopped_unless(go_on)
    try:
        [outcome] = hashing.hash_files(arrived, meta.piece_length, progress)
    except hashing.HashingStopped:
        return [False] * count
    if not isinstance(outcome, FileHash):
        return [False] * count
    if outcome.root == file.root:
        return [True] * count
    wanted = meta.piece_layers.get(file.root, b"")
    pieces = range(0, len(wanted), merkle.HASH)
    right = [outcome.layer[at : at + merkle.HASH] == wanted[at : at + merkle.HASH] for at in pieces]
    return right or [False] * count


def bytes_of_parts(meta: Metafile, parts: Mapping[str, Sequence[bool]]) -> int:
    """Returns how many bytes of the bundle were filled."""
    return sum(bytes_in(file.size, meta.piece_length, parts.get(file.path, ())) for file in meta.wire_files)
