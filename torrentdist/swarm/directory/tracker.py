"""Answers the standard BitTorrent HTTP announce from the directory, so that a stock v2 client can
take part.

Always: only a known digest with its own key is answered, and a refusal does not reveal which of the
two was wrong. A client is known by the source address of its request, never by an address that it
names.
Never: read a clock, do I/O, or keep state.
"""

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from ipaddress import ip_address
from math import ceil
from urllib.parse import unquote_to_bytes

import msgspec

from torrentdist.bundle import bencode
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.swarm.directory.directory import SwarmDirectory

MAX_QUERY_BYTES = 4096
TRUNCATED_BYTES = 20
"""A v2 info-hash is sent truncated to the length of a v1 info-hash."""
MIN_INTERVAL_SECS = 5
"""Shortest interval at which a client without peers may announce."""
_KEY_BYTES = 16


class AnnounceEvent(StrEnum):
    NONE = ""
    STARTED = "started"
    STOPPED = "stopped"
    COMPLETED = "completed"
    PAUSED = "paused"


class StockAnnounce(msgspec.Struct, frozen=True, kw_only=True):
    """A client's query, after its checks."""

    info_hash: bytes
    peer: bytes
    port: int
    left: int | None
    """Bytes that the client lacks."""
    event: AnnounceEvent
    compact: bool
    wanted: int | None
    """Number of peers that the client wants."""


def announce_key(secret: str, digest: Digest) -> str:
    """Returns the last part of a digest's tracker URL, `<master url>/announce/<key>`.

    A client that has the key may ask about this digest.
    """
    return hmac.new(secret.encode(), bytes.fromhex(digest), hashlib.sha256).digest()[:_KEY_BYTES].hex()


def parse_query(query: bytes) -> StockAnnounce:
    """Parses the raw query string of an announce. Raises `invalid_request` with the reason if it is
    malformed."""
    if len(query) > MAX_QUERY_BYTES:
        raise _refused("the query is too long")
    fields: dict[bytes, bytes] = {}
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        if name == b"info_hash" and name in fields:
            raise _refused("info_hash is given twice")
        fields[name] = unquote_to_bytes(value.replace(b"+", b" "))
    info_hash, peer = fields.get(b"info_hash", b""), fields.get(b"peer_id", b"")
    if len(info_hash) != TRUNCATED_BYTES:
        raise _refused("info_hash is not 20 bytes")
    if len(peer) != TRUNCATED_BYTES:
        raise _refused("peer_id is not 20 bytes")
    try:
        event = AnnounceEvent(fields.get(b"event", b"").decode("ascii", "replace"))
    except ValueError:
        event = AnnounceEvent.NONE
    port = _number(fields, b"port")
    if port is None or not 1 <= port <= 65535:
        raise _refused("port is missing or impossible")
    return StockAnnounce(
        info_hash=info_hash,
        peer=peer,
        port=port,
        left=_number(fields, b"left"),
        event=event,
        compact=fields.get(b"compact", b"1") != b"0",
        wanted=_number(fields, b"numwant"),
    )


class Tracker:
    """Answers announces for the bundles that the cluster knows."""

    def __init__(
        self,
        directory: SwarmDirectory,
        *,
        secret: str,
        digests: Callable[[str], Iterable[Digest]],
        former: Sequence[str] = (),
    ) -> None:
        """`digests` returns the digests of known bundles that begin with a prefix. An empty
        `secret` answers nobody. `former`: earlier secrets whose keys are still good."""
        self._directory = directory
        self._secrets = (secret, *former) if secret else ()
        self._digests = digests

    def answer(self, query: bytes, *, key: str, source_host: str, now: float) -> bytes:
        """Returns the bencoded body of the answer. A refusal is also a body: the protocol does not
        use HTTP's errors."""
        try:
            said = parse_query(query)
            return self._answer(said, self._digest(said.info_hash, key), source_host, now)
        except TorrentdistError as refusal:
            return bencode.encode({b"failure reason": refusal.message.encode()})

    def _digest(self, info_hash: bytes, key: str) -> Digest:
        prefix, claimed = info_hash.hex(), key.encode(errors="replace")
        for digest in self._digests(prefix) if self._secrets else ():
            if not digest.startswith(prefix):
                continue
            keys = [announce_key(secret, digest).encode() for secret in self._secrets]
            if any(hmac.compare_digest(key, claimed) for key in keys):
                return digest
        raise _refused("no such info_hash under this key")

    def _answer(self, said: StockAnnounce, digest: Digest, source_host: str, now: float) -> bytes:
        complete = said.left == 0
        peer = stock_peer(said.peer, digest, source_host)
        request = SwarmAnnounce(
            peer=peer,
            role=PeerRole.STOCK,
            port=said.port,
            swarms=[SwarmEntry(digest=digest, complete=complete)],
            left=said.event is AnnounceEvent.STOPPED,
        )
        _, interval = self._directory.hear(request, source_host=source_host, now=now)
        peers: list[PeerAddress] = []
        if not request.left:
            choose = self._directory.lacking if complete else self._directory.handout
            peers = choose(digest, peer, now=now, wanted=said.wanted)
        counts = self._directory.counts(digest)
        body: dict[bytes, bencode.Value] = {
            b"complete": counts.complete,
            b"incomplete": counts.incomplete,
            b"interval": ceil(interval),
            b"min interval": min(MIN_INTERVAL_SECS, ceil(interval)),
        }
        body.update(_compact(peers) if said.compact else {b"peers": _listed(peers)})
        return bencode.encode(body)


def stock_peer(peer: bytes, digest: Digest, source_host: str) -> PeerId:
    """Returns the id of a stock client in one swarm. Such a client announces each torrent
    separately, so it counts as a different peer in each.

    The address is part of the id, so that no other host can announce in its name.
    """
    name = b"\0".join((peer, digest.encode(), source_host.encode()))
    return PeerId(f"stock-{hashlib.sha256(name).hexdigest()[:32]}")


def _compact(peers: Iterable[PeerAddress]) -> dict[bytes, bencode.Value]:
    four: list[bytes] = []
    six: list[bytes] = []
    for peer in peers:
        packed = ip_address(peer.host).packed + peer.port.to_bytes(2)
        (four if len(packed) == 6 else six).append(packed)
    body: dict[bytes, bencode.Value] = {b"peers": b"".join(four)}
    if six:
        body[b"peers6"] = b"".join(six)
    return body


def _listed(peers: Iterable[PeerAddress]) -> list[bencode.Value]:
    """Returns the long form of a list of peers. It has no `peer id`: our peers choose a new one for
    each connection."""
    return [{b"ip": peer.host.encode(), b"port": peer.port} for peer in peers]


def _number(fields: dict[bytes, bytes], name: bytes) -> int | None:
    """Returns the number in a field. None if the field is absent or negative, which some clients
    send for "any"."""
    text = fields.get(name, b"")
    if text and (len(text) > 20 or not text.removeprefix(b"-").isdigit()):
        raise _refused(f"{name.decode('ascii', 'replace')} is no number")
    return int(text) if text and not text.startswith(b"-") else None


def _refused(detail: str) -> TorrentdistError:
    return TorrentdistError("invalid_request", detail=detail)
