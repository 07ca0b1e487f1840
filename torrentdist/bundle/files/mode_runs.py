"""The modes of a bundle's files as runs of equal ones, beside what its digest covers.

Always: a mode that was read only takes rights away from the usual one, and never from the owner the
right to read, or to execute what the bundle calls executable. So a forged mode does no harm.
Pure: functions of values.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, repeat

from torrentdist.bundle.file_tree import FileEntry

EXECUTABLE, USUAL = 0o755, 0o644
_AS_USUAL = 0
"""Stands for the usual mode of a file."""


def usual_mode(executable: bool) -> int:
    return EXECUTABLE if executable else USUAL


def encode_runs(modes: Iterable[tuple[int, bool]]) -> list[int]:
    """Returns mode, number of files, mode, number of files, and so on; nothing if all are usual.
    `modes`: of each file its mode, and whether it is executable."""
    told = (_AS_USUAL if mode == usual_mode(executable) else mode for mode, executable in modes)
    runs = [(mode, sum(1 for _ in files)) for mode, files in groupby(told)]
    return [] if runs == [(_AS_USUAL, sum(count for _, count in runs))] else list(chain.from_iterable(runs))


def checked_runs(runs: Sequence[object], files: int) -> tuple[int, ...] | None:
    """Returns these runs if they are of so many files, and None otherwise."""
    numbers = tuple(one for one in runs if isinstance(one, int) and one >= 0)
    is_whole = len(numbers) == len(runs) and len(runs) % 2 == 0 and sum(numbers[1::2]) == files
    return numbers if is_whole and max(numbers[::2], default=0) <= 0o777 else None


def own_modes(files: Sequence[FileEntry], runs: Sequence[int]) -> Iterator[int]:
    """Yields for each file the mode that a copy has for its owner, before the umask."""
    told = chain.from_iterable(repeat(mode, count) for mode, count in zip(runs[::2], runs[1::2], strict=True))
    for file, mode in zip(files, told if runs else repeat(_AS_USUAL), strict=False):
        usual, kept = usual_mode(file.executable), 0o500 if file.executable else 0o400
        yield usual if mode == _AS_USUAL else mode & usual | kept
