"""The hash trees of BEP 52, as pure functions over digests.

Always holds: leaves are SHA-256 of 16 KiB blocks (the last one of a file may be shorter); what is missing to a power of
two counts as a zero digest at the leaves, and as the root of such a subtree at the piece layer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache

BLOCK = 16 * 1024
HASH = 32
ZERO = bytes(HASH)


def leaves(data: memoryview) -> list[bytes]:
    """The digests of the blocks of `data`, which starts at a block's border."""
    sha256 = hashlib.sha256
    return [sha256(data[i : i + BLOCK]).digest() for i in range(0, len(data), BLOCK)]


def root(layer: Sequence[bytes], pad: bytes = ZERO, *, width: int = 1) -> bytes:
    """The root over `layer`, padded to a power of two that is at least `width`."""
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
    """The hash of one piece of a file that has several."""
    return root(blocks, width=piece_length // BLOCK)


@cache
def empty_piece(piece_length: int) -> bytes:
    """What stands for a piece that pads the piece layer."""
    return root([ZERO], width=piece_length // BLOCK)


def root_of_layer(layer: bytes, piece_length: int) -> bytes:
    """The root of a file from its piece layer."""
    return root([layer[i : i + HASH] for i in range(0, len(layer), HASH)], empty_piece(piece_length))
