"""How far the upload of one blob is, and which bytes may come next.

Always: bytes are taken at the place where the upload ends, and nowhere else. What has come stays,
so that a client whose connection broke goes on from there.
Pure: no I/O and no clock.
"""

import re
from typing import Final

import msgspec
from msgspec.structs import replace

from torrentdist.model.errors import TorrentdistError

MOST_BYTES: Final = 1 << 40
"""Largest blob."""
_RANGE: Final = re.compile(r"(?:bytes )?(\d{1,15})-(\d{1,15})(?:/(?:\d{1,15}|\*))?", re.ASCII)
_LENGTH: Final = re.compile(r"\d{1,15}", re.ASCII)


class BlobChunk(msgspec.Struct, frozen=True):
    """What a request says of the bytes in its body. None: it does not say that."""

    start: int | None = None
    size: int | None = None


def chunk_of(content_range: str | None, content_length: str | None) -> BlobChunk:
    """Reads the headers of a request, or raises `invalid_request`."""
    size = None
    if content_length is not None:
        if _LENGTH.fullmatch(content_length) is None:
            raise _invalid(f"Content-Length {content_length[:100]!r} is no number")
        size = int(content_length)
    if content_range is None:
        return BlobChunk(None, size)
    found = _RANGE.fullmatch(content_range)
    if found is None:
        raise _invalid(f"Content-Range {content_range[:100]!r} is not START-END")
    start, told = int(found[1]), int(found[2]) + 1 - int(found[1])
    if told < 0 or size not in (None, told):
        raise _invalid(f"Content-Range {content_range[:100]!r} has another length than the body")
    return BlobChunk(start, told)


class UploadState(msgspec.Struct, frozen=True):
    """Bytes that have come, and the bytes that may still come in the request under way."""

    offset: int = 0
    expected: int | None = None
    """Bytes that the request under way still has to send; None: it did not say."""
    is_busy: bool = False

    def begun(self, chunk: BlobChunk) -> "UploadState":
        """Returns the state in which the chunk's bytes are taken. Raises `range_not_satisfiable`
        for a chunk that does not follow, and while another request sends."""
        if self.is_busy or chunk.start not in (None, self.offset):
            raise TorrentdistError("range_not_satisfiable", range=f"{chunk.start}-", size=self.offset)
        return replace(self._within(chunk.size or 0), expected=chunk.size, is_busy=True)

    def received(self, count: int) -> "UploadState":
        """Returns the state after these bytes. Raises an error for more than were announced."""
        if self.expected is not None and count > self.expected:
            raise _invalid("the body has more bytes than it announced")
        left = None if self.expected is None else self.expected - count
        return replace(self._within(count), offset=self.offset + count, expected=left)

    def ended(self) -> "UploadState":
        """Returns the state after a request, whether it sent all its bytes or not."""
        return UploadState(self.offset)

    @property
    def range(self) -> str:
        """Returns the value of the Range header, which names the last byte that is here."""
        return f"0-{max(0, self.offset - 1)}"

    def _within(self, more: int) -> "UploadState":
        if self.offset + more > MOST_BYTES:
            raise TorrentdistError("too_large", what="the blob, in bytes,", size=self.offset + more, limit=MOST_BYTES)
        return self


def _invalid(detail: str) -> TorrentdistError:
    return TorrentdistError("invalid_request", detail=detail)
