"""Reads the head of an answer, and unpacks its body.

Always: an answer that HTTP does not allow is an HttpError. The unpacked body is bounded before it
is made, however small the packed one is.
Pure: no I/O.
"""

import re
import zlib
from typing import Final, NamedTuple

from torrentdist.http.http_values import AnswerTooLarge, Headers, HttpError

_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: .*)?")
_LENGTH: Final = re.compile(r"[0-9]{1,15}")
_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,15}")


class AnswerHead(NamedTuple):
    """What comes before an answer's body."""

    status: int
    headers: Headers
    lasting: bool
    """Whether the server keeps the connection open afterwards."""


def read_head(head: bytes) -> AnswerHead:
    """Returns what these bytes say, which end with an empty line."""
    first, *lines = head[:-4].split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise HttpError(f"this is no HTTP: {first[:40].decode('latin-1')!r}")
    values: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip():
            raise HttpError(f"a header like {line[:40].decode('latin-1')!r}")
        known = values.get(name.lower())
        values[name.lower()] = value.strip() if known is None else f"{known}, {value.strip()}"
    lasting = first.startswith(b"HTTP/1.1") and "close" not in values.get("connection", "").lower()
    return AnswerHead(int(status[1]), Headers(values), lasting)


def length_in(headers: Headers) -> int | None:
    """Returns the number of bytes that the body has. None: the headers don't say."""
    length = headers.get("content-length")
    if length is not None and not _LENGTH.fullmatch(length):
        raise HttpError(f"a length of {length!r}")
    return None if length is None else int(length)


def chunk_size(line: bytes) -> int:
    """Returns the number of bytes of the chunk that this line begins. 0: it is the last one."""
    size = line.split(b";")[0].strip()
    if not _SIZE.fullmatch(size):
        raise HttpError(f"a chunk of {size[:20]!r} bytes")
    return int(size, 16)


def expect_room(size: int, most: int) -> None:
    """Raises AnswerTooLarge if a body of `size` bytes is larger than `most`."""
    if size > most:
        raise AnswerTooLarge(f"the answer has more than {most} bytes")


def unpacked(content: bytes, headers: Headers, most: int) -> bytes:
    """Returns the body as it was before the server packed it."""
    coding = headers.get("content-encoding", "identity").lower()
    if coding == "identity" or not content:
        return content
    if coding != "gzip":
        raise HttpError(f"unknown content encoding {coding}")
    packed = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        whole = packed.decompress(content, most + 1)
    except zlib.error as exc:
        raise HttpError(f"an answer that cannot be unpacked: {exc}") from exc
    expect_room(len(whole), most)
    if not packed.eof:
        raise HttpError("the answer was cut off")
    return whole
