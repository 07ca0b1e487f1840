"""Memory that the bench keeps available."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

from bench.lab.warm_memory import BLOCK, WarmMemory, available, fill_page_cache, lacking_blocks


def shared_kib() -> int:
    """Returns the shared memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssShmem"))


def test_of_what_was_warmed_one_page_is_kept_in_each_block() -> None:
    """If no page were kept, the machine would give all memory back before the clock runs; if all
    were kept, the hosts would have none."""
    before = shared_kib()
    memory = WarmMemory()
    memory.warm(32 * BLOCK)
    kept = shared_kib() - before
    memory.warm(16 * BLOCK)

    assert 32 * 4 == kept
    assert shared_kib() - before == kept
    memory.warm(40 * BLOCK)
    assert 40 * 4 == shared_kib() - before


def test_no_more_is_taken_than_the_machine_has() -> None:
    """The bench would end the cluster that it measures, or the user's own programs."""
    assert [0, 3, 15] == [lacking_blocks(size * BLOCK, 16 * BLOCK) for size in (-1, 3, 20)]
    assert BLOCK < available()


def in_memory(path: Path) -> int:
    """Returns the number of the file's pages in the page cache."""
    with path.open("rb+") as file, mmap.mmap(file.fileno(), 0) as pages:
        count = -(-len(pages) // mmap.PAGESIZE)
        there = (ctypes.c_ubyte * count)()
        window = ctypes.c_char.from_buffer(pages)
        asked = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(window)), ctypes.c_size_t(len(pages)), there)
        del window
    assert asked == 0
    return sum(page & 1 for page in there)


def test_the_page_cache_is_filled_with_what_takes_no_disk(tmp_path: Path) -> None:
    """One side of a comparison would write into memory that the machine has to get first, or the
    bench would fill the disk."""
    file = tmp_path / "filling"
    fill_page_cache(file, 32 * BLOCK)
    fill_page_cache(file, 32 * BLOCK)

    assert in_memory(file) > 0.9 * 32 * BLOCK / mmap.PAGESIZE
    assert file.stat().st_blocks == 0
