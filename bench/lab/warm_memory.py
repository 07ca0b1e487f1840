"""Makes memory available before a clock runs, so that a comparison is fair.

A virtual machine waits for its own host at the first touch of a page, 2 to 5 ms per MiB, and memory
that has been free for seconds goes back in blocks of megabytes. So the second side of a comparison
would mostly find the pages that the first one touched, or none. WarmMemory is for hosts that write
to memory: it takes memory and frees all of it but one page per block, which keeps the block here.
`fill_page_cache` is for hosts that write files: large writes take whole blocks from the host only
while free ones exist.

Never: take so much that the kernel kills processes for it.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

from torrentdist.bundle.files.durability import sync_filesystem

BLOCK: Final = 1024 * 1024
FILLED: Final = 8
"""Times what is written: so much of the memory is full, if there is so much."""
SPARED: Final = 1 / 16
"""The share of the available memory that is left to others."""


class WarmMemory:
    def __init__(self) -> None:
        self._kept: list[mmap.mmap] = []
        self.size = 0

    def warm(self, size: int) -> None:
        """So many bytes, together with what was warmed before, or as many as this machine has."""
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
    """Have `size` bytes of memory, or all that is available, full of what may be dropped, as it is
    on a machine that has been up for a day. `file` is made for it, with nothing but a hole in it,
    and has to stay."""
    size = min(size, available())
    with file.open("ab+", buffering=0) as hole:
        hole.truncate(size)
        hole.seek(0)
        into = bytearray(BLOCK)
        while hole.readinto(into):
            pass


def level(directory: Path, size: int, held: Path) -> None:
    """For whoever writes so much into `directory`: the page cache is full, what is `held` at hand
    in it, and nothing is left to be written back."""
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
