"""URLs with capabilities over HTTP: the leader records one, and signs it in its answer.

Always: what is kept for a retry has no capability; it is signed anew for each answer, and is the
same. The key is derived from what the masters alone know.
"""

import asyncio
import secrets
from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import about, is_dry_run
from torrentdist.host.http.web import json_response
from torrentdist.master.access import url_operations as urls
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.http.routes import RequestedChange, Routes, change, operation
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.reads.saved_records import Records
from torrentdist.model.access.envelope import public_key_text
from torrentdist.model.access.url_messages import UrlBody, UrlKeyView, UrlTrustView, UrlView
from torrentdist.model.errors import required
from torrentdist.model.wire.view import decode_json
from torrentdist.security.authorization import Role
from torrentdist.security.capabilities import Capability, sign_capability, signing_key

MAX_URL_BYTES = 16 * 1024


class UrlApi(Routes, msgspec.Struct, frozen=True):
    """`now` returns the time by ZooKeeper's clock."""

    changes: LeaderChanges
    leadership: Leadership
    records: Records
    now: Callable[[], float]

    @change("POST", "/v1/urls", UrlView, Role.READER, body=UrlBody, max_body=MAX_URL_BYTES)
    async def make_url(self, asked: RequestedChange) -> bytes:
        """Make a URL that opens bundles at the gateways of pods."""
        about(asked.request, asked.body.bundles)
        name = f"url-{secrets.token_hex(8)}"
        wanted = urls.wanted_url(asked.body, principal_of(asked.request), name, self.now())
        # A retry gets the view that was kept, with the name that it had.
        kept = await self.changes.make_alone(
            asked.mutation, lambda s: urls.url_ops(s, wanted), lambda s: urls.url_view(s, wanted)
        )
        view = decode_json(kept, UrlView)
        if is_dry_run(asked.request):
            return kept
        signed = await asyncio.to_thread(self._signed, view)
        return msgspec.json.encode(msgspec.structs.replace(view, capability=signed))

    @change("POST", "/v1/urls/key", UrlKeyView, Role.OPERATOR)
    async def replace_url_key(self, asked: RequestedChange) -> bytes:
        """Replace the key that signs URLs, which ends all of them."""
        salt, now = secrets.token_hex(32), self.now()
        return await self.changes.make(asked.mutation, lambda s: urls.key_ops(s, salt, asked.by, now), urls.key_view)

    @operation("GET", "/v1/urls/trust", UrlTrustView, Role.HOST)
    async def url_trust(self, _: Request) -> Response:
        """What a gateway needs to verify capabilities."""
        return json_response(await asyncio.to_thread(self._trust))

    def _trust(self) -> UrlTrustView:
        snapshot = self.records.snapshot()
        key = signing_key(self.records.secrets.text(), urls.key_salt(snapshot))
        return UrlTrustView(
            cluster=self._cluster(),
            key=public_key_text(key.public_key().public_bytes_raw()),
            since=urls.key_view(snapshot).since,
            now=self.now(),
            revoked=urls.revoked_urls(snapshot.tokens),
        )

    def _signed(self, view: UrlView) -> str:
        capability = Capability(
            cluster=self._cluster(),
            name=view.name,
            bundles=view.bundles,
            path=view.path,
            until=int(view.expires_at),
        )
        salt = urls.salt_for(self.records.snapshot(), view.name)
        return sign_capability(capability, signing_key(self.records.secrets.text(), salt))

    def _cluster(self) -> str:
        cluster = self.records.snapshot().cluster
        return required(cluster, "not_ready", detail="the cluster's record is not known yet").id
