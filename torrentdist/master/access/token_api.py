"""Tokens over HTTP: create, limit, list and revoke them, who the sender is, and the proof that
this master knows a client's token, for which the client asks before it sends the token.

Always: a master sees the hash of a token's secret only. It proves for its own URL only. Each
unknown name gets an answer of its own that proves nothing, the same one after a restart, so that
nobody can find out names.
"""

import hashlib
import hmac
import secrets
import time

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import about
from torrentdist.host.http.web import json_response
from torrentdist.http.http_values import InvalidUrl, origin_of
from torrentdist.http.token_recipients import PATH, url_of
from torrentdist.master.access.token_operations import TokenOperations, quota_view, token_view, unknown_token
from torrentdist.master.http.routes import RequestedChange, Routes, change, operation
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.reads.saved_records import Records
from torrentdist.model import ids
from torrentdist.model.access.token_messages import QuotaBody, QuotaView, TokenBody, TokenRecord, TokenView, WhoamiView
from torrentdist.model.access.url_messages import KEY_ROLE
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import view_of
from torrentdist.security.authorization import Principal, Role, may_see_pattern, reads_everything
from torrentdist.security.master_proof import name_and_key, proof

MAX_TOKEN_BYTES = 16 * 1024


class TokenApi(Routes, msgspec.Struct, frozen=True):
    changes: TokenOperations
    leadership: Leadership
    records: Records

    @operation("GET", "/v1/whoami", WhoamiView, Role.JOB)
    async def whoami(self, request: Request) -> Response:
        """The name, role and rights of the sender."""
        return json_response(whoami_view(principal_of(request)))

    @operation("GET", "/v1/tokens", list[TokenView], Role.READER)
    async def tokens(self, request: Request) -> Response:
        """Every token, without secrets.

        The patterns of other tokens name bundles too.
        """
        return json_response(visible_tokens(self.records, principal_of(request)))

    @change("POST", "/v1/tokens", TokenView, Role.OPERATOR, body=TokenBody, max_body=MAX_TOKEN_BYTES)
    async def create(self, asked: RequestedChange) -> bytes:
        """Create a token from the hash of its secret."""
        about(asked.request, asked.body.name)
        return await self.changes.create(asked.mutation, asked.body, asked.by)

    @operation("GET", "/v1/tokens/{name}/quota", QuotaView, Role.READER)
    async def quota(self, request: Request) -> Response:
        """What the holder of a token may use, and uses.

        What a token uses tells of its bundles.
        """
        name = _name(request)
        if not _may_see_quota(principal_of(request), name):
            raise unknown_token(name)
        return json_response(quota_view(self.records.snapshot(), name))

    @change("PUT", "/v1/tokens/{name}/quota", QuotaView, Role.OPERATOR, body=QuotaBody, max_body=MAX_TOKEN_BYTES)
    async def set_quota(self, asked: RequestedChange) -> bytes:
        """Limit what the holder of a token may use."""
        return await self.changes.set_quota(asked.mutation, _name(asked.request), asked.body)

    @change("DELETE", "/v1/tokens/{name}", TokenView, Role.OPERATOR)
    async def revoke(self, asked: RequestedChange) -> bytes:
        """End a token on every master."""
        return await self.changes.revoke(asked.mutation, _name(asked.request))


def visible_tokens(records: Records, sender: Principal) -> list[TokenView]:
    """Returns the tokens that a sender may see, in the order of their names."""
    now = records.server_now() or time.time()
    known = (e.record for _, e in sorted(records.snapshot().tokens.items()) if e.record.role != KEY_ROLE)
    views = (token_view(record, now) for record in known if _may_see(sender, record))
    return [view if _may_see_quota(sender, view.name) else replace(view, has_quota=False) for view in views]


def whoami_view(sender: Principal) -> WhoamiView:
    """Returns what a sender is told about itself."""
    own = sorted(sender.own_bundles)
    return view_of(WhoamiView, sender, bundles=",".join(own) or sender.bundles, reads=",".join([*sender.reads, *own]))


def _name(request: Request) -> str:
    return ids.token_name(request.path_params["name"])


def _may_see_quota(sender: Principal, name: str) -> bool:
    return name == sender.name or reads_everything(sender)


def _may_see(sender: Principal, record: TokenRecord) -> bool:
    patterns = (record.bundles, record.reads or "")
    return record.name == sender.name or all(may_see_pattern(sender, pattern) for pattern in patterns)


NONCE_LENGTHS = range(16, 129)


class ProofApi(Routes):
    """`url` is the one under which others know this master. `token` is the shared one."""

    def __init__(self, records: Records, url: str, token: str | None) -> None:
        self._records = records
        self._url = _normal(url)
        self._shared = None if token is None else name_and_key(token)
        self._nobody = secrets.token_hex(32)

    @operation("GET", PATH, None, Role.ANYONE)
    async def proof(self, request: Request) -> Response:
        """A proof that this master knows the client's token."""
        nonce, url = request.query_params.get("nonce", ""), request.query_params.get("url", "")
        if len(nonce) not in NONCE_LENGTHS or url != self._url:
            raise TorrentdistError("invalid_request", detail="a proof is for a nonce, and for this master's own URL")
        return Response(proof(self._key(request.query_params.get("name", "")), nonce, url), media_type="text/plain")

    def _key(self, name: str) -> str:
        if not name and self._shared is not None:
            return self._shared[1]
        snapshot = self._records.snapshot()
        entry = snapshot.tokens.get(name)
        now = self._records.server_now() or time.time()
        if entry is not None and entry.record.is_usable(now):
            return entry.record.hash
        secret = self._nobody if snapshot.cluster is None else self._records.secrets.text()
        return hmac.new(secret.encode(), b"torrentdist nobody\0" + name.encode(), hashlib.sha256).hexdigest()


def _normal(url: str) -> str:
    try:
        return url_of(origin_of(url))
    except InvalidUrl:
        return ""
