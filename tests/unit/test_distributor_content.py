"""Completing a file: whatever is there before, the result is the file of the metafile, or a failure
that can be resumed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from torrentdist.bundle import merkle
from torrentdist.bundle.metafile import FileEntry
from torrentdist.distributor.plugin_files import complete_file, in_parallel, keep_metafile, kept_for, kept_metafiles
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

CONTENT = bytes(range(256)) * 300
FILE = FileEntry("data.bin", len(CONTENT), merkle.root(merkle.leaves(memoryview(CONTENT))), False)


class Source:
    """Gives the bytes of `content` in chunks, and records the offsets at which it was asked."""

    def __init__(self, content: bytes = CONTENT, *, breaks_after: int | None = None) -> None:
        self._content = content
        self._breaks_after = breaks_after
        self.offsets: list[int] = []

    def __call__(self, offset: int) -> Iterator[bytes]:
        self.offsets.append(offset)
        for start in range(offset, len(self._content), 1000):
            if self._breaks_after is not None and start - offset >= self._breaks_after:
                raise ConnectionAbortedError
            yield self._content[start : start + 1000]


def wrong(content: bytes) -> bytes:
    return bytes([content[0] ^ 1]) + content[1:]


@pytest.mark.parametrize(
    ("there", "offsets"),
    [
        (None, [0]),
        (b"", [0]),
        (CONTENT[:5000], [5000]),
        (CONTENT, []),
        (wrong(CONTENT), [0]),
        (bytes(len(CONTENT)), [0]),
        (wrong(CONTENT[:5000]), [5000, 0]),
        (CONTENT + b"more", [0]),
    ],
    ids=["nothing", "empty", "a part", "all", "damaged", "holes", "a damaged part", "too much"],
)
def test_what_lies_there_is_used_or_replaced(tmp_path: Path, there: bytes | None, offsets: list[int]) -> None:
    """A resumed download would begin again, or keep wrong bytes."""
    path = tmp_path / "data.bin"
    if there is not None:
        path.write_bytes(there)
    source = Source()
    complete_file(path, FILE, source)

    assert path.read_bytes() == CONTENT
    assert offsets == source.offsets


def test_what_came_before_a_break_stays(tmp_path: Path) -> None:
    """Every broken connection would cost the whole file again."""
    path = tmp_path / "data.bin"
    with pytest.raises(TorrentdistError):
        complete_file(path, FILE, Source(breaks_after=7000))
    second = Source()
    complete_file(path, FILE, second)

    assert second.offsets == [7000]
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x", wrong(CONTENT), b""])
def test_a_source_of_something_else_is_a_failure(tmp_path: Path, content: bytes) -> None:
    """Missing, surplus or changed bytes would count as the file."""
    with pytest.raises(TorrentdistError) as caught:
        complete_file(tmp_path / "data.bin", FILE, Source(content))

    assert caught.value.code == "corrupt"


def test_an_empty_file_needs_no_source(tmp_path: Path) -> None:
    """A zero-length file would be missing, or wait for a holder."""
    source = Source()
    (tmp_path / "empty").write_bytes(b"not empty")
    complete_file(tmp_path / "empty", FileEntry("empty", 0, b"", False), source)

    assert (tmp_path / "empty").read_bytes() == b""
    assert source.offsets == []


@pytest.mark.parametrize("tie", ["symlink_to", "hardlink_to"])
def test_nothing_is_written_through_a_link(tmp_path: Path, tie: str) -> None:
    """A download would change another user's file that is linked into the destination."""
    (tmp_path / "victim").write_text("precious")
    getattr(tmp_path / "data.bin", tie)(tmp_path / "victim")
    complete_file(tmp_path / "data.bin", FILE, Source())

    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def identity(file: Path) -> tuple[int, int, int]:
    """Returns what stays while a file is only read. The time of its last access does not."""
    found = file.stat()
    return found.st_ino, found.st_mtime_ns, found.st_mode


def test_a_published_file_is_replaced_or_left_alone(tmp_path: Path) -> None:
    """A bundle that is repaired in place would fail at its read-only files."""
    whole, damaged = tmp_path / "whole", tmp_path / "damaged"
    whole.write_bytes(CONTENT)
    damaged.write_bytes(wrong(CONTENT))
    whole.chmod(0o444)
    damaged.chmod(0o444)
    before = identity(whole)
    complete_file(whole, FILE, Source())
    complete_file(damaged, FILE, Source())

    assert before == identity(whole)
    assert damaged.read_bytes() == CONTENT


def test_what_the_disk_says_is_a_failure_of_the_disk(tmp_path: Path) -> None:
    """A problem of this host's disk would look like a bad holder, and every holder would be asked
    in vain."""
    (tmp_path / "data.bin").mkdir()
    with pytest.raises(TorrentdistError) as caught:
        complete_file(tmp_path / "data.bin", FILE, Source())

    assert caught.value.code == "disk_error"


def test_a_failure_stops_what_has_not_begun() -> None:
    """A download of ten thousand files would go on for minutes after it has failed."""
    begun = []
    never = threading.Event()

    def work(item: int) -> int:
        begun.append(item)
        if item == 0:
            raise ValueError
        never.wait(0.05)  # slow enough that all of them would take half a minute
        return item

    with pytest.raises(ValueError):  # noqa: PT011 - which one it is says the type alone
        in_parallel(work, range(1000), threads=2)

    assert len(begun) < 500


@pytest.mark.case("A14")
def test_kept_metafiles_of_ids_that_look_alike_stay_apart(tmp_path: Path) -> None:
    """Cleaning up h1 would drop the metafile of h10."""
    one, other = Digest("1" * 64), Digest("2" * 64)
    kept = {bundle_id: keep_metafile(tmp_path, bundle_id, one, b"") for bundle_id in ("h1", "h10", "h1-a", "h1.a")}
    keep_metafile(tmp_path, "h1", other, b"")

    assert set(kept_metafiles(tmp_path, "h1").values()) == {one, other}
    assert list(kept_metafiles(tmp_path, "h10")) == [kept["h10"]]
    assert kept_for(tmp_path, one) == {"h1", "h10", "h1-a", "h1.a"}
