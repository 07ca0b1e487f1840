"""The sender of a request: how it is named, and which requests are refused for want of a proof."""

from __future__ import annotations

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import Authentication, authenticate, principal_of
from torrentdist.host.http.operation import Operation, api_app, body_of
from torrentdist.host.http.web import json_response
from torrentdist.security.principal import LOCAL, STRANGER, TOKEN_HOLDER, Principal, Role

pytestmark = pytest.mark.anyio

TOKEN = "secret"


async def tell(request: Request) -> Response:
    sender = principal_of(request)
    return json_response([sender.name, sender.role, sender.how])


async def measure(request: Request) -> Response:
    return json_response(len(await body_of(request)))


OPERATIONS = [
    Operation("GET", "/v1/sender", tell, list[str], "the sender", Role.READER),
    Operation("GET", "/open", tell, list[str], "the sender", Role.READER),
    Operation("POST", "/v1/body", measure, int, "the length of the body", Role.UPLOADER, max_body=10),
]


def client(token: str | None) -> httpx.AsyncClient:
    app = Authentication(api_app(OPERATIONS), token, ("/open",))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://daemon")


def told(principal: Principal) -> list[str]:
    return [principal.name, principal.role, principal.how]


@pytest.mark.parametrize(
    ("given", "token", "expected"),
    [
        ("", None, LOCAL),
        ("Bearer secret", TOKEN, TOKEN_HOLDER),
        ("Bearer secrets", TOKEN, None),
        ("bearer secret", TOKEN, None),
        ("", TOKEN, None),
        ("Bearer s\u00e9cret", TOKEN, None),
    ],
)
def test_only_the_token_proves_the_token(given: str, token: str | None, expected: Principal | None) -> None:
    """Anybody who reaches the port would be an operator."""
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
