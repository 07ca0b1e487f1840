"""Decides which files of a bundle are packed, in which order, and where a pack ends.

Always: the decision depends on paths, sizes and contents alone, so equal trees give equal packs. A
pack holds files of neighbouring directories, and its end depends on the files beside it. So the
change of a file changes its pack, and rarely the next one.
Pure: no I/O and no clock.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

FEWEST: Final = 100
"""A bundle with at most this many small files has no packs: a swarm moves them as they are."""
LEAST_LIMIT: Final = 32 * 1024
"""In bytes. Files up to this size are small in every bundle."""
MOST_LOOSE: Final = 2000
"""Larger files that a swarm moves one by one. With more of them, larger files are small too."""
USUAL_PACK: Final = 256 * 1024
LEAST_PACK: Final = 64 * 1024
MOST_PACK: Final = 1024 * 1024
"""In bytes. A pack ends before the file that would make it larger."""
MOST_PACKS: Final = 2000
"""About the most packs, since a swarm is slower the more files it moves. Packs grow for that."""
MOST_GROWTH: Final = 16
_SCALE: Final = 1 << 64


def small_limit(sizes: Iterable[int], piece_length: int) -> int:
    """Returns the size up to which files are packed; 0: none are.

    It is at most the piece length, so that the piece layers of larger files are always known.
    """
    ordered = sorted(sizes)
    limit = min(LEAST_LIMIT, piece_length)
    while limit < piece_length and len(ordered) - bisect_right(ordered, limit) > MOST_LOOSE:
        limit *= 2
    small = bisect_right(ordered, limit) - bisect_right(ordered, 0)
    return limit if small > FEWEST else 0


def pack_order(paths: Sequence[bytes]) -> list[int]:
    """Returns the numbers of these files in the order of packs: directory by directory."""
    keys = {}
    for path in paths:
        directory = path.rpartition(b"/")[0]
        if directory not in keys:
            keys[directory] = directory.split(b"/") if directory else []
    parted = [path.rpartition(b"/") for path in paths]
    return sorted(range(len(paths)), key=lambda number: (keys[parted[number][0]], parted[number][2]))


def pack_counts(files: Iterable[tuple[int, bytes]]) -> list[int]:
    """Returns how many files each pack holds, given the size and root of each in pack order.

    A pack ends after a file whose root says so. The larger a file, the more roots do, so that packs
    have about the usual size whatever the size of their files.
    """
    files = list(files)
    growth = pack_growth(sum(size for size, _ in files))
    counts: list[int] = []
    count = weight = 0
    for size, root in files:
        if weight and weight + size > MOST_PACK * growth:
            counts.append(count)
            count = weight = 0
        count, weight = count + 1, weight + size
        ends_here = int.from_bytes(root[:8]) * USUAL_PACK * growth < size * _SCALE
        if weight >= LEAST_PACK * growth and ends_here:
            counts.append(count)
            count = weight = 0
    if weight:
        counts.append(count)
    elif counts:  # only empty files follow the last pack
        counts[-1] += count
    return counts


def pack_growth(size: int) -> int:
    """Returns by which factor packs are larger than usual if the small files have `size` bytes."""
    growth = 1
    while growth < MOST_GROWTH and size > MOST_PACKS * USUAL_PACK * growth:
        growth *= 2
    return growth
