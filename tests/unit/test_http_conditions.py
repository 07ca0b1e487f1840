"""How requests with conditions and ranges are answered by RFC 9110, as tables; and the headers of
the answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from email.utils import formatdate
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from torrentdist.host.http.file_answers import file_response
from torrentdist.host.http.http_conditions import (
    Decision,
    Failed,
    NotModified,
    NotSatisfiable,
    Part,
    Representation,
    Whole,
    decide,
    parse_date,
)
from torrentdist.host.http.web import on_http_error
from torrentdist.model.ids import Digest

pytestmark = pytest.mark.anyio

THEN = 1_700_000_000
SHOWN = Representation("tag", 100, THEN)
AT, BEFORE, AFTER = (formatdate(THEN + shift, usegmt=True) for shift in (0, -1, 1))
WHOLE, SAME = Whole(), NotModified()
Sent = Mapping[str, str | list[str]]


def decided(sent: Sent, method: str = "GET", shown: Representation = SHOWN) -> Decision:
    return decide(method, {name: [text] if isinstance(text, str) else text for name, text in sent.items()}, shown)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        # If-None-Match is a list of tags that are compared weakly
        ({"if-none-match": '"tag"'}, SAME),
        ({"if-none-match": 'W/"tag"'}, SAME),
        ({"if-none-match": "*"}, SAME),
        ({"if-none-match": '"a", "tag"'}, SAME),
        ({"if-none-match": ['"a"', '"tag"']}, SAME),
        ({"if-none-match": '"a,tag" ,, "b"'}, WHOLE),
        ({"if-none-match": "tag"}, WHOLE),
        ({"if-none-match": '"tag'}, WHOLE),
        ({"if-none-match": '"a", *'}, WHOLE),
        ({"if-none-match": ""}, WHOLE),
        # If-Match is a list of tags that are compared strongly
        ({"if-match": '"tag"'}, WHOLE),
        ({"if-match": "*"}, WHOLE),
        ({"if-match": ['"a"', '"tag"']}, WHOLE),
        ({"if-match": 'W/"tag"'}, Failed("If-Match")),
        ({"if-match": '"a"'}, Failed("If-Match")),
        ({"if-match": ""}, Failed("If-Match")),
        ({"if-match": '"a"', "if-none-match": '"tag"'}, Failed("If-Match")),
        ({"if-match": '"tag"', "if-none-match": '"tag"'}, SAME),
        # dates count where there is no tag, and only where they are dates
        ({"if-modified-since": AT}, SAME),
        ({"if-modified-since": AFTER}, SAME),
        ({"if-modified-since": BEFORE}, WHOLE),
        ({"if-modified-since": "yesterday"}, WHOLE),
        ({"if-modified-since": [AT, AT]}, WHOLE),
        ({"if-modified-since": AT, "if-none-match": '"a"'}, WHOLE),
        ({"if-modified-since": BEFORE, "if-none-match": '"tag"'}, SAME),
        ({"if-unmodified-since": AT}, WHOLE),
        ({"if-unmodified-since": BEFORE}, Failed("If-Unmodified-Since")),
        ({"if-unmodified-since": BEFORE, "if-match": '"tag"'}, WHOLE),
        ({"if-unmodified-since": "never"}, WHOLE),
        # conditions come before ranges
        ({"if-none-match": '"tag"', "range": "bytes=0-9"}, SAME),
        ({"if-match": '"a"', "range": "bytes=0-9"}, Failed("If-Match")),
        ({"if-none-match": '"a"', "range": "bytes=900-"}, NotSatisfiable("bytes=900-")),
    ],
)
def test_conditions(sent: Sent, expected: Decision) -> None:
    """A client would keep outdated content, or fetch again what it has."""
    assert expected == decided(sent)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bytes=0-9", Part(0, 10)),
        ("bytes=90-", Part(90, 100)),
        ("bytes=-10", Part(90, 100)),
        ("bytes=50-500", Part(50, 100)),
        ("bytes=-500", Part(0, 100)),
        ("Bytes=0-9", Part(0, 10)),
        ("bytes=,0-9 ,", Part(0, 10)),
        ("bytes=0-9,200-300", Part(0, 10)),
        ("bytes=0-99", Part(0, 100)),
        (f"bytes={'0' * 5000}1-{'9' * 5000}", Part(1, 100)),
        # ranges that are not understood are ignored, and so are several ranges
        ("bytes=0-1,5-6", WHOLE),
        (["bytes=0-1", "bytes=5-6"], WHOLE),
        ("bytes=9-0", WHOLE),
        ("bytes=0-1,9-0", WHOLE),
        ("lines=1-2", WHOLE),
        ("bytes", WHOLE),
        ("bytes=", WHOLE),
        ("bytes=-", WHOLE),
        ("bytes=1 0-20", WHOLE),
        ("bytes=\u0661-", WHOLE),
        ("bytes=0x1-", WHOLE),
        ("", WHOLE),
        # no byte of the range exists
        ("bytes=100-", NotSatisfiable("bytes=100-")),
        ("bytes=-0", NotSatisfiable("bytes=-0")),
        ("bytes=100-200,300-", NotSatisfiable("bytes=100-200,300-")),
        (f"bytes={'9' * 5000}-", NotSatisfiable(f"bytes={'9' * 5000}-")),
    ],
)
def test_a_range_is_a_part_or_all(text: str | list[str], expected: Decision) -> None:
    """A resumed download would get other bytes than it asked for, or an error where every server
    ignores the range."""
    assert expected == decided({"range": text})


def test_a_range_is_for_get_and_for_content_of_known_size() -> None:
    """HEAD would describe a part that GET without a range does not send."""
    empty, endless = Representation("tag", 0), Representation("tag")

    assert WHOLE == decided({"range": "bytes=0-9"}, "HEAD")
    assert WHOLE == decided({"range": "bytes=900-"}, "HEAD")
    assert WHOLE == decided({"range": "bytes=0-9"}, shown=endless)
    assert (NotSatisfiable("bytes=0-9"), WHOLE) == tuple(
        decided({"range": text}, shown=empty) for text in ("bytes=0-9", "bytes=-9")
    )


@pytest.mark.parametrize(
    ("condition", "applies"),
    [('"tag"', True), ('W/"tag"', False), ('"a"', False), (AT, True), (BEFORE, False), (AFTER, False), ("*", False)],
)
def test_if_range_wants_exactly_the_same_content(condition: str, applies: bool) -> None:
    """A resumed download would be put together from two contents."""
    assert (Part(0, 10) if applies else WHOLE) == decided({"range": "bytes=0-9", "if-range": condition})


def test_without_a_known_time_dates_mean_nothing() -> None:
    """A bundle that is still arriving would count as old."""
    shown = Representation("tag", 100)

    assert {WHOLE} == {decided({field: AT}, shown=shown) for field in ("if-modified-since", "if-unmodified-since")}
    assert WHOLE == decided({"range": "bytes=0-9", "if-range": AT}, shown=shown)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 784111777),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 784111777),
        ("Sun Nov  6 08:49:37 1994", 784111777),
        ("Sun, 06 Nov 1994 08:49:37 +0200", None),
        ("Sun, 31 Feb 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 1994 24:00:00 GMT", None),
        ("Sun, 06 Nov 0000 08:49:37 GMT", None),
        ("784111777", None),
    ],
)
def test_dates_have_three_forms(text: str, expected: int | None) -> None:
    """An old client's condition would be ignored, or a wrong date would count."""
    assert expected == parse_date(text)


# headers of answers


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    (tmp_path / "a").write_bytes(b"x" * 100)

    def file(request: Request) -> Response:
        answer = file_response(request, tmp_path, request.path_params["path"], Digest("tag"), THEN + 0.7)
        return answer or Response(status_code=503)

    async def other(_: Request) -> Response:
        return Response(status_code=204)

    routes = [Route("/{path}", file), Route("/{path}", other, methods=["PUT"])]
    app = Starlette(routes=routes, exception_handlers={405: on_http_error})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        yield client


async def test_a_file_that_is_gone_is_no_answer(web: httpx.AsyncClient, tmp_path: Path) -> None:
    """If this fails, a reader whose bundle is evicted meanwhile is told that it has no such
    file."""
    (tmp_path / "a").unlink()

    assert (await web.get("/a")).status_code == 503


async def test_answers_tell_what_they_are_of(web: httpx.AsyncClient) -> None:
    """A client could neither resume nor ask whether anything has changed."""
    whole, head = await web.get("/a"), await web.head("/a", headers={"range": "bytes=0-9"})
    part = await web.get("/a", headers={"range": "bytes=-10"})
    beyond = await web.get("/a", headers={"range": "bytes=100-"})
    same = await web.get("/a", headers={"if-modified-since": AT})
    other = await web.get("/a", headers={"if-match": '"other"'})

    names = ("etag", "last-modified", "accept-ranges", "content-length")
    assert ['"tag"', AT, "bytes", "100"] == [whole.headers[name] for name in names]
    assert (200, b"", [whole.headers[name] for name in names]) == (
        head.status_code, head.content, [head.headers[name] for name in names],
    )  # fmt: skip
    assert (206, "bytes 90-99/100", 10) == (part.status_code, part.headers["content-range"], len(part.content))
    assert (416, "bytes */100") == (beyond.status_code, beyond.headers["content-range"])
    assert (304, '"tag"', b"") == (same.status_code, same.headers["etag"], same.content)
    assert (412, "precondition_failed") == (other.status_code, other.json()["error"])
    assert parse_date(whole.headers["date"]) is not None


async def test_a_wrong_method_is_told_the_right_ones(web: httpx.AsyncClient) -> None:
    """A client could not find out which methods a path accepts."""
    wrong, asked = await web.delete("/a"), await web.request("OPTIONS", "/a")

    assert (405, "GET, HEAD, OPTIONS, PUT") == (wrong.status_code, wrong.headers["allow"])
    assert (204, "GET, HEAD, OPTIONS, PUT") == (asked.status_code, asked.headers["allow"])
