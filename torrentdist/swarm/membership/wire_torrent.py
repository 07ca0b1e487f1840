"""A torrent in a swarm with TLS: libtorrent gets it with the swarm's CA, and with our certificate.

Always: libtorrent accepts only peers of the torrent's one CA whose certificate holds the torrent's
name or `*`, for as long as their certificates are valid.
Never: change what is on disk, or the digest that the rest of us knows the bundle by.
"""

from typing import Final

import libtorrent as lt

from torrentdist.bundle.metafile import Metafile
from torrentdist.model.access.swarm_membership import SwarmMembership
from torrentdist.model.errors import TorrentdistError
from torrentdist.swarm.membership.wire_metafile import with_swarm_ca

DH_PARAMETERS: Final = """\
-----BEGIN DH PARAMETERS-----
MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz
+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a
87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7
YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi
7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD
ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==
-----END DH PARAMETERS-----
"""
"""The group ffdhe2048 of RFC 7919. libtorrent demands one; TLS 1.3 does not use it."""


def put_ca(params: lt.add_torrent_params, meta: Metafile, ca: str) -> None:
    """Makes a torrent demand certificates of this CA. Parses the metafile again: call it in a
    thread."""
    try:
        ti = lt.load_torrent_buffer(with_swarm_ca(meta.raw, ca)).ti
    except RuntimeError as exc:
        raise TorrentdistError("invalid_metafile", detail=f"libtorrent: {exc}") from exc
    assert ti is not None
    params.ti = ti
    params.info_hashes = ti.info_hashes()


def show(handle: lt.torrent_handle, membership: SwarmMembership) -> None:
    """Shows this certificate in all connections that a torrent makes or accepts from now on."""
    handle.set_ssl_certificate_buffer(membership.certificate, membership.key, DH_PARAMETERS)
