"""The hash trees of BEP 52.

Always: a leaf is the SHA-256 of a 16 KiB block; the last block of a file may be shorter. Leaves are
padded with zeros to a power of two; the piece layer is padded with the root of such a subtree.
Pure: functions of digests.
"""

import hashlib
from collections.abc import Sequence
from functools import cache

BLOCK = 16 * 1024
HASH = 32
ZERO = bytes(HASH)


def leaves(data: memoryview) -> list[bytes]:
    """Returns the digests of the blocks of `data`, which starts at a block boundary."""
    sha256 = hashlib.sha256
    return [sha256(data[i : i + BLOCK]).digest() for i in range(0, len(data), BLOCK)]


def root(layer: Sequence[bytes], pad: bytes = ZERO, *, width: int = 1) -> bytes:
    """Returns the root over `layer`, padded to a power of two that is at least `width`."""
    sha256 = hashlib.sha256
    nodes = list(layer)
    while len(nodes) > 1 or width > 1:
        if len(nodes) % 2:
            nodes.append(pad)
        nodes = [sha256(nodes[i] + nodes[i + 1]).digest() for i in range(0, len(nodes), 2)]
        pad = sha256(pad + pad).digest()
        width //= 2
    return nodes[0]


def piece_hash(blocks: Sequence[bytes], piece_length: int) -> bytes:
    """Returns the hash of one piece of a file with several pieces."""
    return root(blocks, width=piece_length // BLOCK)


@cache
def empty_piece(piece_length: int) -> bytes:
    """Returns the hash that pads the piece layer."""
    return root([ZERO], width=piece_length // BLOCK)


def root_of_layer(layer: bytes, piece_length: int) -> bytes:
    """Returns the root of a file from its piece layer."""
    return root([layer[i : i + HASH] for i in range(0, len(layer), HASH)], empty_piece(piece_length))
