"""Tokens over HTTP: create, limit, list and revoke them, and who the sender is.

Always: a master sees the hash of a token's secret only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation, about, body_of
from torrentdist.host.http.web import decode_body, json_response
from torrentdist.master.access.token_operations import TokenOperations, quota_view, token_view, unknown_token
from torrentdist.master.http.mutation_requests import answered, mutation_of
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.reads.saved_records import Records
from torrentdist.model import ids
from torrentdist.model.access.token_messages import QuotaBody, QuotaView, TokenBody, TokenView, WhoamiView
from torrentdist.model.access.token_record import TokenRecord
from torrentdist.security.authorization import may_see_pattern, reads_everything
from torrentdist.security.principal import Principal, Role

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
        return json_response(whoami_view(principal_of(request)))

    async def tokens(self, request: Request) -> Response:
        """The patterns of other tokens name bundles too."""
        now, sender = self._records.server_now() or time.time(), principal_of(request)
        records = (entry.record for _, entry in sorted(self._records.snapshot().tokens.items()))
        views = (token_view(record, now) for record in records if _may_see(sender, record))
        return json_response(
            [view if _may_see_quota(sender, view.name) else replace(view, has_quota=False) for view in views]
        )

    async def create(self, request: Request) -> Response:
        self._leadership.fence()
        raw = await body_of(request)
        body = decode_body(raw, TokenBody)
        about(request, body.name)
        mutation = await mutation_of(request, raw)
        return answered(await self._operations.create(mutation, body, principal_of(request).name))

    async def quota(self, request: Request) -> Response:
        """What a token uses tells of its bundles."""
        name = ids.token_name(request.path_params["name"])
        if not _may_see_quota(principal_of(request), name):
            raise unknown_token(name)
        return json_response(quota_view(self._records.snapshot(), name))

    async def set_quota(self, request: Request) -> Response:
        self._leadership.fence()
        raw = await body_of(request)
        name, body = ids.token_name(request.path_params["name"]), decode_body(raw, QuotaBody)
        return answered(await self._operations.set_quota(await mutation_of(request, raw), name, body))

    async def revoke(self, request: Request) -> Response:
        self._leadership.fence()
        name = ids.token_name(request.path_params["name"])
        return answered(await self._operations.revoke(await mutation_of(request), name))


def whoami_view(sender: Principal) -> WhoamiView:
    """Returns what a sender is told about itself."""
    own = sorted(sender.own_bundles)
    return WhoamiView(
        name=sender.name,
        role=sender.role,
        bundles=",".join(own) or sender.bundles,
        expires_at=sender.expires_at,
        how=sender.how,
        reads=",".join([*sender.reads, *own]),
    )


def _may_see_quota(sender: Principal, name: str) -> bool:
    return name == sender.name or reads_everything(sender)


def _may_see(sender: Principal, record: TokenRecord) -> bool:
    patterns = (record.bundles, record.reads or "")
    return record.name == sender.name or all(may_see_pattern(sender, pattern) for pattern in patterns)
