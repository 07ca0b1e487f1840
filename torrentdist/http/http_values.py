"""A request, an answer and their headers, as values."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
MOST_BYTES: Final = 64 * 1024 * 1024
"""Largest body of an answer that callers accept unless they say otherwise: that of the largest
metafile.
"""


class Headers(Mapping[str, str]):
    """Values by name. Upper and lower case of a name don't matter."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class SentRequest(msgspec.Struct, frozen=True):
    """A complete request, and the most bytes that its answer's body may have."""

    method: str
    url: str
    headers: Headers
    content: bytes | None = None
    most_bytes: int = MOST_BYTES


class Answer(msgspec.Struct, frozen=True):
    """A complete answer, whatever its status."""

    status_code: int
    headers: Headers = Headers({})
    content: bytes = b""
    url: str = ""
    """The URL of the request."""
    stream: asyncio.StreamWriter | None = None
    """The connection over which the answer came. It may be closed."""

    @property
    def is_redirect(self) -> bool:
        return self.status_code in _REDIRECTS and "location" in self.headers
