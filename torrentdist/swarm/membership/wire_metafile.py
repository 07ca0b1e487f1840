"""A metafile as the peers of a swarm with TLS see it: with the CA that they demand of each other,
and with a name that their certificates must hold.

Both are in the info dictionary, so peers of different CAs know the same bundle by different hashes.
Our digest is that of the metafile without them. Pure: the wire hash is a function of the metafile
and the CA.
"""

import hashlib
from typing import Final

from torrentdist.bundle import bencode
from torrentdist.model.access.swarm_membership import name_on_wire

_CA_KEY: Final = b"ssl-cert"
_NAME_KEY: Final = b"name"
_TREE_KEY: Final = b"file tree"


def with_swarm_ca(raw: bytes, ca: str) -> bytes:
    """Returns a valid metafile with this CA, a PEM text, and the bundle's name on the wire."""
    top = _parts(raw)
    name = name_on_wire(hashlib.sha256(top[b"info"]).hexdigest()).encode()
    info = _parts(top[b"info"])
    told = {_CA_KEY: bencode.encode(ca.encode()), _NAME_KEY: bencode.encode(name)}
    info |= {**told, _TREE_KEY: _with_name(info[_TREE_KEY], name)}
    return bencode.encode_dict_of_encoded({**top, b"info": bencode.encode_dict_of_encoded(info)})


def _with_name(tree: bytes, name: bytes) -> bytes:
    """Returns the tree of files. libtorrent takes the name of a torrent's only file for the
    torrent's own, so such a file gets it."""
    entries = _parts(tree)
    only = [*entries.values()] if len(entries) == 1 else []
    is_file = bool(only) and b"" in _parts(only[0])
    return bencode.encode_dict_of_encoded({name: only[0]}) if is_file else tree


def hash_on_wire(raw: bytes, ca: str) -> str:
    """Returns the v2 info-hash under which peers of this CA exchange the bundle."""
    return hashlib.sha256(_parts(with_swarm_ca(raw, ca))[b"info"]).hexdigest()


def _parts(data: bytes) -> dict[bytes, bytes]:
    spans, _ = bencode.spans(data)
    return {key: data[start:stop] for key, (start, stop) in spans.items()}
