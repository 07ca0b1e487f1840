"""A peer that claims to have everything and serves nothing useful: `lying_peer.py lie|stall CONFIG
NAME ADDRESS PORT METAFILE`.

Always: the directory lists it as a complete supervisor, and it accepts every request. It answers
with random bytes (lie) or not at all (stall). Never: send a correct byte.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from pathlib import Path

import msgspec

from torrentdist.bundle.metafile import Metafile, parse_metafile
from torrentdist.http.access import with_token
from torrentdist.http.connection_pool import Http
from torrentdist.model.ids import PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmEntry
from torrentdist.swarm.agent import LocalPeer, MasterAccess, SwarmAgent

HANDSHAKE = 68
UNCHOKE, BITFIELD, REQUEST, PIECE = 1, 5, 6, 7


class Told(msgspec.Struct):
    masters: list[str]
    token: str


class FalsePeer:
    def __init__(self, meta: Metafile, *, lies: bool) -> None:
        self._meta = meta
        self._lies = lies

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            theirs = await reader.readexactly(HANDSHAKE)
            writer.write(theirs[:20] + bytes(8) + theirs[28:48] + b"-XX0001-" + os.urandom(12))
            writer.write(_message(BITFIELD, self._everything()) + _message(UNCHOKE))
            while True:
                (length,) = struct.unpack(">I", await reader.readexactly(4))
                message = await reader.readexactly(length)
                if self._lies and message[:1] == bytes([REQUEST]):
                    piece, begin, size = struct.unpack(">III", message[1:])
                    writer.write(_message(PIECE, struct.pack(">II", piece, begin) + os.urandom(size)))
                    await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    def _everything(self) -> bytes:
        full, rest = divmod(self._meta.num_pieces, 8)
        return b"\xff" * full + (bytes([0xFF00 >> rest & 0xFF]) if rest else b"")

    def entry(self) -> SwarmEntry:
        return SwarmEntry(digest=self._meta.digest, complete=True, done=self._meta.size, size=self._meta.size)


def _message(kind: int, body: bytes = b"") -> bytes:
    return struct.pack(">IB", 1 + len(body), kind) + body


async def run(kind: str, told: Told, name: str, address: str, port: int, meta: Metafile) -> None:
    peer = FalsePeer(meta, lies=kind == "lie")
    async with (
        await asyncio.start_server(peer.serve, address, port, backlog=512) as server,
        Http(access=with_token(told.token, in_the_clear=True)) as http,
    ):
        local = LocalPeer(
            id=PeerId(name),
            role=PeerRole.SUPERVISOR,
            host=address,
            ports=lambda: (port, 0),
            swarms=lambda: [peer.entry()],
        )
        agent = SwarmAgent(local, MasterAccess(http=http, masters=lambda: told.masters), lambda _: None)
        await agent.announce()
        print("ready", flush=True)
        await asyncio.gather(agent.run(), server.serve_forever())


if __name__ == "__main__":
    how, config, who, where, at, metafile = sys.argv[1:]
    asyncio.run(
        run(
            how,
            msgspec.json.decode(Path(config).read_bytes(), type=Told),
            who,
            where,
            int(at),
            parse_metafile(Path(metafile).read_bytes()),
        )
    )
