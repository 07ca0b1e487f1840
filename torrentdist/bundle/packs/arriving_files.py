"""Writes the small files of a bundle while its packs arrive, so that few are left at the end.

Always: a file is written only after its bytes were read from its pack and matched its root, so a
piece that is not in the pack yet costs one more look. What is not written by then, `write_rest`
writes from the complete packs.
Never: publish, or write a file twice.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, takewhile
from pathlib import Path

from torrentdist.bundle.metafile import FileEntry, Metafile, WireFile
from torrentdist.bundle.packs.pack_files import GoOn, root_of, to_the_end, write_from_pack
from torrentdist.bundle.packs.small_file_writer import SmallFileWriter


class ArrivingPack:
    """Which files of a pack can be written, by its pieces. Pure."""

    def __init__(self, pack: WireFile, files: Sequence[FileEntry], piece_length: int) -> None:
        self.pack = pack
        self.files = files
        self.there = bytearray(len(files))
        """For each file whether it is written."""
        self.empty = [number for number, file in enumerate(files) if not file.size]
        """The empty files that are not written. They wait for no piece."""
        self._length = piece_length
        self.pieces = -(-pack.size // piece_length)
        self._starts = list(accumulate((file.size for file in files), initial=0))
        self._seen = bytearray(self.pieces)
        """The pieces whose files need no other look because of them."""

    def start(self, number: int) -> int:
        return self._starts[number]

    def ready(self, have: Sequence[bool]) -> list[int]:
        """Returns the files that lie in pieces that are here, and are not written. `have`: which
        pieces of this pack are here.

        Each piece is looked at once, unless `look_again` names a file in it.
        """
        found: set[int] = set()
        for piece in range(self.pieces):
            if have[piece] and not self._seen[piece]:
                self._seen[piece] = 1
                found.update(number for number in self._touching(piece) if self._is_ready(number, have))
        return sorted(found)

    def look_again(self, number: int) -> None:
        """Has the pieces of a file looked at once more: they are not in the pack yet."""
        for piece in self._pieces_of(number):
            self._seen[piece] = 0

    def _touching(self, piece: int) -> range:
        first = bisect_right(self._starts, piece * self._length) - 1
        return range(first, bisect_left(self._starts, (piece + 1) * self._length, hi=len(self.files)))

    def _is_ready(self, number: int, have: Sequence[bool]) -> bool:
        if not self.files[number].size or self.there[number]:
            return False
        return all(have[piece] for piece in self._pieces_of(number))

    def _pieces_of(self, number: int) -> range:
        last = self._starts[number] + self.files[number].size - 1
        return range(self._starts[number] // self._length, last // self._length + 1)


class ArrivingFiles:
    """The small files of one arriving bundle. One thread at a time may use it."""

    def __init__(self, meta: Metafile, home: Path) -> None:
        self._home = home
        starts = accumulate((-(-file.size // meta.piece_length) for file in meta.wire_files), initial=0)
        first = {file.path: start for file, start in zip(meta.wire_files, starts, strict=False)}
        self._packs = [(first[pack.path], ArrivingPack(pack, files, meta.piece_length)) for pack, files in meta.packs]

    def write(self, have: Sequence[bool], go_on: GoOn) -> int:
        """Writes the files whose pieces have arrived since the last call. Returns how many.
        `have`: which pieces of the torrent are here; empty if that is not known."""
        written = 0
        if not have:
            return written
        with SmallFileWriter(self._home) as target:
            for first, arriving in takewhile(lambda _: go_on(), self._packs):
                if numbers := arriving.ready(have[first : first + arriving.pieces]):
                    written += self._write_empty(target, arriving) + self._write(target, arriving, numbers)
        return written

    def write_rest(self, go_on: GoOn = to_the_end) -> None:
        """Writes the files that are left, until `go_on` says to stop. Every pack is complete.
        Raises `corrupt` if one does not hold the bytes that the manifest says."""
        left = [arriving for _, arriving in self._packs if not all(arriving.there)]
        if not left:
            return
        with SmallFileWriter(self._home) as target:
            for arriving in takewhile(lambda _: go_on(), left):
                self._write_empty(target, arriving)
                if not all(arriving.there):
                    write_from_pack(target, self._home / arriving.pack.place, arriving.files, bytes(arriving.there))

    def _write_empty(self, target: SmallFileWriter, arriving: ArrivingPack) -> int:
        numbers, arriving.empty = arriving.empty, []
        for number in numbers:
            target.write(arriving.files[number], b"")
            arriving.there[number] = 1
        return len(numbers)

    def _write(self, target: SmallFileWriter, arriving: ArrivingPack, numbers: Sequence[int]) -> int:
        written = 0
        try:
            fd = os.open(self._home / arriving.pack.place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:  # Its first pieces are still in memory.
            for number in numbers:
                arriving.look_again(number)
            return 0
        try:
            for run in runs(numbers):
                begin = arriving.start(run[0])
                data = os.pread(fd, arriving.start(run[-1] + 1) - begin, begin)
                for number in run:
                    file, at = arriving.files[number], arriving.start(number) - begin
                    part = data[at : at + file.size]
                    if root_of(part) == file.root:
                        target.write(file, part)
                        arriving.there[number] = 1
                        written += 1
                    else:
                        arriving.look_again(number)
        finally:
            os.close(fd)
        return written


def runs(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yields the numbers in runs that follow each other without a gap."""
    run: list[int] = []
    for number in numbers:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    if run:
        yield run
