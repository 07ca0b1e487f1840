"""Makes uvicorn's connections tell which certificate is at their other end.

Always: a certificate was verified by TLS before it is told of. A connection without TLS, or without
a certificate of ours, tells of nobody.
Never: decide what the holder may do.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from torrentdist.host.http.web import PEER
from torrentdist.security.tls_contexts import peer_of


def naming_peers(protocol: type[H11Protocol]) -> type[H11Protocol]:
    """Returns the protocol, extended by the peer's certificate in the state of each request."""

    class PeerNaming(protocol):  # type: ignore[valid-type, misc]
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            peer = peer_of(cast(dict[str, Any] | None, transport.get_extra_info("peercert")))
            if peer is not None:
                self.app_state: dict[str, Any] = {**self.app_state, PEER: peer}
            super().connection_made(transport)

    return PeerNaming
