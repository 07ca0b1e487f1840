"""The modes of a bundle's files, as its metafile keeps them."""

from __future__ import annotations

import pytest

from torrentdist.bundle.file_tree import FileEntry
from torrentdist.bundle.files.mode_runs import checked_runs, encode_runs, own_modes

PLAIN, PROGRAM = (0o644, False), (0o755, True)


@pytest.mark.parametrize(
    ("modes", "runs"),
    [
        ([], []),
        ([PLAIN, PROGRAM, PLAIN], []),
        ([(0o600, False)], [0o600, 1]),
        ([PLAIN, PROGRAM, (0o600, False), (0o600, True), PLAIN], [0, 2, 0o600, 2, 0, 1]),
        ([(0o755, False), (0o644, True)], [0o755, 1, 0o644, 1]),
    ],
)
def test_equal_modes_stand_together(modes: list[tuple[int, bool]], runs: list[int]) -> None:
    """A metafile of a million files grows by a number for each, or loses a mode."""
    assert runs == encode_runs(modes)


@pytest.mark.parametrize("runs", [[], [0, 0], [0, 2, 0o777, 1], [0o400, 3]])
def test_modes_of_all_files_are_taken(runs: list[object]) -> None:
    """A bundle with a private key is refused, or comes without its modes."""
    assert tuple(runs) == checked_runs(runs, sum(n for n in runs[1::2] if isinstance(n, int)))


@pytest.mark.parametrize("runs", [[0, 2], [0, 4], [0o1000, 3], [0], [0, 3, 0], [-1, 3], [0, 4, 0, -1], [0, 3, b"x", 0]])
def test_forged_modes_are_not_taken(runs: list[object]) -> None:
    """A forged metafile makes a program that runs as its owner, or fails a download halfway."""
    assert checked_runs(runs, 3) is None


def entry(executable: bool) -> FileEntry:
    return FileEntry(path="f", size=0, root=b"", executable=executable)


@pytest.mark.parametrize(
    ("executable", "told", "mode"),
    [
        (False, 0, 0o644),
        (True, 0, 0o755),
        (False, 0o777, 0o644),
        (True, 0o777, 0o755),
        (False, 0o600, 0o600),
        (True, 0o600, 0o700),
        (False, 0o001, 0o400),
        (True, 0o001, 0o501),
        (False, 0o040, 0o440),
    ],
)
def test_a_mode_takes_rights_and_leaves_the_owner_its_own(executable: bool, told: int, mode: int) -> None:
    """A forged mode opens a file to everybody, or closes it to its owner."""
    assert [mode] == list(own_modes([entry(executable)], (told, 1)))


def test_each_file_has_its_own_mode() -> None:
    """A private file gets the mode of its neighbour."""
    files = [entry(executable) for executable in (False, False, True, False)]

    assert [0o600, 0o600, 0o755, 0o444] == list(own_modes(files, (0o600, 2, 0, 1, 0o444, 1)))
    assert [0o644, 0o644, 0o755, 0o644] == list(own_modes(files, ()))
