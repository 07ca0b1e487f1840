"""Identities in ZooKeeper over HTTP: a host's own, and the masters'.

Always: an identity goes to the host that proves by its certificate that it is this host, and to
nobody else. It is never part of an answer that is kept.
"""

from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.host.http.authentication import principal_of
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.http.routes import RequestedChange, Routes, change, operation
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.places.place_operations import PARENTS, place_ops, user_of
from torrentdist.model import ids
from torrentdist.model.access.host_messages import PlaceBody, PlaceView
from torrentdist.model.access.zookeeper_identity import auth_text, identity_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.principal import Principal, Role

MAX_PLACE_BYTES = 1024


@dataclass(frozen=True)
class PlaceApi(Routes):
    zookeeper: ZooKeeper
    changes: LeaderChanges
    leadership: Leadership

    @change(
        "POST", "/v1/hosts/{id}/place", PlaceView, Role.HOST, body=PlaceBody, max_body=MAX_PLACE_BYTES, dry_runs=False
    )
    async def place(self, asked: RequestedChange) -> bytes:
        """The place and the identity of a host in ZooKeeper."""
        id_ = ids.peer_id(asked.request.path_params["id"])
        _expect(principal_of(asked.request), CertificateRole.SUPERVISOR, id_)
        secret = self._secret()
        for parent in PARENTS:
            await self.zookeeper.ensure(parent)
        user = ""

        def render(snapshot: ClusterSnapshot) -> PlaceView:
            nonlocal user
            user = user_of(snapshot, id_)
            return PlaceView(id=id_, user=user, auth="")

        await self.changes.make_alone(None, lambda s: place_ops(s, id_), render)
        for path in (paths.place(id_), paths.host_members(id_)):  # Somebody may have closed it.
            await self.zookeeper.secure(path, self.zookeeper.identity.table.of(path, user.encode()))
        return msgspec.json.encode(PlaceView(id=id_, user=user, auth=auth_text(identity_of(secret, user))))

    @operation("GET", "/v1/zookeeper-auth", None, Role.HOST)
    async def masters_auth(self, request: Request) -> Response:
        """The masters' identity in ZooKeeper, for a master."""
        sender = principal_of(request)
        _expect(sender, CertificateRole.MASTER, sender.name)
        self._secret()
        return Response(auth_text(self.zookeeper.identity.credentials[:1]), media_type="text/plain")

    def _secret(self) -> str:
        secret = self.zookeeper.identity.table.secret
        if not secret:
            raise TorrentdistError("identities_off")
        return secret


def _expect(sender: Principal, role: CertificateRole, id_: str) -> None:
    """Raises `forbidden` unless the sender proves by certificate that it is this host."""
    certificate = sender.certificate
    if certificate is None or (certificate.role, certificate.id) != (role, id_):
        raise TorrentdistError("forbidden", detail=f"this is for the {role.value} {id_!r} with its certificate alone")
