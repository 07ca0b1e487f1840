"""Reads what ZooKeeper did from the transaction logs of its servers, which none of our faults can
falsify.

Always: it yields committed transactions in their order. A proposal that died with its server is
left out.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

MAGIC = b"ZKLG"


class Kind(IntEnum):
    """ZooKeeper's own numbers."""

    CREATE = 1
    DELETE = 2
    SET = 5
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    CLOSE_SESSION = -11
    ERROR = -1


@dataclass(frozen=True)
class Change:
    kind: Kind
    path: str
    data: bytes = b""
    version: int = 0
    """The new version for a SET; the present version of the znode for a CHECK."""
    ephemeral: bool = False


@dataclass(frozen=True)
class Transaction:
    zxid: int
    session: int
    at: float
    """When ZooKeeper's leader proposed it, by the leader's wall clock."""
    changes: tuple[Change, ...]


class _Reader:
    def __init__(self, data: bytes, offset: int = 0) -> None:
        self.data = data
        self.offset = offset

    def number(self, form: str) -> int:
        value: int = struct.unpack_from(">" + form, self.data, self.offset)[0]
        self.offset += struct.calcsize(">" + form)
        return value

    def buffer(self) -> bytes:
        size = max(0, self.number("i"))
        self.offset += size
        return self.data[self.offset - size : self.offset]

    def text(self) -> str:
        return self.buffer().decode()


def committed(servers: Sequence[Path]) -> list[Transaction]:
    """The committed transactions, from the data directories of all servers of an ensemble."""
    found: dict[int, Transaction] = {}
    logged: Counter[int] = Counter()
    for server in servers:
        mine = {txn.zxid: txn for log in sorted(server.glob("version-2/log.*")) for txn in read_log(log)}
        found.update(mine)
        logged.update(mine.keys())
    majority = len(servers) // 2 + 1
    surely = [zxid for zxid, count in logged.items() if count >= majority]
    # Everything before a committed transaction of the same ZooKeeper epoch is committed too, even
    # where a server took a snapshot of it instead of logging it.
    last = {epoch: max(z for z in surely if z >> 32 == epoch) for epoch in {zxid >> 32 for zxid in surely}}
    return [found[zxid] for zxid in sorted(found) if zxid <= last.get(zxid >> 32, 0)]


def read_log(path: Path) -> Iterator[Transaction]:
    data = path.read_bytes()
    if data[:4] != MAGIC:
        return
    offset = 16
    while offset + 12 <= len(data):
        checksum, size = struct.unpack_from(">qi", data, offset)
        entry = data[offset + 12 : offset + 12 + size]
        if size <= 0 or len(entry) < size or zlib.adler32(entry) != checksum:
            return  # the rest is preallocated, or was cut off by a kill
        yield parse(entry)
        offset += 12 + size + 1


def parse(entry: bytes) -> Transaction:
    reader = _Reader(entry)
    session, _, zxid = reader.number("q"), reader.number("i"), reader.number("q")
    at, kind = reader.number("q") / 1000, reader.number("i")
    return Transaction(zxid, session, at, tuple(_changes(kind, reader)))


def _changes(kind: int, reader: _Reader) -> Iterator[Change]:
    match kind:
        case Kind.CREATE | Kind.CREATE2:
            path, data = reader.text(), reader.buffer()
            for _ in range(reader.number("i")):  # the ACL
                reader.number("i"), reader.buffer(), reader.buffer()
            yield Change(Kind.CREATE, path, data, ephemeral=bool(reader.number("?")))
        case Kind.DELETE:
            yield Change(Kind.DELETE, reader.text())
        case Kind.SET:
            yield Change(Kind.SET, reader.text(), reader.buffer(), reader.number("i"))
        case Kind.CHECK:
            yield Change(Kind.CHECK, reader.text(), version=reader.number("i") - 1)  # the log has the next version
        case Kind.CLOSE_SESSION:
            for _ in range(reader.number("i")):
                yield Change(Kind.DELETE, reader.text())
        case Kind.MULTI:
            parts = [(reader.number("i"), _Reader(reader.buffer())) for _ in range(reader.number("i"))]
            if all(inner != Kind.ERROR for inner, _ in parts):  # otherwise none of it was done
                for inner, part in parts:
                    yield from _changes(inner, part)
        case _:
            return
