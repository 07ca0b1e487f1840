"""Hosts over HTTP: invitations, certificates, renewals, revocations, and the CA.

Always: the CA's key goes to a master that proves by its certificate that it is one, and to nobody
else.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.web import flag_parameter, json_response
from torrentdist.master.access.host_issuing import HostIssuing
from torrentdist.master.access.host_operations import host_views
from torrentdist.master.http.mutation_requests import records_for
from torrentdist.master.http.routes import RequestedChange, Routes, change, operation
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.reads.saved_records import Records
from torrentdist.model import ids
from torrentdist.model.access.host_messages import (
    CertificateView,
    HostBundlesBody,
    HostView,
    InvitationBody,
    InvitationView,
    RedemptionBody,
    RenewalBody,
)
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authority.issuing_key import IssuingKey
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.principal import Role

MAX_HOST_BYTES = 64 * 1024
_ONCE: Final[Any] = {"max_body": MAX_HOST_BYTES, "dry_runs": False}
PEM = "application/x-pem-file"


@dataclass(frozen=True)
class HostApi(Routes):
    """`now` returns the time by ZooKeeper's clock."""

    issuing: HostIssuing
    key: IssuingKey
    leadership: Leadership
    records: Records
    now: Callable[[], float]

    @operation("GET", "/v1/ca", None, Role.ANYONE)
    async def ca(self, _: Request) -> Response:
        """The CAs that this cluster trusts, in PEM."""
        return Response(await asyncio.to_thread(self.key.trusted), media_type=PEM)

    @operation("GET", "/v1/issuing-key", None, Role.HOST)
    async def issuing_key(self, request: Request) -> Response:
        """The CA's key in PEM, for a master."""
        sender = principal_of(request)
        if sender.certificate is None or sender.certificate.role is not CertificateRole.MASTER:
            raise TorrentdistError("forbidden", detail="the CA's key is for masters with a certificate alone")
        return Response(await asyncio.to_thread(self.key.key_text), media_type=PEM)

    @operation("GET", "/v1/hosts", list[HostView], Role.READER)
    async def host_table(self, request: Request) -> Response:
        """Every host with a certificate, recorded or registered, and open invitations."""
        return json_response(host_views(records_for(request, self.records), time.time(), self.now()))

    @operation("GET", "/v1/revocations", dict[str, float], Role.HOST)
    async def revocations(self, _: Request) -> Response:
        """Until when the certificates of an id are revoked, for each id that has such."""
        hosts = self.records.snapshot().hosts
        return json_response({id_: e.record.revoked_until for id_, e in hosts.items() if e.record.revoked_until})

    @change("POST", "/v1/invitations", InvitationView, Role.OPERATOR, body=InvitationBody, max_body=MAX_HOST_BYTES)
    async def invite(self, asked: RequestedChange) -> bytes:
        """Let one host get a certificate, once."""
        return await self.issuing.invite(asked.mutation, asked.body, asked.by)

    @change("POST", "/v1/invitations/{id}/redeem", CertificateView, Role.ANYONE, body=RedemptionBody, **_ONCE)
    async def redeem(self, asked: RequestedChange) -> bytes:
        """The certificate of an invitation."""
        return await self.issuing.redeem(_id(asked.request), asked.body)

    @change("POST", "/v1/hosts/{id}/renew", CertificateView, Role.ANYONE, body=RenewalBody, **_ONCE)
    async def renew(self, asked: RequestedChange) -> bytes:
        """The successor of a certificate, expired or not."""
        return await self.issuing.renew(_id(asked.request), asked.body)

    @change("PUT", "/v1/hosts/{id}/bundles", HostView, Role.OPERATOR, body=HostBundlesBody, max_body=MAX_HOST_BYTES)
    async def allow(self, asked: RequestedChange) -> bytes:
        """Which bundles a supervisor may have besides those that are assigned to it."""
        return await self.issuing.allow(asked.mutation, _id(asked.request), asked.body.bundles)

    @change("DELETE", "/v1/hosts/{id}", HostView, Role.OPERATOR)
    async def revoke_host(self, asked: RequestedChange) -> bytes:
        """Shut a host out, with every certificate that it has."""
        unknown = flag_parameter(asked.request, "unknown")
        return await self.issuing.revoke(asked.mutation, _id(asked.request), asked.by, unknown=unknown)


def _id(request: Request) -> str:
    return ids.peer_id(request.path_params["id"])
