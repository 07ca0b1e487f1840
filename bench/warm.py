"""Memory that is at hand when a clock runs.

A machine that is a guest waits for its own host where it touches a page first, 2 to 5 ms a MiB, and what has been free
for seconds goes back there in blocks of megabytes. Who comes second in a comparison would mostly find the pages that
the first one touched, or none of them. Always holds: what was taken is free again but for one page in each block, which
keeps the rest of it here until we end.
"""

from __future__ import annotations

import mmap
from typing import Final

BLOCK: Final = 1024 * 1024


class WarmMemory:
    def __init__(self) -> None:
        self._kept: list[mmap.mmap] = []
        self.size = 0

    def warm(self, size: int) -> None:
        """So many bytes, together with what was warmed before."""
        blocks = -(-(size - self.size) // BLOCK)
        if blocks <= 0:
            return
        pages = mmap.mmap(-1, blocks * BLOCK)
        for _ in range(blocks):
            pages.write(bytes(BLOCK))
        for start in range(0, blocks * BLOCK, BLOCK):
            pages.madvise(mmap.MADV_REMOVE, start + mmap.PAGESIZE, BLOCK - mmap.PAGESIZE)
        self._kept.append(pages)
        self.size += blocks * BLOCK
