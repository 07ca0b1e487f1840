"""Finds the files of an arriving bundle in directories that no store of this process looks after:
an older copy, or the store of a daemon.

Always: what is found is only a hint. Whoever takes a file hashes what was taken.
Never: follow a symlink, write, or fail because something cannot be read.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Final

from torrentdist.bundle import hashing
from torrentdist.bundle.file_tree import TreeFile
from torrentdist.bundle.hashing import FileHash, FileToHash
from torrentdist.bundle.metafile import Metafile, read_files
from torrentdist.bundle.packs.pack_filling import SmallSource, fill_packs
from torrentdist.bundle.reuse.file_filling import FilledFiles, Filling, GoOn, fill_files, is_new, settle_pieces
from torrentdist.bundle.reuse.part_filling import Own, bytes_of_parts, fill_parts, large_own_files
from torrentdist.bundle.reuse.recipe import Recipe
from torrentdist.bundle.reuse.reuse_plan import (
    KnownFile,
    bytes_by_source,
    known_files,
    whole_packs,
    with_parts,
    without_packed,
)
from torrentdist.model.errors import TorrentdistError

MOST_BUNDLES: Final = 64
"""Most bundles of a store that are looked at, the newest first: each metafile has to be read."""

Held = tuple[Path, Iterable[TreeFile]]
"""A directory, and the files that it probably holds."""


def held_by_store(data_dir: Path) -> Iterator[Held]:
    """Yields the published bundles in a daemon's data directory, as their metafiles describe
    them."""
    try:
        links = sorted(os.scandir(data_dir / "bundles"), key=_changed_at, reverse=True)
    except OSError:
        return
    for link in links[:MOST_BUNDLES]:
        try:
            yield Path(link.path) / "content", list(read_files((Path(link.path) / "metafile").read_bytes()))
        except (OSError, TorrentdistError):
            continue


def held_by_directory(top: Path, meta: Metafile, go_on: GoOn = lambda: True) -> Held:
    """Hashes the files below `top` that have the size of a file of the bundle. `top` may be a
    single file. Once `go_on` says no, it holds nothing."""
    sizes = {file.size for file in meta.files if file.size}
    base = top.parent if top.is_file() else top
    files = takewhile(lambda _: go_on(), _regular_files(top))
    found = [(path, size) for path, size in files if size in sizes]
    wanted = [FileToHash(os.fsencode(base / path), size) for path, size in found]
    outcomes = hashing.hash_files(wanted, meta.piece_length, hashing.stopped_unless(go_on))
    try:
        hashes = list(zip(found, outcomes, strict=True))
    except hashing.HashingStopped:
        return base, []
    good = ((path, size, one.root) for (path, size), one in hashes if isinstance(one, FileHash))
    return base, [TreeFile(os.fsencode(path), size, root) for path, size, root in good]


def large_files_below(top: Path) -> Iterator[Own]:
    """Yields the files below `top` that may have chunks in common with others."""
    base = top.parent if top.is_file() else top
    yield from large_own_files(base, (TreeFile(os.fsencode(path), size, b"") for path, size in _regular_files(top)))


def fill_from_directories(
    meta: Metafile,
    content: Path,
    held: Iterable[Held],
    go_on: GoOn,
    progress: Callable[[int], None],
    recipe: Recipe | None = None,
    own: Iterable[Own] = (),
) -> Filling:
    """Takes everything that these directories hold into the arriving bundle at `content`, by the
    recipe also parts of the files in `own`. `progress` is called with the bytes that are filled so
    far."""
    new, done = is_new(content), 0
    known = without_packed(meta, known_files((*whole_packs(meta), *meta.files), held))
    small = {file.path for file in meta.packed.files}
    whole = [one for one in known if one.file.path not in small]
    paths: set[str] = set()

    def count(size: int) -> None:
        nonlocal done
        done += size
        progress(done)

    for source in bytes_by_source(whole):
        paths |= _fill(meta, content, [one for one in whole if one.source == source], go_on, count).paths
    packed = [SmallSource(one.file, one.source, one.path) for one in known if one.file.path in small]
    in_packs = fill_packs(meta, content.parent, packed, go_on)
    if filled := bytes_of_parts(meta, in_packs):
        count(filled)
    own = list(own) if recipe is not None else []
    known_some = bool(paths or in_packs or own)
    have = settle_pieces(meta, content, paths, in_packs) if new and known_some and go_on() else None
    if recipe is not None and own and go_on():
        parts = fill_parts(meta, content, recipe, own, skip=paths, is_new=new, go_on=go_on).pieces
        if filled := bytes_of_parts(meta, parts):
            count(filled)
        have = with_parts(meta.wire_files, meta.piece_length, have, parts) if have is not None and go_on() else None
    return Filling(done, have)


def _fill(
    meta: Metafile, content: Path, known: list[KnownFile[Path]], go_on: GoOn, count: Callable[[int], None]
) -> FilledFiles:
    return fill_files(meta, content, known[0].source, known, go_on=go_on, progress=count)


def _changed_at(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def _regular_files(top: Path) -> Iterator[tuple[str, int]]:
    """Yields the path below `top` and the size of every regular file."""
    if top.is_file():
        yield top.name, top.stat().st_size
        return
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            try:
                found = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                yield os.path.relpath(path, top), found.st_size
