"""Small files are written while their packs arrive: never too early, and each of them once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torrentdist.bundle.content_check import finish_content, verify_content
from torrentdist.bundle.metafile import FileEntry, Metafile, WireFile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.packs.arriving_files import ArrivingFiles, ArrivingPack
from torrentdist.bundle.packs.pack_files import write_packs
from torrentdist.model.errors import TorrentdistError
from torrentdist.testing.sample_trees import some_bytes, write_tree

TREE = {f"d{number % 4}/f{number:03}": some_bytes(3000 + number, number) for number in range(200)} | {"d1/empty": b""}


def always() -> bool:
    return True


class Arrival:
    """A bundle with packs that lie in `brought`, and arrive in `home` piece by piece."""

    def __init__(self, top: Path) -> None:
        write_tree(top / "source", TREE)
        self.meta = make_metafile(top / "source")
        self.brought, self.home = top / "brought", top / "home"
        self.home.mkdir()
        write_packs(self.meta, top / "source", self.brought)
        self.files = ArrivingFiles(self.meta, self.home)
        self.have = [False] * self.meta.num_pieces

    def pieces(self) -> list[tuple[WireFile, int]]:
        """Returns for each piece of the torrent its pack, and from which byte on it lies there."""
        length = self.meta.piece_length
        return [(pack, start) for pack in self.meta.wire_files for start in range(0, pack.size, length)]

    def bring(self, number: int) -> None:
        """Writes a piece into its pack."""
        pack, start = self.pieces()[number]
        (self.home / "packs").mkdir(exist_ok=True)
        target = self.home / pack.place
        with open(target, "r+b" if target.exists() else "w+b") as file:
            file.seek(start)
            file.write((self.brought / pack.place).read_bytes()[start : start + self.meta.piece_length])

    def written(self) -> set[str]:
        content = self.home / "content"
        return {str(path.relative_to(content)) for path in content.rglob("*") if path.is_file()}


@pytest.fixture
def arrival(tmp_path: Path) -> Arrival:
    return Arrival(tmp_path)


def whole_within(meta: Metafile, have: list[bool]) -> set[str]:
    """Returns the files with content whose every piece is here, by another way than the code."""
    found, at = set(), 0
    for pack, files in meta.packs:
        start = 0
        for file in files:
            last = start + file.size - 1
            if file.size and all(have[at + start // meta.piece_length : at + last // meta.piece_length + 1]):
                found.add(file.path)
            start += file.size
        at += -(-pack.size // meta.piece_length)
    return found


@pytest.mark.case("N1")
def test_files_are_written_as_their_pieces_come(arrival: Arrival) -> None:
    """If this fails, all files are written after the last piece, and hosts wait for their disks."""
    seen = []
    for number in reversed(range(len(arrival.have))):
        arrival.bring(number)
        arrival.have[number] = True
        arrival.files.write(arrival.have, always)
        seen.append(arrival.written() - {"d1/empty"} == whole_within(arrival.meta, arrival.have))

    assert len(seen) > 10
    assert [True] * len(seen) == seen


@pytest.mark.case("N1")
def test_what_is_left_at_the_end_makes_the_tree_whole(arrival: Arrival) -> None:
    """If this fails, a host lacks files, or would run others than were uploaded."""
    for number in range(len(arrival.have)):
        arrival.bring(number)
    half = [number % 2 == 0 for number in range(len(arrival.have))]
    early = arrival.files.write(half, always)
    arrival.files.write_rest()
    finish_content(arrival.meta, arrival.home / "content")

    assert 0 < early < len(TREE)
    assert [] == verify_content(arrival.meta, arrival.home / "content")


def test_each_file_is_written_once(arrival: Arrival) -> None:
    """If this fails, a host writes 50,000 files twice."""
    for number in range(len(arrival.have)):
        arrival.bring(number)
    everything = [True] * len(arrival.have)
    counts = [arrival.files.write(everything, always) for _ in range(2)]
    before = {path: os.lstat(arrival.home / "content" / path).st_ino for path in arrival.written()}
    for pack in (arrival.home / "packs").iterdir():
        pack.unlink()  # nothing is read again
    arrival.files.write_rest()

    assert [len(TREE), 0] == counts
    assert before.items() <= {p: os.lstat(arrival.home / "content" / p).st_ino for p in arrival.written()}.items()


@pytest.mark.case("N2")
def test_a_piece_that_is_still_in_memory_is_looked_at_again(arrival: Arrival) -> None:
    """libtorrent verifies a piece before it writes it. If this fails, a host has files of zeros,
    or writes them all at the end."""
    everything = [True] * len(arrival.have)
    without_packs = arrival.files.write(everything, always)
    arrival.bring(1)
    arrival.files.write(everything, always)
    first = arrival.written()
    for number in range(len(everything)):
        arrival.bring(number)
    arrival.files.write(everything, always)

    assert 1 == without_packs  # the empty one
    assert first - {"d1/empty"} <= whole_within(arrival.meta, [number == 1 for number in range(len(everything))])
    assert set(TREE) == arrival.written()


@pytest.mark.case("N2")
def test_a_flipped_bit_never_becomes_a_file(arrival: Arrival) -> None:
    """If this fails, a disk that damages one bit of a pack makes a host run other code."""
    for number in range(len(arrival.have)):
        arrival.bring(number)
    pack, files = arrival.meta.packs[0]
    data = bytearray((arrival.home / pack.place).read_bytes())
    data[0] ^= 4
    (arrival.home / pack.place).write_bytes(data)
    arrival.files.write([True] * len(arrival.have), always)

    assert set(TREE) - {files[0].path} == arrival.written()
    with pytest.raises(TorrentdistError, match="other bytes"):
        arrival.files.write_rest()


def test_nothing_is_written_for_a_fetch_that_was_given_up(arrival: Arrival) -> None:
    """If this fails, a thread writes into a bundle that is being deleted."""
    for number in range(len(arrival.have)):
        arrival.bring(number)

    assert 0 == arrival.files.write([True] * len(arrival.have), lambda: False)
    assert set() == arrival.written()


def test_before_it_is_known_what_is_here_nothing_is_looked_at(arrival: Arrival) -> None:
    """A fetch is looked at before its engine has it. If this fails, no file of it is written
    early."""
    for number in range(len(arrival.have)):
        arrival.bring(number)
    at_first = arrival.files.write([], always)

    assert (0, len(TREE)) == (at_first, arrival.files.write([True] * len(arrival.have), always))


@pytest.mark.parametrize(
    ("sizes", "have", "ready"),
    [
        ([10, 10, 10], [True, False], [0]),  # the second lies in both pieces
        ([10, 10, 10], [False, True], [2]),
        ([10, 10, 10], [True, True], [0, 1, 2]),
        ([16, 16], [False, True], [1]),
        ([0, 16, 0, 16, 0], [True, False], [1]),
        ([0, 16, 0, 16, 0], [False, True], [3]),
    ],
)
def test_a_file_is_ready_with_all_of_its_pieces(sizes: list[int], have: list[bool], ready: list[int]) -> None:
    """If this fails, files at the borders of pieces are written too late or from holes."""
    files = [FileEntry(f"f{number}", size, b"", False) for number, size in enumerate(sizes)]
    arriving = ArrivingPack(WireFile("../packs/00000", "packs/00000", sum(sizes), b""), files, 16)

    assert ready == arriving.ready(have)
    assert [] == arriving.ready(have)


def test_a_second_look_at_a_piece_names_no_file_that_is_written() -> None:
    """Files share pieces. If this fails, a file that waits for the disk has its neighbours written
    again and again."""
    files = [FileEntry(f"f{number}", 5, b"", False) for number in range(3)]
    arriving = ArrivingPack(WireFile("../packs/00000", "packs/00000", 15, b""), files, 16)
    first = arriving.ready([True])
    arriving.there[0] = arriving.there[2] = 1
    arriving.look_again(1)

    assert [0, 1, 2] == first
    assert [1] == arriving.ready([True])


def test_what_is_said_of_finished_files_is_true(arrival: Arrival) -> None:
    """Marks are made of it. If this fails, a host reads files again each time they are handed out,
    or never notices that one was changed."""
    for number in range(len(arrival.have)):
        arrival.bring(number)
    arrival.files.write_rest()
    content = arrival.home / "content"
    (content / "d1/f001").chmod(0o600)
    known = finish_content(arrival.meta, content)
    again = {path: os.lstat(content / path) for path in known}

    assert len(TREE) - 2 <= len(known)
    assert {path: (info.st_ctime_ns, info.st_mode) for path, info in again.items()} == {
        path: (info.st_ctime_ns, info.st_mode) for path, info in known.items()
    }
