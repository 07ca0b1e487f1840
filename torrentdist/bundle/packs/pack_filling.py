"""Takes small files that are on this host into the packs of a bundle that arrives.

Always: a piece of a pack counts only after it was read from the pack and matched the metafile. A
source that changed costs nothing but the attempt.
Never: write into a source, or into a pack that was there before.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from torrentdist.bundle.files.durability import disk_failure
from torrentdist.bundle.files.file_cloner import link_file
from torrentdist.bundle.metafile import CONTENT, FileEntry, Metafile, WireFile
from torrentdist.bundle.packs.pack_files import GoOn, read_small, root_of
from torrentdist.bundle.reuse.part_filling import right_pieces


class SmallSource(NamedTuple):
    """A small file of an arriving bundle, and where it is on this host."""

    file: FileEntry
    top: Path = Path()
    path: str = ""
    data: bytes = b""
    """Its content, if it is in memory."""


def fill_packs(
    meta: Metafile,
    home: Path,
    known: Sequence[SmallSource],
    go_on: GoOn,
    on_wrong: Callable[[SmallSource], None] = lambda source: None,
) -> dict[str, list[bool]]:
    """Writes these files into the packs. Returns for each pack that got one which of its pieces are
    right, by the path of the pack.

    Raises `disk_full` if the disk is full. `on_wrong` is called with each source that has other
    bytes than it should.
    """
    sources = {one.file.path: one for one in known}
    pieces: dict[str, list[bool]] = {}
    for pack, files in meta.packs if known else ():
        if not go_on():
            break
        target = home / pack.place
        if os.path.lexists(target) or not any(file.path in sources for file in files):
            continue
        try:
            filled = _fill(target, pack, [(file, sources.get(file.path)) for file in files], on_wrong)
        except OSError as exc:
            with suppress(OSError):
                target.unlink()
            raise disk_failure(exc, target, pack.size) from exc
        if filled:
            pieces[pack.path] = right_pieces(pack, target, meta, go_on)
    return pieces


def link_small(home: Path, known: Iterable[SmallSource], go_on: GoOn) -> list[SmallSource]:
    """Gives small files of other bundles of this store a second name in this one. Returns those
    that got one.

    Their bytes are compared with those of the packs when all files are written.
    """
    linked: list[SmallSource] = []
    made: set[str] = set()
    content = home / CONTENT
    for one in known:
        if not go_on():
            break
        directory = one.file.path.rpartition("/")[0]
        with suppress(OSError):
            if directory not in made:
                (content / directory).mkdir(parents=True, exist_ok=True)
                made.add(directory)
            source, target = os.fsencode(one.top / one.path), os.fsencode(content / one.file.path)
            if link_file(one.file, source, target):
                linked.append(one)
    return linked


def _fill(
    target: Path,
    pack: WireFile,
    files: Sequence[tuple[FileEntry, SmallSource | None]],
    on_wrong: Callable[[SmallSource], None],
) -> bool:
    """Writes a pack in which the unknown files are holes. Returns whether a file was found; without
    one there is no pack."""
    target.parent.mkdir(exist_ok=True)
    found, at = False, 0
    with open(target, "xb", buffering=0) as out:
        out.truncate(pack.size)
        for file, source in files:
            data = b"" if source is None else _read(source, on_wrong)
            if data and os.pwrite(out.fileno(), data, at) == file.size:
                found = True
            at += file.size
    if not found:
        target.unlink()
    return found


def _read(source: SmallSource, on_wrong: Callable[[SmallSource], None]) -> bytes:
    """Returns the content of a file; empty if it is not what it should be."""
    if source.data:
        return source.data
    with suppress(OSError):
        data = read_small(os.fsencode(source.top / source.path), source.file.size)
        if root_of(data) == source.file.root:
            return data
        on_wrong(source)
    return b""
