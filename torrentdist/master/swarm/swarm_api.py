"""What peers ask of a master: announces, the BitTorrent tracker, and whether their port can be
reached.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from torrentdist.bundle import bencode
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import body_of
from torrentdist.host.http.web import PEER, decode_body, json_response, number_parameter
from torrentdist.master.access.host_bundles import HostBundles
from torrentdist.master.http.routes import Routes, digest_of, operation
from torrentdist.master.leading.roles import dial
from torrentdist.master.reads.shared_secrets import SharedSecrets
from torrentdist.master.swarm.newer_records import NewerRecords
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, PeerId
from torrentdist.model.wire.ha_views import DialView
from torrentdist.model.wire.swarm_messages import SwarmAnnounce, SwarmAnswer
from torrentdist.security.authorization import Role, may_read_content
from torrentdist.security.passes import PARAMETER
from torrentdist.security.tls_contexts import PeerCertificate
from torrentdist.swarm.directory.announce_binding import AnnounceSender
from torrentdist.swarm.plan.border import FLOWS

MEMBERS_ONLY = b"the swarm has TLS, and is for members only"
MAX_ANNOUNCE_BYTES = 8 * 1024 * 1024
_FLOWS = {str(flow): flow for flow in range(FLOWS)}


class SwarmApi(Routes, msgspec.Struct, frozen=True):
    newer: NewerRecords
    swarms: Swarms
    bundles: HostBundles
    secrets: SharedSecrets
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

    async def _names_of_digest(self, request: Request) -> list[BundleId]:
        return self.swarms.names(digest_of(request))

    @operation("GET", "/v1/flows/{digest}/{flow}", None, Role.READER, statuses=(307,), hands_out="_names_of_digest")
    async def flow(self, request: Request) -> Response:
        """Leads to the host outside the sender's zone that gives it the pieces of a flow."""
        digest, number = digest_of(request), request.path_params["flow"]
        asker, attempt = request.query_params.get("for", ""), number_parameter(request, "attempt", 0, low=0, high=1e6)
        source = None
        if may_read_content(principal_of(request), self.swarms.names(digest)) and number in _FLOWS:
            source = self.swarms.source(digest, _FLOWS[number], PeerId(asker), int(attempt))
        if source is None:
            raise TorrentdistError("not_found", what=f"a host with flow {number} of {digest} for {asker!r}")
        path = f"/v1/pieces/{digest}"
        return RedirectResponse(f"{source.url}{path}?{PARAMETER}={self.secrets.new_pass(source.id, path)}")

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
        has_shared_name=principal.has_shared_name,
        is_host=principal.is_host,
        certificate=None if certificate is None else (certificate.role.value, certificate.id),
        addresses=shown.addresses if isinstance(shown, PeerCertificate) else frozenset(),
    )


def _source(request: Request) -> str:
    return request.client.host if request.client else "127.0.0.1"
