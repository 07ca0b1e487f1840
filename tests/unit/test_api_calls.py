"""One call of the API: how long it tries to connect, and what its end means."""

from __future__ import annotations

import asyncio

import pytest

from torrentdist.http.api_calls import CONNECT_SECS, Broken, Request, error_in, expect_known, result_of, send
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import (
    Answer,
    AnswerTimeout,
    AnswerTooLarge,
    ConnectError,
    ConnectTimeout,
    HttpError,
    InvalidUrl,
    NotTrusted,
    Patience,
    SentRequest,
)
from torrentdist.model.errors import TorrentdistError

URL = "http://m1:1"


class Failing(Http):
    """An Http whose attempts end as a test wants. None: with an answer."""

    def __init__(self, *ends: HttpError | None) -> None:
        super().__init__()
        self._ends = list(ends)
        self.asked: list[SentRequest] = []
        self.patience: list[Patience] = []

    async def exchange(self, asked: SentRequest, patience: Patience) -> Answer:
        self.asked.append(asked)
        self.patience.append(patience)
        if (end := self._ends.pop(0)) is not None:
            raise end
        return Answer(200)


def broken(*ends: HttpError) -> tuple[bool, str]:
    with pytest.raises(Broken) as caught:
        asyncio.run(send(Failing(*ends), URL, Request("POST", "/v1/x")))
    return caught.value.sent, caught.value.detail


@pytest.mark.parametrize(
    ("end", "sent", "detail"),
    [
        (ConnectError("refused"), False, "refused"),
        (ConnectError(""), False, "no connection"),
        (NotTrusted("it gets no token"), False, "it gets no token"),
        (InvalidUrl("no protocol"), False, "not a usable URL: no protocol"),
        (AnswerTimeout("nothing came"), True, "no answer within 5 s"),
        (AnswerTooLarge("too many"), True, "too many"),
        (HttpError(""), True, "the connection broke"),
    ],
)
def test_a_request_that_was_sent_is_told_from_one_that_was_not(end: HttpError, sent: bool, detail: str) -> None:
    """A change is made twice, or a user is told to look whether it was made when it cannot have
    been."""
    assert (sent, detail) == broken(end)


def test_a_connection_is_tried_again_in_time() -> None:
    """One lost packet on a full link costs a second, or a dead host costs ten."""
    waits = [ConnectTimeout("late") for _ in CONNECT_SECS]
    last, http = Failing(*waits[1:], None), Failing(*waits[1:], None)
    asyncio.run(send(last, URL, Request("GET", "/v1/x", timeout=9.0)))
    asyncio.run(send(http, URL, Request("GET", "/v1/x", timeout=9.0, silence=2.0)))

    assert (False, "late") == broken(*waits)
    assert [(0.25, 9.0)] * 4 + [(1.0, 9.0)] == [tuple(patience) for patience in last.patience]
    assert {2.0} == {patience.silence_secs for patience in http.patience}


def test_only_a_connection_that_was_too_late_is_tried_again() -> None:
    """A change is sent again although the first one may have been made."""
    http = Failing(AnswerTimeout("late"), None)
    with pytest.raises(Broken):
        asyncio.run(send(http, URL, Request("POST", "/v1/x", silence=0.5)))

    assert 1 == len(http.asked)


def test_all_of_a_request_is_sent() -> None:
    """A master gets no body, no parameters or another method, or answers more than is taken."""
    http = Failing(None)
    request = Request("PUT", "/v1/x", {"a": "b c"}, b"body", {"X-Own": "1"}, most_bytes=7)
    asyncio.run(send(http, URL, request))
    (asked,) = http.asked

    assert ("PUT", f"{URL}/v1/x?a=b%20c", b"body", 7) == (asked.method, asked.url, asked.content, asked.most_bytes)
    assert "1" == asked.headers["x-own"]


def test_a_call_ends_by_its_timeout() -> None:
    """A master that sends a byte now and then holds a command for ever."""

    class Slow(Http):
        async def exchange(self, asked: SentRequest, patience: Patience) -> Answer:
            await asyncio.Event().wait()
            raise AssertionError

    async def play() -> Broken:
        try:
            await send(Slow(), URL, Request("GET", "/v1/x", timeout=0.01))
        except Broken as exc:
            return exc
        raise AssertionError

    ended = asyncio.run(play())

    assert (True, "no answer within 0.01 s") == (ended.sent, ended.detail)


@pytest.mark.parametrize("status", [200, 304, 399])
def test_an_answer_below_400_is_no_error(status: int) -> None:
    """A command takes a redirect, or its own success, for a failure."""
    assert error_in(Answer(status, content=b'{"error": "closing"}')) is None


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b"{}", b'{"message": "x"}'])
def test_an_error_of_somebody_else_is_no_answer(content: bytes) -> None:
    """The page of a proxy passes for a master's refusal."""
    with pytest.raises(Broken) as caught:
        error_in(Answer(400, content=content))

    assert (True, "HTTP 400") == (caught.value.sent, caught.value.detail)


def test_an_error_of_the_table_arrives_as_it_is() -> None:
    """A user reads `HTTP 404` instead of what is missing and what to do."""
    wire = b'{"error": "closing", "message": "m", "hint": "h", "fields": {"what": "x"}}'
    with pytest.raises(TorrentdistError) as caught:
        result_of(Answer(503, content=wire), int)

    assert ("closing", {"what": "x"}) == (caught.value.code, dict(caught.value.fields))
    assert 7 == result_of(Answer(200, content=b"7"), int)
    with pytest.raises(Broken, match="not a master's answer"):
        result_of(Answer(200, content=b'"7"'), int)


@pytest.mark.parametrize(
    ("code", "what", "is_known"),
    [("not_found", "/v1/x", False), ("not_found", "bundle", True), ("closing", "/v1/x", True)],
)
def test_a_server_that_knows_no_such_path_is_no_master(code: str, what: str, is_known: bool) -> None:
    """A command that asks a gateway is told that there is no such bundle."""
    error = TorrentdistError(code, what=what)
    if is_known:
        assert error is expect_known(error, Request("GET", "/v1/x"))
        return
    with pytest.raises(Broken) as caught:
        expect_known(error, Request("GET", "/v1/x"))

    assert (False, "it does not know /v1/x") == (caught.value.sent, caught.value.detail.partition(":")[0])
