"""Members of a swarm with TLS for tests: certificates, stock libtorrent peers, and raw peers.

Always: what is opened here is closed at the end of its block.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import libtorrent as lt

from torrentdist.bundle import bencode
from torrentdist.bundle.metafile import Metafile
from torrentdist.model.access.swarm_membership import SwarmMembership
from torrentdist.security.authority.certificates import Key, new_key
from torrentdist.security.authority.swarm_authority import ALL_NAMES, issued_for, memberships_of, swarm_authority
from torrentdist.swarm.engine.session_settings import SETTINGS
from torrentdist.swarm.membership.wire_metafile import with_swarm_ca
from torrentdist.swarm.membership.wire_torrent import show

LOOPBACK = "127.0.0.1"
UNCHOKE, INTERESTED, REQUEST, BLOCK, EXTENDED = 1, 2, 6, 7, 20
USUAL_METADATA = 2
"""The number that libtorrent gives to metadata messages."""
OUR_METADATA = 3
"""The number by which a raw peer asks others to send it metadata messages."""


def membership(
    ca_key: Key, *, age: float = 0.0, lives: float = 3600.0, names: Sequence[str] = ALL_NAMES
) -> SwarmMembership:
    """Makes a membership that was issued `age` seconds ago."""
    key = new_key()
    issued = issued_for([swarm_authority(ca_key)], key.public_key(), timedelta(seconds=lives), time.time() - age, names)
    return memberships_of(key, issued)[0]


@contextmanager
def stock_session(**settings: Any) -> Iterator[lt.session]:
    """A session with libtorrent's own extensions, which dials only whom it is told."""
    quiet = ("enable_dht", "enable_lsd", "enable_upnp", "enable_natpmp", "enable_outgoing_utp", "enable_incoming_utp")
    ours = {s.key: s.value for s in SETTINGS if s.key.startswith(("in_enc", "out_enc", "allow_multiple", "tick"))}
    alerts = lt.alert_category.error | lt.alert_category.status | lt.alert_category.connect | lt.alert_category.peer
    pack: Any = {**dict.fromkeys(quiet, False), **ours, "alert_mask": alerts, **settings}
    session = lt.session(pack)
    try:
        yield session
    finally:
        session.pause()
        del session


def wire_params(meta: Metafile, ca: str, directory: Path) -> lt.add_torrent_params:
    """What a peer that knows the metafile and the CA gives to libtorrent."""
    params = lt.load_torrent_buffer(with_swarm_ca(meta.raw, ca))
    params.save_path = str(directory)
    params.flags &= ~(lt.torrent_flags.auto_managed)
    params.flags |= lt.torrent_flags.paused
    return params


def joined(
    session: lt.session, params: lt.add_torrent_params, shown: SwarmMembership | None, port: int
) -> lt.torrent_handle:
    """Adds a torrent that shows this certificate, and dials a port on loopback."""
    handle = session.add_torrent(params)
    if shown is not None:
        show(handle, shown)
    handle.resume()
    handle.connect_peer((LOOPBACK, port), 1, 0)
    return handle


class RawPeer:
    """A peer that says what it likes: the BitTorrent protocol on a socket."""

    def __init__(self, port: int, wire_hash: str, shown: SwarmMembership | None) -> None:
        self._socket = socket.create_connection((LOOPBACK, port), timeout=10.0)
        if shown is not None:
            self._socket = _context(shown).wrap_socket(self._socket, server_hostname=wire_hash[:40])
        reserved = bytes((0, 0, 0, 0, 0, 0x10, 0, 0x10))  # it knows extensions, and version 2
        asked = bytes.fromhex(wire_hash)[:20]
        self._socket.sendall(b"\x13BitTorrent protocol" + reserved + asked + b"-RW0000-" + bytes(12))

    def close(self) -> None:
        self._socket.close()

    def handshake(self) -> bytes:
        """Returns the other side's handshake. Raises OSError if it gives none."""
        return self._exactly(68)

    def send(self, number: int, body: bytes = b"") -> None:
        self._socket.sendall(struct.pack(">IB", 1 + len(body), number) + body)

    def message(self) -> tuple[int, bytes]:
        """Returns the next message that has a number. Raises OSError at the end."""
        while True:
            (length,) = struct.unpack(">I", self._exactly(4))
            if length:
                body = self._exactly(length)
                return body[0], body[1:]

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the other side has closed the connection")
            data += more
        return data


def asked_for_metadata(peer: RawPeer) -> tuple[dict[bytes, object], list[bytes]]:
    """Asks for the metafile by BEP 9. Returns the extensions that the other side names, and its
    answers.

    It handles messages in order: once it has sent the first block of the bundle, which is asked for
    last, or has closed the connection, it has answered the question or will not.
    """
    peer.handshake()
    peer.send(EXTENDED, b"\0" + bencode.encode({b"m": {b"ut_metadata": OUR_METADATA}}))
    names: dict[bytes, object] = {}
    answers: list[bytes] = []
    with contextlib.suppress(ConnectionError):
        while True:
            number, body = peer.message()
            if number == EXTENDED and body[0] == 0:
                names |= _extensions(body[1:])
                question = bencode.encode({b"msg_type": 0, b"piece": 0})
                peer.send(EXTENDED, bytes((int(str(names.get(b"ut_metadata", USUAL_METADATA))),)) + question)
                peer.send(INTERESTED)
            elif number == EXTENDED:
                answers.append(body)
            elif number == UNCHOKE:
                peer.send(REQUEST, struct.pack(">III", 0, 0, 16 * 1024))
            elif number == BLOCK:
                break
    return names, answers


def _extensions(handshake: bytes) -> dict[bytes, object]:
    told = bencode.decode(handshake)
    assert isinstance(told, dict)
    extensions = told[b"m"]
    assert isinstance(extensions, dict)
    return dict(extensions)


def _context(shown: SwarmMembership) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=shown.ca)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(shown.certificate + shown.key)
        file.flush()
        context.load_cert_chain(file.name)
    return context
