"""What peers ask of a master: announces, the BitTorrent tracker, and whether their port can be
reached.
"""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.bundle import bencode
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation, body_of
from torrentdist.host.http.web import decode_body, json_response, number_parameter
from torrentdist.master.access.host_bundles import HostBundles
from torrentdist.master.leading.roles import dial
from torrentdist.master.swarm.newer_records import NewerRecords
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.wire.ha_views import DialView
from torrentdist.model.wire.swarm_messages import SwarmAnnounce, SwarmAnswer
from torrentdist.security.principal import Role
from torrentdist.swarm.directory.announce_binding import AnnounceSender

MEMBERS_ONLY = b"the swarm has TLS, and is for members only"
MAX_ANNOUNCE_BYTES = 8 * 1024 * 1024


class SwarmApi:
    def __init__(self, newer: NewerRecords, swarms: Swarms, bundles: HostBundles, *, members_only: bool) -> None:
        """`members_only`: the swarm has TLS, so a stock client could fetch nothing. Its announce is
        refused, because it would open every engine to an address that has proven nothing.
        """
        self._members_only = members_only
        self._newer = newer
        self._bundles = bundles
        self._swarms = swarms

    def operations(self) -> Iterator[Operation]:
        yield Operation(
            "POST",
            "/v1/swarm",
            self.swarm,
            SwarmAnswer,
            "a peer tells which swarms it is in",
            Role.READER,
            body=SwarmAnnounce,
            max_body=MAX_ANNOUNCE_BYTES,
        )
        yield Operation("GET", "/announce/{key}", self.tracker, None, "the BitTorrent announce", Role.ANYONE)
        summary = "whether this master can connect back to a port of the sender"
        yield Operation("GET", "/v1/dial", self.dial, DialView, summary, Role.READER)

    async def swarm(self, request: Request) -> Response:
        announce = decode_body(await body_of(request), SwarmAnnounce)
        await self._newer.wait_for_those_of(announce)
        sender = principal_of(request)
        allowed = self._bundles.allowed(sender, announce)
        left_out = {entry.digest for entry in announce.swarms} - {entry.digest for entry in allowed.swarms}
        hidden = () if sender.is_host else left_out
        return json_response(self._swarms.hear(allowed, _sender(request), hidden))

    async def tracker(self, request: Request) -> Response:
        if self._members_only:
            return Response(bencode.encode({b"failure reason": MEMBERS_ONLY}), media_type="text/plain")
        body = self._swarms.hear_stock(request.scope["query_string"], request.path_params["key"], _source(request))
        return Response(body, media_type="text/plain")

    async def dial(self, request: Request) -> Response:
        """Connects to the sender's own address only, so that nobody can use a master to probe other
        hosts.
        """
        port = int(number_parameter(request, "port", 0, low=1, high=65535))
        return json_response(await dial(_source(request), port))


def _sender(request: Request) -> AnnounceSender:
    principal = principal_of(request)
    certificate = principal.certificate
    return AnnounceSender(
        address=_source(request),
        name=principal.name,
        is_host=principal.is_host,
        certificate=None if certificate is None else (certificate.role.value, certificate.id),
    )


def _source(request: Request) -> str:
    return request.client.host if request.client else "127.0.0.1"
