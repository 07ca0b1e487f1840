"""Invitations and certificates of hosts over HTTP: the leader makes a certificate, has it
recorded, and only then hands it out.

Always: what is decided on is decided again in the transaction that records it. The CA's key goes
to a master that proves by its certificate that it is one, and to nobody else.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Op
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.web import flag_parameter, json_response
from torrentdist.master.access import host_operations as hosts
from torrentdist.master.access.host_operations import host_views
from torrentdist.master.changes.answered_requests import Mutation
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.http.routes import RequestedChange, Routes, change, operation, records_to_list
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
from torrentdist.model.wire.view import view_of
from torrentdist.security.authority.certificates import (
    Authority,
    facts_of,
    is_issued_by,
    is_signed,
    issue,
    key_fingerprint,
    renewal_text,
)
from torrentdist.security.authority.issuing_key import IssuingKey
from torrentdist.security.authority.pem_texts import certificate_pem, parse_certificate, parse_public_key
from torrentdist.security.authorization import Role
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole

T = TypeVar("T")


class HostIssuing(msgspec.Struct, frozen=True):
    changes: LeaderChanges
    snapshot: Callable[[], ClusterSnapshot]
    key: IssuingKey
    now: Callable[[], float]
    """Returns the time by ZooKeeper's clock, by which invitations expire."""

    async def invite(self, mutation: Mutation | None, body: InvitationBody, by: str) -> bytes:
        await asyncio.to_thread(self.key.authority)  # without the key an invitation would be of no use
        now = self.now()
        record = hosts.new_invitation(body, by, now)
        view = view_of(InvitationView, record, addresses=list(record.addresses))
        return await self.changes.make_alone(mutation, lambda s: hosts.invitation_ops(s, record, now), lambda _: view)

    async def redeem(self, id_: str, body: RedemptionBody) -> bytes:
        """Gives the host of an invitation its certificate; the same one again for the same key."""
        public_key = await _refused_unless_sound(lambda: parse_public_key(body.public_key.encode()))
        key = key_fingerprint(public_key)
        snapshot = self.snapshot()
        invitation = hosts.invited(snapshot, id_, body.secret, key, self.now())
        if hosts.issued_already(snapshot, invitation):
            return await self._answered(id_, lambda s: ())
        authority = await asyncio.to_thread(self.key.authority)
        identity = CertificateIdentity(authority.cluster, CertificateRole(invitation.role), id_)
        certificate = issue(
            authority,
            identity,
            invitation.addresses,
            public_key,
            time.time(),
            not_before=math.ceil(hosts.earliest(snapshot, id_)),
        )
        pem, facts = certificate_pem(certificate).decode(), facts_of(certificate)

        def decide(s: ClusterSnapshot) -> Sequence[Op]:
            current = hosts.invited(s, id_, body.secret, key, self.now())
            if hosts.issued_already(s, current):
                return ()
            return hosts.redemption_ops(s, current, pem, facts, key)

        return await self._answered(id_, decide)

    async def renew(self, id_: str, body: RenewalBody) -> bytes:
        """Gives the holder of a certificate its successor, for the same key, role, id and
        addresses. Whether the old one has expired does not matter.
        """
        old = await _refused_unless_sound(lambda: parse_certificate(body.certificate.encode()))
        authority: Authority = await asyncio.to_thread(self.key.authority)
        facts, public_key = facts_of(old), old.public_key()
        identity = facts.identity
        if identity is None or identity.id != id_ or not is_issued_by(old, authority.certificate):
            raise TorrentdistError("certificate_refused", detail="the old certificate is not one of ours for this id")
        if not is_signed(renewal_text(old), body.signature, public_key):
            raise TorrentdistError("certificate_refused", detail="the holder of the old certificate has not signed")
        key = key_fingerprint(public_key)
        hosts.check_renewable(self.snapshot(), facts, key)
        earliest = math.ceil(hosts.earliest(self.snapshot(), id_))
        certificate = issue(authority, identity, facts.addresses, public_key, time.time(), not_before=earliest)
        pem, fresh = certificate_pem(certificate).decode(), facts_of(certificate)
        return await self._answered(id_, lambda s: hosts.renewal_ops(s, facts, pem, fresh, key))

    async def revoke(self, mutation: Mutation | None, id_: str, by: str, *, unknown: bool) -> bytes:
        now, known = time.time(), self.snapshot().hosts.get(id_)
        if known is not None:
            # The first certificate loads a large library, for which the loop would wait.
            await asyncio.to_thread(hosts.recorded_begin, known.record)
        return await self.changes.make_alone(
            mutation,
            lambda s: hosts.revocation_ops(s, id_, by, now, unknown=unknown),
            lambda s: hosts.host_view(s.hosts[id_].record, now),
        )

    async def allow(self, mutation: Mutation | None, id_: str, bundles: str) -> bytes:
        """Sets the pattern of the bundles that a supervisor may have."""
        pattern, now = hosts.checked_host_pattern(bundles), time.time()
        return await self.changes.make_alone(
            mutation,
            lambda s: hosts.bundles_ops(s, id_, pattern),
            lambda s: hosts.host_view(s.hosts[id_].record, now),
        )

    async def _answered(self, id_: str, decide: Callable[[ClusterSnapshot], Sequence[Op]]) -> bytes:
        trusted = await asyncio.to_thread(self.key.trusted)

        def render(s: ClusterSnapshot) -> CertificateView:
            record = s.hosts[id_].record
            return view_of(CertificateView, record, ca=trusted)

        return await self.changes.make_alone(None, decide, render)


async def _refused_unless_sound(read: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(read)  # the first certificate loads a large library
    except ValueError as exc:
        raise TorrentdistError("certificate_refused", detail=str(exc)) from exc


MAX_HOST_BYTES = 64 * 1024
_ONCE: Final[Any] = {"max_body": MAX_HOST_BYTES, "dry_runs": False}
PEM = "application/x-pem-file"


class HostApi(Routes, msgspec.Struct, frozen=True):
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
        return json_response(host_views(records_to_list(request, self.records), time.time(), self.now()))

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
