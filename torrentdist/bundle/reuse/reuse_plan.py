"""Decides which files of an arriving bundle are taken from which bundles on this host.

Always: a file is taken only from a file with the same root and size. Few bundles are read: the one
that holds the most bytes comes first.
Pure: no I/O and no clock.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final, Generic, TypeVar

import msgspec

from torrentdist.bundle.file_tree import TreeFile
from torrentdist.bundle.metafile import FileEntry, Metafile, WireFile
from torrentdist.bundle.reuse.root_index import Hint, hint_of
from torrentdist.model.ids import Digest

MOST_SOURCES: Final = 32
"""Most bundles that one arriving bundle is taken from: each costs the reading of a metafile."""

S = TypeVar("S")


class KnownFile(msgspec.Struct, Generic[S], frozen=True):
    """A file of an arriving bundle whose content is on this host already."""

    file: FileEntry
    source: S
    path: str
    """Its path within the source, as `os` decodes names."""


class Reused(msgspec.Struct, frozen=True):
    """What other bundles hold of one."""

    counts: Mapping[Digest, int]
    """Bytes by bundle, the largest number first."""
    unread: int = 0
    """The number of bundles to compare with whose files are not known here."""

    @classmethod
    def of(cls, whole: Mapping[Digest, int], parts: Mapping[Digest, int], unread: int) -> Reused:
        """`whole`: bytes of whole files, by bundle. `parts`: of parts of other files."""
        sums = {digest: whole.get(digest, 0) + parts.get(digest, 0) for digest in [*whole, *parts]}
        return cls(dict(sorted(sums.items(), key=lambda item: -item[1])), unread)

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def wanted_hints(files: Iterable[FileEntry]) -> dict[Hint, int]:
    """Returns the contents to look for, each with the bytes of all files that have it."""
    wanted: dict[Hint, int] = {}
    for file in files:
        if file.size:
            hint = hint_of(file.root)
            wanted[hint] = wanted.get(hint, 0) + file.size
    return wanted


def choose_sources(wanted: Mapping[Hint, int], found: Mapping[S, Set[Hint]]) -> list[S]:
    """Returns the sources to read, the one with the most bytes first, then the one with the most
    of the rest. Of equal ones the first in `found` is taken."""
    rest = {source: set(hints) for source, hints in found.items()}
    chosen: list[S] = []
    while rest and len(chosen) < MOST_SOURCES:
        best = max(rest, key=lambda source: sum(wanted[hint] for hint in rest[source]))
        if not rest[best]:
            break
        taken = rest.pop(best)
        chosen.append(best)
        for hints in rest.values():
            hints -= taken
    return chosen


def known_files(files: Sequence[FileEntry], sources: Iterable[tuple[S, Iterable[TreeFile]]]) -> list[KnownFile[S]]:
    """Returns the files that the sources hold, each from the first source that has it."""
    lacking: dict[bytes, list[FileEntry]] = {}
    for file in files:
        if file.size:
            lacking.setdefault(file.root, []).append(file)
    known: list[KnownFile[S]] = []
    for source, held in sources:
        for one in held:
            alike = lacking.get(one.root)
            if alike and alike[0].size == one.size:
                known += [KnownFile(file, source, os.fsdecode(one.path)) for file in alike]
                del lacking[one.root]
        if not lacking:
            break
    return known


def whole_packs(meta: Metafile) -> list[FileEntry]:
    """Returns the packs of a bundle as files, since another bundle may hold the same pack."""
    return [FileEntry(file.path, file.size, file.root, False) for file in meta.wire_files if file.is_pack]


def without_packed(meta: Metafile, known: Sequence[KnownFile[S]]) -> list[KnownFile[S]]:
    """Leaves out the small files whose whole pack is known."""
    here = {one.file.path for one in known}
    inside = {file.path for pack, files in meta.packs if pack.path in here for file in files}
    return [one for one in known if one.file.path not in inside] if inside else list(known)


def bytes_by_source(known: Iterable[KnownFile[S]]) -> dict[S, int]:
    """Returns how many bytes come from each source, the largest number first."""
    counts: dict[S, int] = {}
    for one in known:
        counts[one.source] = counts.get(one.source, 0) + one.file.size
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def held_pieces(
    files: Sequence[WireFile], piece_length: int, whole: Set[str], zeros: Sequence[bool] = ()
) -> list[bool]:
    """Returns for each piece of the bundle whether it is here: it belongs to one of the files
    `whole`, or it is one of the `zeros`."""
    have: list[bool] = []
    for file in files:
        have += [file.path in whole] * -(-file.size // piece_length)
    return [one or zero for one, zero in zip(have, zeros, strict=True)] if zeros else have


def with_parts(
    files: Sequence[WireFile], piece_length: int, have: Sequence[bool], parts: Mapping[str, Sequence[bool]]
) -> list[bool]:
    """Returns which pieces are here once the files in `parts` are filled, of which it says which
    pieces are right. What was here of these files before, such as zeros, may be overwritten."""
    pieces, start = list(have), 0
    for file in files:
        for number, right in enumerate(parts.get(file.path, ())):
            pieces[start + number] = right
        start += -(-file.size // piece_length)
    return pieces


def bytes_in(size: int, piece_length: int, pieces: Sequence[bool]) -> int:
    """Returns how many bytes of one file these of its pieces hold."""
    return sum(min(piece_length, size - number * piece_length) for number, held in enumerate(pieces) if held)
