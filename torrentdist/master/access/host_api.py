"""Hosts over HTTP: invitations, certificates, renewals, revocations, and the CA.

Always: the CA's key goes to a master that proves by its certificate that it is one, and to nobody
else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Handler, Operation, body_of
from torrentdist.host.http.web import decode_body, flag_parameter, json_response
from torrentdist.master.access.host_issuing import HostIssuing
from torrentdist.master.access.host_operations import host_views
from torrentdist.master.http.mutation_requests import answered, mutation_of, records_for
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
PEM = "application/x-pem-file"


class HostApi:
    """`now` returns the time by ZooKeeper's clock."""

    def __init__(
        self,
        issuing: HostIssuing,
        key: IssuingKey,
        leadership: Leadership,
        records: Records,
        now: Callable[[], float],
    ) -> None:
        self._issuing = issuing
        self._key = key
        self._leadership = leadership
        self._records = records
        self._now = now

    def operations(self) -> Iterator[Operation]:
        yield Operation("GET", "/v1/ca", self.ca, None, "the CAs that this cluster trusts, in PEM", Role.ANYONE)
        summary = "the CA's key in PEM, for a master"
        yield Operation("GET", "/v1/issuing-key", self.issuing_key, None, summary, Role.HOST)
        summary = "every host with a recorded certificate, and open invitations"
        yield Operation("GET", "/v1/hosts", self.host_table, list[HostView], summary, Role.READER)
        summary = "until when the certificates of an id are revoked, for each id that has such"
        yield Operation("GET", "/v1/revocations", self.revocations, dict[str, float], summary, Role.HOST)
        summary = "let one host get a certificate, once"
        invites = (InvitationBody, InvitationView)
        yield replace(_change("/v1/invitations", self.invite, invites, summary, Role.OPERATOR), dry_runs=True)
        redeem, renew = "/v1/invitations/{id}/redeem", "/v1/hosts/{id}/renew"
        summary = "the certificate of an invitation"
        yield _change(redeem, self.redeem, (RedemptionBody, CertificateView), summary, Role.ANYONE)
        summary = "the successor of a certificate, expired or not"
        yield _change(renew, self.renew, (RenewalBody, CertificateView), summary, Role.ANYONE)
        allowed = "/v1/hosts/{id}/bundles"
        summary = "which bundles a supervisor may have besides those that are assigned to it"
        allows = (HostBundlesBody, HostView)
        yield replace(_change(allowed, self.allow, allows, summary, Role.OPERATOR, method="PUT"), dry_runs=True)
        summary = "shut a host out, with every certificate that it has"
        path, role = "/v1/hosts/{id}", Role.OPERATOR
        yield Operation("DELETE", path, self.revoke_host, HostView, summary, role, changes=True, dry_runs=True)

    async def ca(self, _: Request) -> Response:
        return Response(await asyncio.to_thread(self._key.trusted), media_type=PEM)

    async def issuing_key(self, request: Request) -> Response:
        sender = principal_of(request)
        if sender.certificate is None or sender.certificate.role is not CertificateRole.MASTER:
            raise TorrentdistError("forbidden", detail="the CA's key is for masters with a certificate alone")
        return Response(await asyncio.to_thread(self._key.key_text), media_type=PEM)

    async def host_table(self, request: Request) -> Response:
        return json_response(host_views(records_for(request, self._records), time.time(), self._now()))

    async def revocations(self, _: Request) -> Response:
        hosts = self._records.snapshot().hosts
        return json_response({id_: e.record.revoked_until for id_, e in hosts.items() if e.record.revoked_until})

    async def invite(self, request: Request) -> Response:
        self._leadership.fence()
        raw = await body_of(request)
        body = decode_body(raw, InvitationBody)
        return answered(await self._issuing.invite(await mutation_of(request, raw), body, principal_of(request).name))

    async def redeem(self, request: Request) -> Response:
        self._leadership.fence()
        body = decode_body(await body_of(request), RedemptionBody)
        return answered(await self._issuing.redeem(_id(request), body))

    async def renew(self, request: Request) -> Response:
        self._leadership.fence()
        body = decode_body(await body_of(request), RenewalBody)
        return answered(await self._issuing.renew(_id(request), body))

    async def allow(self, request: Request) -> Response:
        self._leadership.fence()
        raw = await body_of(request)
        body = decode_body(raw, HostBundlesBody)
        return answered(await self._issuing.allow(await mutation_of(request, raw), _id(request), body.bundles))

    async def revoke_host(self, request: Request) -> Response:
        self._leadership.fence()
        mutation = await mutation_of(request)
        unknown = flag_parameter(request, "unknown")
        by = principal_of(request).name
        return answered(await self._issuing.revoke(mutation, _id(request), by, unknown=unknown))


def _change(
    path: str, handler: Handler, types: tuple[Any, Any], summary: str, role: Role, method: str = "POST"
) -> Operation:
    """An operation whose body is the first type, and whose answer is the second."""
    body, answer = types
    return Operation(method, path, handler, answer, summary, role, body=body, max_body=MAX_HOST_BYTES, changes=True)


def _id(request: Request) -> str:
    return ids.peer_id(request.path_params["id"])
