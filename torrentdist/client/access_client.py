"""Tokens and the own identity, as the masters know them.

Always: the secret of a new token is made here, and only its hash is sent.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.http.api_calls import Request
from torrentdist.model import ids
from torrentdist.model.access.token_messages import NewTokenView, TokenBody, TokenView, WhoamiView
from torrentdist.security.tokens import hash_of, new_secret, token_text


async def create_token(
    client: MasterClient,
    name: str,
    role: str,
    *,
    bundles: str = "*",
    ttl_secs: float | None,
    secret: Callable[[], str] = new_secret,
) -> NewTokenView:
    """Creates a token. Nobody can show its text again."""
    text = secret()
    body = TokenBody(name=ids.token_name(name), role=role, bundles=bundles, ttl_secs=ttl_secs, hash=hash_of(text))
    view = await client.mutate(Request("POST", "/v1/tokens", content=msgspec.json.encode(body)), TokenView)
    return NewTokenView(
        name=view.name,
        role=view.role,
        bundles=view.bundles,
        expires_at=view.expires_at,
        token=token_text(view.name, text),
    )


async def list_tokens(client: MasterClient) -> list[TokenView]:
    return await client.read("GET", "/v1/tokens", list[TokenView])


async def revoke_token(client: MasterClient, name: str) -> TokenView:
    return await client.mutate(Request("DELETE", f"/v1/tokens/{ids.token_name(name)}"), TokenView)


async def whoami(client: MasterClient) -> WhoamiView:
    return await client.read("GET", "/v1/whoami", WhoamiView)
