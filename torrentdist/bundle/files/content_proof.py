"""Checks bytes of a bundle that come one after the other, and keeps none of them.

Always: a byte counts only when its piece has the hash that the metafile gives. Memory is that of
the hashes of one piece.
"""

from collections import deque

from torrentdist.bundle import merkle
from torrentdist.bundle.metafile import Metafile, WireFile
from torrentdist.model.errors import TorrentdistError


class ContentProof:
    """The proof that a sender has all bytes of a bundle, which it sends in the metafile's order."""

    def __init__(self, meta: Metafile) -> None:
        self.meta = meta
        self.offset = 0
        """Number of bytes that have come."""
        self._files = deque(file for file in meta.wire_files if file.size)
        self._piece_at = 0
        """Where the present piece begins in its file."""
        self._blocks: list[bytes] = []
        """The hashes of the blocks of the present piece."""
        self._rest = bytearray()
        """Bytes of a block that is not whole yet."""

    @property
    def is_complete(self) -> bool:
        return not self._files

    def add(self, data: bytes) -> None:
        """Takes the next bytes. Raises `corrupt` if they are not the bundle's. It blocks."""
        self._rest += data
        while self._files:
            file = self._files[0]
            length = min(self.meta.piece_length, file.size - self._piece_at)
            left = length - merkle.BLOCK * len(self._blocks)
            taken = left if len(self._rest) >= left else len(self._rest) - len(self._rest) % merkle.BLOCK
            if not taken:
                break
            self._blocks += merkle.leaves(memoryview(bytes(self._rest[:taken])))
            del self._rest[:taken]
            if taken == left:
                self._end_piece(file, length)
        self.offset += len(data)

    def _end_piece(self, file: WireFile, length: int) -> None:
        layer, number = self.meta.piece_layers.get(file.root), self._piece_at // self.meta.piece_length
        if layer is None:
            wanted, found = file.root, merkle.root(self._blocks)
        else:
            wanted = layer[number * merkle.HASH : (number + 1) * merkle.HASH]
            found = merkle.piece_hash(self._blocks, self.meta.piece_length)
        if found != wanted:
            raise TorrentdistError("corrupt", path=file.path, detail=f"its bytes at {self._piece_at} are others")
        self._blocks, self._piece_at = [], self._piece_at + length
        if self._piece_at == file.size:
            self._files.popleft()
            self._piece_at = 0
