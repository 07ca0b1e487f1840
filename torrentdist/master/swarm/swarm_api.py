"""What peers ask of a master: announces, the BitTorrent tracker, and whether their port can be
reached.
"""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.bundle import bencode
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import body_of
from torrentdist.host.http.web import PEER, decode_body, json_response, number_parameter
from torrentdist.master.access.host_bundles import HostBundles
from torrentdist.master.http.routes import Routes, operation
from torrentdist.master.leading.roles import dial
from torrentdist.master.swarm.newer_records import NewerRecords
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.wire.ha_views import DialView
from torrentdist.model.wire.swarm_messages import SwarmAnnounce, SwarmAnswer
from torrentdist.security.authorization import Role
from torrentdist.security.tls_contexts import PeerCertificate
from torrentdist.swarm.directory.announce_binding import AnnounceSender

MEMBERS_ONLY = b"the swarm has TLS, and is for members only"
MAX_ANNOUNCE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class SwarmApi(Routes):
    newer: NewerRecords
    swarms: Swarms
    bundles: HostBundles
    members_only: bool
    """The swarm has TLS, so a stock client could fetch nothing. Its announce is refused, because it
    would open every engine to an address that has proven nothing."""

    @operation("POST", "/v1/swarm", SwarmAnswer, Role.READER, body=SwarmAnnounce, max_body=MAX_ANNOUNCE_BYTES)
    async def swarm(self, request: Request) -> Response:
        """A peer tells which swarms it is in."""
        announce = decode_body(await body_of(request), SwarmAnnounce)
        await self.newer.wait_for_those_of(announce)
        sender = principal_of(request)
        allowed = self.bundles.allowed(sender, announce)
        left_out = {entry.digest for entry in announce.swarms} - {entry.digest for entry in allowed.swarms}
        hidden = () if sender.is_host else left_out
        return json_response(self.swarms.hear(allowed, _sender(request), hidden))

    @operation("GET", "/announce/{key}", None, Role.ANYONE)
    async def tracker(self, request: Request) -> Response:
        """The BitTorrent announce."""
        if self.members_only:
            return Response(bencode.encode({b"failure reason": MEMBERS_ONLY}), media_type="text/plain")
        body = self.swarms.hear_stock(request.scope["query_string"], request.path_params["key"], _source(request))
        return Response(body, media_type="text/plain")

    @operation("GET", "/v1/dial", DialView, Role.READER)
    async def dial(self, request: Request) -> Response:
        """Whether this master can connect back to a port of the sender.

        Connects to the sender's own address only, so that nobody can use a master to probe other
        hosts.
        """
        port = int(number_parameter(request, "port", 0, low=1, high=65535))
        return json_response(await dial(_source(request), port))


def _sender(request: Request) -> AnnounceSender:
    principal = principal_of(request)
    certificate, shown = principal.certificate, request.scope.get("state", {}).get(PEER)
    return AnnounceSender(
        address=_source(request),
        name=principal.name,
        is_host=principal.is_host,
        certificate=None if certificate is None else (certificate.role.value, certificate.id),
        addresses=shown.addresses if isinstance(shown, PeerCertificate) else frozenset(),
    )


def _source(request: Request) -> str:
    return request.client.host if request.client else "127.0.0.1"
