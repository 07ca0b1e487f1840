"""The sender of a request: how it is identified, and which requests are refused without a proof."""

from __future__ import annotations

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from torrentdist.host.http.authentication import Authentication, authenticate, principal_of
from torrentdist.host.http.operation import Operation, api_app, body_of, open_prefixes, sharer_of
from torrentdist.host.http.web import PRINCIPAL, json_response
from torrentdist.model.ids import BundleId
from torrentdist.security.authorization import LOCAL, STRANGER, TOKEN_HOLDER, Principal, Proof, Role

pytestmark = pytest.mark.anyio

TOKEN = "secret"


async def tell(request: Request) -> Response:
    sender = principal_of(request)
    return json_response([sender.name, sender.role, sender.how])


async def measure(request: Request) -> Response:
    return json_response(len(await body_of(request)))


async def etl(_: Request) -> list[BundleId]:
    return [BundleId("etl-1")]


OPERATIONS = [
    Operation("GET", "/v1/sender", tell, list[str], "the sender", Role.READER),
    Operation("GET", "/open", tell, list[str], "the sender", Role.ANYONE),
    Operation("POST", "/v1/body", measure, int, "the length of the body", Role.UPLOADER, max_body=10, target=etl),
]


def client(token: str | None) -> httpx.AsyncClient:
    app = Authentication(api_app(OPERATIONS), token, open_prefixes(OPERATIONS))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://daemon")


def told(principal: Principal) -> list[str]:
    return [principal.name, principal.role, principal.how]


@pytest.mark.parametrize(
    ("given", "token", "expected"),
    [
        ("", None, LOCAL),
        ("Bearer secret", TOKEN, TOKEN_HOLDER),
        ("Bearer secrets", TOKEN, None),
        ("bearer secret", TOKEN, TOKEN_HOLDER),
        ("Basic secret", TOKEN, None),
        ("", TOKEN, None),
        ("Bearer s\u00e9cret", TOKEN, None),
    ],
)
def test_only_the_token_proves_the_token(given: str, token: str | None, expected: Principal | None) -> None:
    """Everyone who reaches the port would be an operator."""
    assert expected == authenticate(given, token)


async def test_a_handler_knows_the_sender() -> None:
    """A handler that decides by role would take a stranger for the operator."""
    right = {"Authorization": f"Bearer {TOKEN}"}
    async with client(None) as local, client(TOKEN) as remote:
        answers = [
            await local.get("/v1/sender"),
            await remote.get("/v1/sender", headers=right),
            await remote.get("/open"),
            await remote.get("/open", headers=right),
        ]

    assert [told(LOCAL), told(TOKEN_HOLDER), told(STRANGER), told(TOKEN_HOLDER)] == [a.json() for a in answers]


async def test_a_request_without_the_token_is_refused() -> None:
    """A wrong token would be as good as the right one."""
    async with client(TOKEN) as remote:
        answers = [await remote.get("/v1/sender"), await remote.get("/v1/sender", headers={"Authorization": "x"})]

    assert [(401, "unauthorized")] * 2 == [(a.status_code, a.json()["error"]) for a in answers]


async def test_an_operation_bounds_its_body() -> None:
    """One request could take all of a daemon's memory."""
    async with client(None) as local:
        fits, too_large = (
            await local.post("/v1/body", content=b"x" * 10),
            await local.post("/v1/body", content=b"x" * 11),
        )

    assert (200, 10) == (fits.status_code, fits.json())
    assert (413, "too_large") == (too_large.status_code, too_large.json()["error"])


async def test_a_method_that_no_operation_has_is_answered_with_those_that_exist() -> None:
    """A client could not find out what it may send to a path."""
    async with client(None) as local:
        wrong, asked = await local.delete("/v1/body"), await local.options("/v1/body")

    assert (405, "OPTIONS, POST") == (wrong.status_code, wrong.headers["allow"])
    assert (204, "OPTIONS, POST") == (asked.status_code, asked.headers["allow"])


async def test_a_role_decides_before_the_handler_runs() -> None:
    """F5: a reader's request would change the cluster before it is refused."""
    reader = Principal("ann", Role.READER, Proof.TOKEN)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(sent_by(reader)), base_url="http://daemon") as http:
        allowed, refused = await http.get("/v1/sender"), await http.post("/v1/body", content=b"x")

    assert (200, 403) == (allowed.status_code, refused.status_code)
    assert ("role_needed", "uploader") == (refused.json()["error"], refused.json()["fields"]["needed"])


@pytest.mark.parametrize(("pattern", "expected"), [("*", 200), ("etl-*", 200), ("etl", 403), ("web-*", 403)])
async def test_a_pattern_decides_before_the_handler_runs(pattern: str, expected: int) -> None:
    """F5: a token for one team's bundles would change those of another team."""
    uploader = Principal("ann", Role.UPLOADER, Proof.TOKEN, bundles=pattern)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(sent_by(uploader)), base_url="http://daemon") as http:
        answer = await http.post("/v1/body", content=b"x")

    assert expected == answer.status_code


def sent_by(principal: Principal) -> ASGIApp:
    """Returns the operations, for requests of this sender."""
    app = api_app(OPERATIONS)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        scope[PRINCIPAL] = principal
        await app(scope, receive, send)

    return answer


@pytest.mark.parametrize(
    ("sender", "shares"),
    [(Principal("ann", Role.UPLOADER, Proof.TOKEN), 1), (TOKEN_HOLDER, 2), (LOCAL, 2)],
    ids=["a token of one", "a token of all daemons", "no token"],
)
async def test_one_sender_has_one_share_from_any_address(sender: Principal, shares: int) -> None:
    """A sender with many addresses would take all of the room, or daemons with one token would
    share what one of them needs."""
    scopes = ({"type": "http", PRINCIPAL: sender, "client": (address, 1)} for address in ("10.0.0.1", "10.0.0.2"))

    assert shares == len({sharer_of(Request(scope)) for scope in scopes})
