"""A process in which libtorrent has rested for a while gives its free memory back."""

from __future__ import annotations

import ctypes
import os

from process_memory import memory_of

from torrentdist.swarm.native_process import return_free_memory

BLOCK, BLOCKS = 64 * 1024, 1000
"""Blocks of this size lie side by side in the heap."""


def test_free_blocks_below_one_in_use_go_back_to_the_system() -> None:
    """A host would keep the memory of its largest transfer until it is restarted."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [libc.malloc(BLOCK) for _ in range(BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    for block in blocks[:-1]:
        libc.free(block)
    before = memory_of(os.getpid())
    return_free_memory()
    after = memory_of(os.getpid())
    libc.free(blocks[-1])

    assert before - after > BLOCK * BLOCKS / 2
