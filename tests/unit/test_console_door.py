"""The door of the console: who gets a page, who gets JSON, and how sessions begin and end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from records_of import snapshot
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from torrentdist.cluster.records.snapshot import TokenEntry
from torrentdist.host.http.operation import api_app, operations_of
from torrentdist.host.http.web import PRINCIPAL
from torrentdist.master.console.console_door import RULES, ConsoleDoor, SessionPages
from torrentdist.master.console.forms.actions import ACTIONS
from torrentdist.master.console.visits import MOST_FIELDS, Sessions, Visits, session_cookie, session_in
from torrentdist.master.http.routes import Routes, operation
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.ids import MasterId
from torrentdist.security.authorization import STRANGER, Role
from torrentdist.security.console_session import COOKIE
from torrentdist.security.tokens import hash_of

pytestmark = pytest.mark.anyio
BROWSER = {"accept": "text/html,*/*"}
ERROR = {"error": "not_found", "message": "there is no <b>", "hint": "look again"}


async def asked(
    path: str, answer: Any = None, headers: dict[str, str] | None = None, method: str = "GET", parts: int = 1
) -> httpx.Response:
    """Returns what comes out of the door if the master behind it answers so. `parts`: how many its
    body comes in."""

    async def behind(scope: Scope, receive: Receive, send: Send) -> None:
        async def in_parts(message: Message) -> None:
            body = message.get("body", b"")
            if message["type"] != "http.response.body" or parts == 1:
                await send(message)
                return
            await send({**message, "body": body[:9], "more_body": True})
            await send({**message, "body": body[9:], "more_body": False})

        await (answer or PlainTextResponse("as it is"))(scope, receive, in_parts)

    transport = httpx.ASGITransport(app=ConsoleDoor(behind))
    async with httpx.AsyncClient(transport=transport, base_url="http://m1") as client:
        return await client.request(method, path, headers=headers or {})


@pytest.mark.parametrize("path", ["/", "/ui"])
async def test_the_short_addresses_lead_to_the_console(path: str) -> None:
    """Somebody who types the master's address would see an error."""
    found = await asked(path)
    posted = await asked(path, method="POST")

    assert (307, "/ui/") == (found.status_code, found.headers["location"])
    assert (200, "as it is") == (posted.status_code, posted.text)


async def test_the_rules_for_browsers_are_on_every_page_and_on_nothing_else() -> None:
    """Another site could show the console within its own page, or a disk keep what it showed."""
    page, asset = await asked("/ui/hosts"), await asked("/ui/x", PlainTextResponse("", headers={"cache-control": "a"}))
    api = await asked("/v1/bundles")

    assert RULES.items() <= dict(page.headers).items()
    assert ("no-store", "a") == (page.headers["cache-control"], asset.headers["cache-control"])
    assert not RULES.keys() & api.headers.keys()


@pytest.mark.parametrize("parts", [1, 2])
async def test_a_browser_reads_an_error_as_a_page(parts: int) -> None:
    """Somebody would see JSON, or half of the sentence that says what to do."""
    found = await asked("/ui/hosts/x", JSONResponse(ERROR, 404), BROWSER, parts=parts)

    assert (404, "text/html; charset=utf-8") == (found.status_code, found.headers["content-type"])
    said = ("there is no &lt;b&gt;", "look again", "error[not_found]")
    assert [] == [part for part in said if part not in found.text]
    assert RULES.items() <= dict(found.headers).items()
    assert "no-store" == found.headers["cache-control"]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("/ui/x", {}, 404), ("/ui/x?a=b&format=json", BROWSER, 404), ("/ui/x", BROWSER, 200), ("/ui/x", BROWSER, 399)],
)
async def test_a_program_reads_json(path: str, headers: dict[str, str], status: int) -> None:
    """A script would have to read pages."""
    found = await asked(path, JSONResponse(ERROR, status), headers)

    assert (status, ERROR) == (found.status_code, found.json())


@pytest.mark.parametrize(
    ("method", "headers", "is_told"),
    [("GET", BROWSER, False), ("GET", BROWSER | {"cookie": f"{COOKIE}=old"}, True), ("POST", BROWSER, True)],
)
async def test_who_must_prove_something_signs_in(method: str, headers: dict[str, str], is_told: bool) -> None:
    """A first visit would begin with an error, or a wrong token be refused without a word."""
    found = await asked("/ui/hosts", JSONResponse(ERROR, 401), headers, method)

    assert 401 == found.status_code
    assert 'value="/ui/hosts"' in found.text, "it leads back"
    assert is_told is ("there is no &lt;b&gt;" in found.text)


async def test_signing_in_does_not_lead_back_to_signing_in() -> None:
    """Somebody would be asked for the token again and again."""
    found = await asked("/ui/sign-out", JSONResponse(ERROR, 401), BROWSER)

    assert 'value="/ui/"' in found.text


# sessions

SECRET = "s" * 43
ANN = TokenRecord(name="ann", role=Role.UPLOADER, hash=hash_of(SECRET), created_at=1.0)
SEEN = replace(snapshot(), tokens={"ann": TokenEntry(ANN, 0)})
RECORDS: Any = SimpleNamespace(snapshot=lambda: SEEN, server_now=lambda: 1000.0, stale_secs=lambda: 3.5)
LEADERSHIP: Any = SimpleNamespace(leader_id=lambda: MasterId("m2"))
SHARED = "the shared token"


class ShownVisits(Routes):
    """A page that tells what the frames of pages say."""

    def __init__(self, visits: Visits) -> None:
        self._visits = visits

    @operation("GET", "/ui/bundles/{id}", None, Role.READER)
    async def page(self, request: Request) -> Response:
        """The page."""
        visit = self._visits.of(request)
        query = self._visits.said_query(request, next(a for a in ACTIONS if a.name == "pin"), "etl")
        return JSONResponse({"said": visit.said, "leader": visit.leader_url, "key": visit.form_key, "query": query,
                             "others": visit.others, "stale": visit.stale_secs, "who": visit.sender.name})  # fmt: skip


def console(*, secure: bool = False) -> httpx.AsyncClient:
    """Returns a browser in front of a master whose senders are known by their sessions alone."""
    sessions = Sessions(b"k" * 32, RECORDS, SHARED)
    pages = SessionPages(sessions, secure), ShownVisits(Visits(MasterId("m1"), RECORDS, LEADERSHIP, sessions))
    app = api_app(operations_of(*pages))

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, PRINCIPAL: sessions.principal(scope) or STRANGER}, receive, send)

    return httpx.AsyncClient(transport=httpx.ASGITransport(app=known), base_url="http://m1")


@pytest.mark.parametrize(("token", "who"), [(f"td.ann.{SECRET}", "ann"), (f" {SHARED} ", "token")])
async def test_a_session_begins_with_a_token_and_ends_with_its_form(token: str, who: str) -> None:
    """Nobody could sign in, or a page of another site could sign somebody out."""
    async with console() as browser:
        begun = await browser.post("/ui/sign-in", data={"token": token, "back": "/ui/bundles/etl"})
        page = (await browser.get("/ui/bundles/etl")).json()
        foreign = await browser.post("/ui/sign-out", data={"form_key": "guessed"})
        ended = await browser.post("/ui/sign-out", data={"form_key": page["key"]})
        after = await browser.get("/ui/bundles/etl")

    assert (303, "/ui/bundles/etl", who) == (begun.status_code, begun.headers["location"], page["who"])
    assert "foreign_site" == foreign.json()["error"]
    assert (303, "/ui/") == (ended.status_code, ended.headers["location"])
    assert "Max-Age=0" in ended.headers["set-cookie"]
    assert "unauthorized" == after.json()["error"]


@pytest.mark.parametrize("token", ["", "  ", "td.ann.wrong", "td.bob.x", "the shared toke"])
async def test_what_is_no_token_begins_no_session(token: str) -> None:
    """A stranger would be let in, or get a cookie that means nothing."""
    async with console() as browser:
        answer = await browser.post("/ui/sign-in", data={"token": token})

    assert "set-cookie" not in answer.headers
    assert (401 if token.strip() else 400) == answer.status_code


@pytest.mark.parametrize("back", ["", "https://evil", "//evil", "/ui/\\evil", "/v1/bundles"])
async def test_a_form_leads_back_into_the_console_alone(back: str) -> None:
    """A link with a form of ours would lead to another site."""
    async with console() as browser:
        answer = await browser.post("/ui/sign-in", data={"token": SHARED, "back": back})

    assert "/ui/" == answer.headers["location"]


async def test_the_cookie_leaves_neither_the_console_nor_its_life_nor_tls() -> None:
    """A script, another site or a listener would take over the session of an operator."""
    async with console(secure=True) as browser:
        cookie = (await browser.post("/ui/sign-in", data={"token": SHARED})).headers["set-cookie"]

    assert ["Path=/ui/", "HttpOnly", "SameSite=Strict", "Max-Age=43200", "Secure"] == cookie.split("; ")[1:]
    assert "Secure" not in session_cookie("x", secure=False)


async def test_the_next_page_tells_its_sender_alone_what_a_change_did() -> None:
    """A link of somebody else would claim that something was done."""
    async with console() as browser:
        await browser.post("/ui/sign-in", data={"token": SHARED})
        page = (await browser.get("/ui/bundles/etl")).json()
        told = (await browser.get(f"/ui/bundles/etl?{page['query']}")).json()
        for_another = (await browser.get(f"/ui/bundles/etl?{page['query'].replace('to=etl', 'to=other')}")).json()

    assert ("", "") == (page["said"], for_another["said"])
    assert told["said"].startswith("etl: ")
    assert ("http://m2", 3.5) == (page["leader"], page["stale"])
    assert [["m2", "http://m2"], ["m3", "http://m3"]] == page["others"]


async def test_only_the_console_believes_its_cookie() -> None:
    """A page of another site could use the API by an operator's session."""
    async with console() as browser:
        await browser.post("/ui/sign-in", data={"token": SHARED})
        cookie = next(iter(browser.cookies.jar)).value or ""
    scope = {"type": "http", "headers": [(b"cookie", f"{COOKIE}={cookie}".encode())]}
    sessions = Sessions(b"k" * 32, RECORDS, SHARED)

    assert sessions.principal({**scope, "path": "/ui/hosts"})
    assert sessions.principal({**scope, "path": "/v1/hosts"}) is None


@pytest.mark.parametrize("cookie", ["", "a=b", "=;=", f"a\x00{COOKIE}=x", f"{'x=1;' * 3000}{COOKIE}=x"])
async def test_a_cookie_without_a_session_is_none(cookie: str) -> None:
    """A cookie of another program on this host would be an error of every page."""
    assert "" == session_in({"type": "http", "headers": [(b"cookie", cookie.encode())]})


async def test_a_form_of_many_fields_is_refused() -> None:
    """A form of a million fields would hold up a master."""
    async with console() as browser:
        few = await browser.post("/ui/sign-in", data={f"f{n}": "" for n in range(MOST_FIELDS - 1)} | {"token": SHARED})
        many = await browser.post("/ui/sign-in", data={f"f{n}": "" for n in range(MOST_FIELDS)} | {"token": SHARED})

    assert (303, 400) == (few.status_code, many.status_code)


async def test_the_files_of_the_pages_are_there() -> None:
    """Pages would have no style, and a missing file would be called another error."""
    async with console() as browser:
        style, script, none = [await browser.get(f"/ui/assets/{name}") for name in ("console.css", "console.js", "x")]

    assert ("text/css", "text/javascript") == tuple(a.headers["content-type"].split(";")[0] for a in (style, script))
    assert "max-age=60" == style.headers["cache-control"]
    assert (404, "not_found") == (none.status_code, none.json()["error"])
