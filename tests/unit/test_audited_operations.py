"""What the audit hears of a request to an operation, and how an operation stands for another."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from torrentdist.host.http.operation import (
    DRY_RUN,
    LONGEST_TARGET,
    Operation,
    about,
    api_app,
    body_of,
    is_dry_run,
    open_prefixes,
    standing_for,
)
from torrentdist.host.http.web import PRINCIPAL, json_response
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import AccessAudited
from torrentdist.model.ids import BundleId
from torrentdist.security.authorization import Principal, Proof, Role

pytestmark = pytest.mark.anyio
ANN = Principal("ann", Role.OPERATOR, Proof.TOKEN)
NAMES = ("what", "leader", "name", "needed", "operation", "id", "role", "detail", "pattern")
FIELDS: dict[str, Any] = dict.fromkeys(NAMES, "x")


class Heard:
    """Keeps what the audit hears."""

    def __init__(self) -> None:
        self.facts: list[tuple[str, AccessAudited]] = []

    def changed(self, fact: AccessAudited) -> None:
        self.facts.append(("changed", fact))

    def refused(self, fact: AccessAudited) -> None:
        self.facts.append(("refused", fact))


async def fail(request: Request) -> Response:
    """Ends as the query says."""
    if code := request.query_params.get("code", ""):
        raise OSError("broken") if code == "bug" else TorrentdistError(code, **FIELDS)
    if named := request.query_params.get("about"):
        about(request, named)
    return json_response([is_dry_run(request), len(await body_of(request))])


async def two_bundles(_: Request) -> list[BundleId]:
    return [BundleId("b"), BundleId("a")]


async def stand(request: Request) -> Response:
    other = standing_for(request, CHANGE, query="about=other", headers={"Content-Type": "b"}, body=b"12345")
    types = [value.decode() for name, value in other.scope["headers"] if name == b"content-type"]
    return json_response([other.method, other.path_params["id"], len(await body_of(other)), types, other.url.query])


CHANGE = Operation("POST", "/v1/x/{id}", fail, None, "a change", Role.OPERATOR, changes=True, dry_runs=True, max_body=9)
OPERATIONS = [
    CHANGE,
    Operation("POST", "/v1/host", fail, None, "a change of a host", Role.OPERATOR, changes_host=True),
    Operation("GET", "/v1/x/{id}", fail, None, "a read", Role.READER),
    Operation("PUT", "/v1/many", fail, None, "a change", Role.UPLOADER, changes=True, target=two_bundles),
    Operation("PUT", "/v1/x/{id}/stand/{more}", stand, None, "another", Role.READER, max_body=9),
    Operation("GET", "/open/{id}", fail, None, "open", Role.ANYONE),
    Operation("GET", "/exact", fail, None, "open", Role.ANYONE),
]


async def heard(
    method: str, path: str, *, dry: bool = False, sender: Principal = ANN, body: bytes = b""
) -> tuple[httpx.Response, list[tuple[str, AccessAudited]]]:
    """Returns the answer to a request, and what the audit heard of it."""
    audit = Heard()
    app = api_app(OPERATIONS, audit=audit)

    async def sent(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, PRINCIPAL: sender, **({DRY_RUN: True} if dry else {})}, receive, send)

    transport = httpx.ASGITransport(sent, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://daemon") as http:
        return await http.request(method, path, content=body, headers={"content-type": "a"}), audit.facts


@pytest.mark.parametrize(
    ("request_line", "dry", "expected"),
    [
        ("POST /v1/x/1", False, [("changed", "ok")]),
        ("POST /v1/host", False, [("changed", "ok")]),
        ("GET /v1/x/1", False, []),
        ("POST /v1/x/1?code=not_found", False, [("changed", "not_found")]),
        ("POST /v1/x/1?code=bug", False, [("changed", "internal")]),
        ("GET /v1/x/1?code=not_found", False, []),
        ("GET /v1/x/1?code=bug", False, []),
        *((f"GET /v1/x/1?code={code}", False, [("refused", code)]) for code in ("role_needed", "hosts_only")),
        *((f"GET /v1/x/1?code={code}", False, [("refused", code)]) for code in ("pattern_mismatch", "forbidden")),
        ("GET /v1/x/1?code=not_for_host", False, [("refused", "not_for_host")]),
        *((f"POST /v1/x/1?code={code}", False, [("refused", code)]) for code in ("not_leader", "no_leader")),
        *((f"POST /v1/x/1?code={code}", False, [("refused", code)]) for code in ("leadership_lost", "not_ready")),
        ("POST /v1/host?code=closing", False, [("refused", "closing")]),
        ("GET /v1/x/1?code=not_leader", False, []),
        ("POST /v1/x/1", True, []),
        ("POST /v1/x/1?code=not_found", True, []),
        ("POST /v1/x/1?code=role_needed", True, [("refused", "role_needed")]),
    ],
)
async def test_the_audit_hears_of_changes_and_refusals(
    request_line: str, dry: bool, expected: list[tuple[str, str]]
) -> None:
    """An operator does not find who changed a cluster, or finds it among reads and trials."""
    method, _, path = request_line.partition(" ")
    _, facts = await heard(method, path, dry=dry)

    assert expected == [(how, fact.result) for how, fact in facts]


@pytest.mark.parametrize(
    ("request_line", "target", "bundle"),
    [
        ("POST /v1/x/etl", "etl", "etl"),
        ("POST /v1/x/etl?about=more", "more", "etl"),
        ("PUT /v1/many", "a,b", "a"),
        ("POST /v1/host", "", ""),
        ("POST /v1/x/" + "i" * 300, "i" * LONGEST_TARGET, "i" * LONGEST_TARGET),
        ("POST /v1/x/etl?about=" + "i" * 300, "i" * LONGEST_TARGET, "etl"),
    ],
)
async def test_the_audit_hears_what_a_change_was_about(request_line: str, target: str, bundle: str) -> None:
    """An operator learns that something was changed, and not what."""
    method, _, path = request_line.partition(" ")
    _, [(_, fact)] = await heard(method, path)

    assert (target, bundle) == (fact.target, fact.bundle)
    assert ("ann", "operator", "token", "127.0.0.1") == (fact.who, fact.sender_role, fact.how, fact.source)
    assert f"{method} {path.partition('?')[0]}".startswith(fact.operation.partition("{")[0])


async def test_a_refused_role_is_told_before_anything_is_done() -> None:
    """A reader's attempts to change a cluster leave no trace."""
    answer, [(how, fact)] = await heard("POST", "/v1/x/etl", sender=Principal("bob", Role.READER, Proof.TOKEN))

    assert (403, "refused", "bob", "role_needed") == (answer.status_code, how, fact.who, fact.result)


async def test_only_what_can_be_tried_is_tried() -> None:
    """`--dry-run` changes the cluster where an operation does not know of trials."""
    tried, _ = await heard("POST", "/v1/x/etl", dry=True)
    refused, _ = await heard("POST", "/v1/host", dry=True)

    assert [True, 0] == tried.json()
    assert (404, "not_found") == (refused.status_code, refused.json()["error"])
    assert "a dry run of POST /v1/host" in refused.json()["message"]


async def test_a_request_stands_for_another() -> None:
    """A form of the console changes another record than the one it shows, or with another body."""
    answer, _ = await heard("PUT", "/v1/x/etl/stand/1", body=b"form")

    assert ["POST", "etl", 5, ["b"], "about=other"] == answer.json()


def test_open_paths_are_those_of_anyone() -> None:
    """What needs a role is open to everybody, or a probe needs a token."""
    assert ("/open/", "/exact") == open_prefixes(OPERATIONS)
