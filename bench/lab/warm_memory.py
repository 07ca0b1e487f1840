"""Makes memory available before the clock runs, so that a comparison is fair.

A virtual machine waits for its own host at the first touch of a page, 2 to 5 ms per MiB, and memory
that has been free for seconds goes back to that host in blocks of megabytes. So the second side of
a comparison would find the pages that the first one touched, or none. WarmMemory is for hosts that
write to memory: it takes memory, and frees all of it except one page per block, which keeps the
block on this machine. `fill_page_cache` is for hosts that write files: large writes take whole
blocks from the outer host only while free ones exist.

Never: take so much that the kernel kills processes for it.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

from torrentdist.bundle.files.durability import sync_filesystem

BLOCK: Final = 1024 * 1024
FILLED: Final = 8
"""The page cache is filled up to this many times the size that is written, if there is enough
memory."""
SPARED: Final = 1 / 16
"""The share of the available memory that is left to others."""


class WarmMemory:
    def __init__(self) -> None:
        self._kept: list[mmap.mmap] = []
        self.size = 0

    def warm(self, size: int) -> None:
        """Warms `size` bytes, counting what was warmed before, or as much as this machine has."""
        blocks = lacking_blocks(size - self.size, available())
        if not blocks:
            return
        pages = mmap.mmap(-1, blocks * BLOCK)
        for _ in range(blocks):
            pages.write(bytes(BLOCK))
        for start in range(0, blocks * BLOCK, BLOCK):
            pages.madvise(mmap.MADV_REMOVE, start + mmap.PAGESIZE, BLOCK - mmap.PAGESIZE)
        self._kept.append(pages)
        self.size += blocks * BLOCK


def fill_page_cache(file: Path, size: int) -> None:
    """Fills `size` bytes of memory, or all that is available, with pages that the kernel may drop,
    as on a machine that has been up for a day. `file` is created as one large hole for this and has
    to stay."""
    size = min(size, available())
    with file.open("ab+", buffering=0) as hole:
        hole.truncate(size)
        hole.seek(0)
        into = bytearray(BLOCK)
        while hole.readinto(into):
            pass


def level(directory: Path, size: int, held: Path) -> None:
    """Prepares `directory` for a run that writes `size` bytes: fills the page cache, reads the
    files in `held` into it, and writes back all earlier writes."""
    fill_page_cache(directory / "filling", FILLED * size)
    for path in held.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(BLOCK):
                    pass
    sync_filesystem(directory)


def lacking_blocks(size: int, there: int) -> int:
    return max(0, min(-(-size // BLOCK), int(there * (1 - SPARED)) // BLOCK))


def available() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
