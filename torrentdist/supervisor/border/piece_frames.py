"""How pieces travel between hosts of different zones, and how a host tells which it lacks.

Always: what `unpacked` accepts is made of whole frames.
Pure: no I/O. Nothing here is trusted: the engine checks each piece against its hash.
"""

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence

from torrentdist.model.errors import TorrentdistError
from torrentdist.swarm.plan.border import pieces_of

_FRAME = struct.Struct(">II")
"""Number and length of a piece, before its bytes."""


def packed(pieces: Iterable[tuple[int, bytes]]) -> bytes:
    return b"".join(part for piece, content in pieces for part in (_FRAME.pack(piece, len(content)), content))


def unpacked(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the pieces of an answer. Raises `corrupt` for other bytes."""
    at = 0
    while at < len(body):
        begins = at + _FRAME.size
        piece, length = _FRAME.unpack_from(body, at) if begins <= len(body) else (0, len(body))
        at = begins + length
        if at > len(body):
            raise TorrentdistError("corrupt", path="pieces of another host", detail="the last one is cut off")
        yield piece, body[begins:at]


def lacking_text(flow: int, have: Sequence[bool], without: Collection[int] = ()) -> str:
    """Returns the pieces of a flow that are not here, and not among `without`, as hexadecimal
    digits; empty: there are none."""
    bits = 0
    for place, piece in enumerate(pieces_of(flow, len(have))):
        if not have[piece] and piece not in without:
            bits |= 1 << place
    return f"{bits:x}" if bits else ""


def lacking_pieces(flow: int, text: str, pieces: int) -> list[int]:
    """Returns what `lacking_text` told. Raises `invalid_request` for other text."""
    of_flow = pieces_of(flow, pieces)
    try:
        bits = int(text, 16)
    except ValueError:
        bits = -1
    if bits < 0 or bits.bit_length() > len(of_flow):
        raise TorrentdistError("invalid_request", detail=f"lacks={text[:20]!r} tells no pieces of flow {flow}")
    return [piece for place, piece in enumerate(of_flow) if bits >> place & 1]
