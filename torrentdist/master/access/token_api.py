"""Tokens over HTTP: create, limit, list and revoke them, and who the sender is.

Always: a master sees the hash of a token's secret only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation, about, body_of
from torrentdist.host.http.web import decode_body, json_response
from torrentdist.master.access.token_operations import TokenOperations, quota_view, token_view
from torrentdist.master.http.mutation_requests import answered, mutation_of
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.reads.saved_records import Records
from torrentdist.model import ids
from torrentdist.model.access.token_messages import QuotaBody, QuotaView, TokenBody, TokenView, WhoamiView
from torrentdist.security.principal import Role

MAX_TOKEN_BYTES = 16 * 1024


class TokenApi:
    def __init__(self, operations: TokenOperations, leadership: Leadership, records: Records) -> None:
        self._operations = operations
        self._leadership = leadership
        self._records = records

    def operations(self) -> Iterator[Operation]:
        tokens, one = "/v1/tokens", "/v1/tokens/{name}"
        yield Operation("GET", "/v1/whoami", self.whoami, WhoamiView, "who the sender is", Role.JOB)
        yield Operation("GET", tokens, self.tokens, list[TokenView], "every token, without secrets", Role.READER)
        yield Operation(
            "POST",
            tokens,
            self.create,
            TokenView,
            "create a token from the hash of its secret",
            Role.OPERATOR,
            body=TokenBody,
            max_body=MAX_TOKEN_BYTES,
            changes=True,
            dry_runs=True,
        )
        quota = "/v1/tokens/{name}/quota"
        summary = "what the holder of a token may use, and uses"
        yield Operation("GET", quota, self.quota, QuotaView, summary, Role.READER)
        yield Operation(
            "PUT",
            quota,
            self.set_quota,
            QuotaView,
            "limit what the holder of a token may use",
            Role.OPERATOR,
            body=QuotaBody,
            max_body=MAX_TOKEN_BYTES,
            changes=True,
            dry_runs=True,
        )
        summary = "end a token on every master"
        role = Role.OPERATOR
        yield Operation("DELETE", one, self.revoke, TokenView, summary, role, changes=True, dry_runs=True)

    async def whoami(self, request: Request) -> Response:
        sender = principal_of(request)
        return json_response(
            WhoamiView(
                name=sender.name,
                role=sender.role,
                bundles=",".join(sorted(sender.own_bundles)) or sender.bundles,
                expires_at=sender.expires_at,
                how=sender.how,
            )
        )

    async def tokens(self, _: Request) -> Response:
        now = self._records.server_now() or time.time()
        return json_response([token_view(e.record, now) for _, e in sorted(self._records.snapshot().tokens.items())])

    async def create(self, request: Request) -> Response:
        self._leadership.fence()
        raw = await body_of(request)
        body = decode_body(raw, TokenBody)
        about(request, body.name)
        mutation = await mutation_of(request, raw)
        return answered(await self._operations.create(mutation, body, principal_of(request).name))

    async def quota(self, request: Request) -> Response:
        return json_response(quota_view(self._records.snapshot(), ids.token_name(request.path_params["name"])))

    async def set_quota(self, request: Request) -> Response:
        self._leadership.fence()
        raw = await body_of(request)
        name, body = ids.token_name(request.path_params["name"]), decode_body(raw, QuotaBody)
        return answered(await self._operations.set_quota(await mutation_of(request, raw), name, body))

    async def revoke(self, request: Request) -> Response:
        self._leadership.fence()
        name = ids.token_name(request.path_params["name"])
        return answered(await self._operations.revoke(await mutation_of(request), name))
