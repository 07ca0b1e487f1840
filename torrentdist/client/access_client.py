"""Tokens, the own identity and the audit, as the masters know them.

Always: the secret of a new token is made here, and only its hash is sent.
"""

import asyncio
from collections.abc import Callable
from urllib.parse import quote

import msgspec

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.client.masters.read_race import READ_SECS
from torrentdist.http.api_calls import Broken, Request, result_of
from torrentdist.model import ids
from torrentdist.model.access.audit_messages import AuditView
from torrentdist.model.access.token_messages import NewTokenView, QuotaBody, QuotaView, TokenBody, TokenView, WhoamiView
from torrentdist.model.access.url_messages import NewUrlView, UrlBody, UrlKeyView, UrlView
from torrentdist.model.errors import EXIT_NOT_ALLOWED, TorrentdistError
from torrentdist.model.wire.cluster_messages import MasterView
from torrentdist.model.wire.view import view_of
from torrentdist.security.capabilities import PARAMETER, is_one_bundle
from torrentdist.security.tokens import hash_of, new_secret, token_text


async def create_token(client: MasterClient, wanted: TokenBody, secret: Callable[[], str] = new_secret) -> NewTokenView:
    """Creates a token. Nobody can show its text again. `wanted` has no hash."""
    text = secret()
    body = msgspec.structs.replace(wanted, name=ids.token_name(wanted.name), hash=hash_of(text))
    view = await client.mutate(Request("POST", "/v1/tokens", content=msgspec.json.encode(body)), TokenView)
    return view_of(NewTokenView, view, token=token_text(view.name, text))


async def new_url(client: MasterClient, wanted: UrlBody, gateway: str, ending: str) -> NewUrlView:
    """Makes a URL that opens a bundle at the gateways of pods. A pattern's URL has `ID` in place of
    the bundle."""
    view = await client.mutate(Request("POST", "/v1/urls", content=msgspec.json.encode(wanted)), UrlView)
    return view_of(NewUrlView, view, url=url_text(view, gateway, ending))


def url_text(view: UrlView, gateway: str, ending: str) -> str:
    bundle = view.bundles if is_one_bundle(view.bundles) else "ID"
    what = f"files/{quote(view.path)}" if view.path else f"{bundle}.{ending}"
    query = f"?{PARAMETER}={view.capability}" if view.capability else ""
    return f"{gateway.rstrip('/')}/bundles/{bundle}/{what}{query}"


async def rotate_url_key(client: MasterClient) -> UrlKeyView:
    """Replaces the key that signs URLs, which ends all of them."""
    return await client.mutate(Request("POST", "/v1/urls/key"), UrlKeyView)


async def list_tokens(client: MasterClient) -> list[TokenView]:
    return await client.read("GET", "/v1/tokens", list[TokenView])


async def revoke_token(client: MasterClient, name: str) -> TokenView:
    return await client.mutate(Request("DELETE", f"/v1/tokens/{ids.token_name(name)}"), TokenView)


async def quota(client: MasterClient, name: str) -> QuotaView:
    return await client.read("GET", f"/v1/tokens/{ids.token_name(name)}/quota", QuotaView)


async def set_quota(client: MasterClient, name: str, body: QuotaBody) -> QuotaView:
    path = f"/v1/tokens/{ids.token_name(name)}/quota"
    return await client.mutate(Request("PUT", path, content=msgspec.json.encode(body)), QuotaView)


async def whoami(client: MasterClient) -> WhoamiView:
    return await client.read("GET", "/v1/whoami", WhoamiView)


class AuditWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the audit that is asked for. Empty text stands for all."""

    within: float
    """Seconds to look back."""
    who: str = ""
    bundle: str = ""
    most: int = 1000


class MergedAudit(msgspec.Struct, frozen=True):
    entries: list[AuditView]
    """The entries of all masters that answered, the newest first."""
    asked: int
    """Masters that answered."""
    missing: dict[str, str]
    """Masters that did not answer, and why."""


async def audit(client: MasterClient, wanted: AuditWanted) -> MergedAudit:
    """Returns the audit of all masters, within READ_SECS for the masters' names and again for what
    they say.
    """
    cluster = await client.cluster()
    params = {"within": f"{wanted.within:.3f}", "n": str(wanted.most), "who": wanted.who, "bundle": wanted.bundle}
    request = Request("GET", "/v1/audit", params=params, timeout=READ_SECS)
    missing: dict[str, str] = {}

    async def ask(master: MasterView) -> list[AuditView]:
        try:
            answer, _ = await client.send_once(master.url, request, takes_old=True)
            return result_of(answer, list[AuditView])
        except Broken as broken:
            missing[master.id] = broken.detail
        except TorrentdistError as error:
            if error.exit_code == EXIT_NOT_ALLOWED:
                raise
            missing[master.id] = error.message
        return []

    parts = await asyncio.gather(*(ask(master) for master in cluster.masters))
    entries = sorted((entry for part in parts for entry in part), key=lambda entry: entry.at, reverse=True)
    return MergedAudit(entries[: wanted.most], len(cluster.masters) - len(missing), missing)
