"""A metafile as the peers of a swarm with TLS see it: with the CA that they demand of each other.

The CA is in the info dictionary, so peers of different CAs know the same bundle by different
hashes. Our digest is that of the metafile without a CA. Pure: the wire hash is a function of the
metafile and the CA.
"""

import hashlib
from typing import Final

from torrentdist.bundle import bencode

_CA_KEY: Final = b"ssl-cert"


def with_swarm_ca(raw: bytes, ca: str) -> bytes:
    """Returns a valid metafile with this CA, a PEM text, in its info dictionary."""
    top = _parts(raw)
    info = {**_parts(top[b"info"]), _CA_KEY: bencode.encode(ca.encode())}
    return bencode.encode_dict_of_encoded({**top, b"info": bencode.encode_dict_of_encoded(info)})


def hash_on_wire(raw: bytes, ca: str) -> str:
    """Returns the v2 info-hash under which peers of this CA exchange the bundle."""
    return hashlib.sha256(_parts(with_swarm_ca(raw, ca))[b"info"]).hexdigest()


def _parts(data: bytes) -> dict[bytes, bytes]:
    spans, _ = bencode.spans(data)
    return {key: data[start:stop] for key, (start, stop) in spans.items()}
