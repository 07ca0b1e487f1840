"""Gives members of the swarm their certificates: hosts for a day, people for an hour.

Always: a certificate is for the key that its requester names, and for the bundles that it may have:
everything, or those of the bundles asked for that it may read. It says nothing else.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import body_of
from torrentdist.host.http.web import decode_body, json_response
from torrentdist.master.access.host_bundles import HostBundles
from torrentdist.master.http.routes import Routes, operation
from torrentdist.master.swarm.newer_records import NewerRecords
from torrentdist.model.access.swarm_certificate_messages import (
    MOST_DIGESTS,
    SwarmCertificatesBody,
    SwarmCertificatesView,
)
from torrentdist.model.access.swarm_membership import names_on_wire
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.security.authority.swarm_authority import ALL_NAMES, HOST_LIFETIME, PERSON_LIFETIME
from torrentdist.security.authority.swarm_issuing import SwarmIssuing
from torrentdist.security.authorization import Principal, Role, reads_everything

MAX_BODY_BYTES: Final = 4096 + 100 * MOST_DIGESTS


class SwarmCertificateApi(Routes, msgspec.Struct, frozen=True):
    issuing: SwarmIssuing
    bundles: HostBundles
    newer: NewerRecords

    @operation(
        "POST",
        "/v1/swarm-certificates",
        SwarmCertificatesView,
        Role.READER,
        body=SwarmCertificatesBody,
        max_body=MAX_BODY_BYTES,
    )
    async def swarm_certificates(self, request: Request) -> Response:
        """Certificates that prove membership of the swarm; none where it has no TLS."""
        body = decode_body(await body_of(request), SwarmCertificatesBody)
        if len(body.digests) > MOST_DIGESTS:
            raise TorrentdistError("too_large", what="the list of digests", size=len(body.digests), limit=MOST_DIGESTS)
        sender = principal_of(request)
        lifetime = HOST_LIFETIME if sender.role is Role.HOST else PERSON_LIFETIME
        names = await self._names(sender, body.digests)
        issued = await asyncio.to_thread(self.issuing.issue, body.public_key, lifetime, time.time(), names)
        return json_response(SwarmCertificatesView(memberships=issued))

    async def _names(self, sender: Principal, digests: Sequence[Digest]) -> Sequence[str]:
        if reads_everything(sender):
            return ALL_NAMES
        if sender.role is Role.HOST:  # it often reads its own assignment before we do
            asked = [SwarmEntry(digest=digest, complete=False, size=0) for digest in digests]
            said = SwarmAnnounce(peer=PeerId(sender.name), role=PeerRole.SUPERVISOR, port=0, swarms=asked)
            await self.newer.wait_for_those_of(said)
            sender = self.bundles.with_rights(sender)
        return names_on_wire(digest for digest in digests if self.bundles.may_join(sender, digest))
