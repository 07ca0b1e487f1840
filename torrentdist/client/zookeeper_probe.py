"""Asks a ZooKeeper server, in its own protocol and without credentials, what a stranger may do with
our tree.

Always: it opens a session of a few seconds, asks one question and closes the session. It changes
nothing.
Never: grow into a client. Code that needs more than this question uses torrentdist.cluster.
"""

import asyncio
import struct
from dataclasses import dataclass
from enum import StrEnum

NO_NODE, NO_AUTH = -101, -102
GET_ACL, CLOSE = 6, -11
SESSION_MS = 4000
CHANGES = 0b11110
"""Every permission except reading."""
MOST_BYTES = 1024 * 1024


class TreeAccess(StrEnum):
    OPEN = "open"
    """Anyone may change it."""
    CLOSED = "closed"
    ABSENT = "absent"
    """The tree does not exist."""


class NotUnderstood(Exception):
    """The server does not answer as a ZooKeeper server would."""


@dataclass
class _ZooKeeperReply:
    data: bytes
    at: int = 0

    def number(self, form: str) -> int:
        try:
            (value,) = struct.unpack_from(f">{form}", self.data, self.at)
        except struct.error as exc:
            raise NotUnderstood(str(exc)) from exc
        self.at += struct.calcsize(f">{form}")
        return int(value)

    def text(self) -> str:
        size = max(0, self.number("i"))
        self.at += size
        if self.at > len(self.data):
            raise NotUnderstood("an answer that ends too early")
        return self.data[self.at - size : self.at].decode(errors="replace")


async def ask_access(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> TreeAccess:
    """Asks for the access rights of the znode `path` over a new connection."""
    _send(writer, struct.pack(">iqiqi16sb", 0, 0, SESSION_MS, 0, 16, bytes(16), 0))
    await _receive(reader)
    name = path.encode()
    _send(writer, struct.pack(f">iii{len(name)}s", 1, GET_ACL, len(name), name))
    data = await _receive(reader)
    _send(writer, struct.pack(">ii", 2, CLOSE))
    return parse_access(data)


def parse_access(data: bytes) -> TreeAccess:
    answer = _ZooKeeperReply(data)
    answer.number("i")
    answer.number("q")
    error = answer.number("i")
    if error == NO_NODE:
        return TreeAccess.ABSENT
    if error == NO_AUTH:
        return TreeAccess.CLOSED
    if error:
        raise NotUnderstood(f"error {error}")
    for _ in range(answer.number("i")):
        permissions, scheme, identity = answer.number("i"), answer.text(), answer.text()
        if (scheme, identity) == ("world", "anyone") and permissions & CHANGES:
            return TreeAccess.OPEN
    return TreeAccess.CLOSED


def _send(writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(struct.pack(">i", len(request)) + request)


async def _receive(reader: asyncio.StreamReader) -> bytes:
    try:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        if not 0 < size <= MOST_BYTES:
            raise NotUnderstood(f"an answer of {size} bytes")
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as exc:
        raise NotUnderstood("it closed the connection") from exc
