"""Gives members of the swarm their certificates: hosts for 30 days, people for an hour.

Always: a certificate is for the key that its requester names, and says nothing else.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import body_of
from torrentdist.host.http.web import decode_body, json_response
from torrentdist.master.http.routes import Routes, operation
from torrentdist.model.access.swarm_certificate_messages import SwarmCertificatesBody, SwarmCertificatesView
from torrentdist.security.authority.swarm_authority import HOST_LIFETIME, PERSON_LIFETIME
from torrentdist.security.authority.swarm_issuing import SwarmIssuing
from torrentdist.security.principal import Role

MAX_KEY_BYTES: Final = 4096


@dataclass(frozen=True)
class SwarmCertificateApi(Routes):
    issuing: SwarmIssuing

    @operation(
        "POST",
        "/v1/swarm-certificates",
        SwarmCertificatesView,
        Role.READER,
        body=SwarmCertificatesBody,
        max_body=MAX_KEY_BYTES,
    )
    async def swarm_certificates(self, request: Request) -> Response:
        """Certificates that prove membership of the swarm; none where it has no TLS."""
        body = decode_body(await body_of(request), SwarmCertificatesBody)
        lifetime = HOST_LIFETIME if principal_of(request).role is Role.HOST else PERSON_LIFETIME
        issued = await asyncio.to_thread(self.issuing.issue, body.public_key, lifetime, time.time())
        return json_response(SwarmCertificatesView(memberships=issued))
