"""Which servers get a token: over HTTPS those whose certificate counts, over plain HTTP those that
we were told of, and those that prove that they know the token."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from torrentdist.http.access import Access, Trust, anonymously, to_known_masters, with_token
from torrentdist.http.http_values import Answer, ConnectError, HttpError, NotTrusted, origin_of
from torrentdist.http.token_recipients import (
    MOST_PROOF_BYTES,
    PATH,
    AnonymousRequest,
    TokenRecipients,
    origins_of,
    url_of,
)
from torrentdist.security.master_proof import name_and_key, proof

TOKEN = "t" * 32
MASTER = origin_of("http://10.0.0.7:7070")
TRUST = Trust(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


def given(url: str, token: str | None, trust: Trust | None, *, in_the_clear: bool) -> str:
    """Returns the token that a server gets, or why it gets none."""
    rule = with_token(token, lambda: trust, configured=["https://named:1", "no url"], in_the_clear=in_the_clear)
    try:
        return rule(origin_of(url)).token
    except NotTrusted as exc:
        return str(exc).partition(",")[0].partition(":")[0]


@pytest.mark.parametrize(
    ("url", "token", "trust", "in_the_clear", "expected"),
    [
        ("http://127.0.0.1:1", "t", None, False, "t"),
        ("http://10.0.0.1:1", "t", None, False, "it gets no token"),
        ("http://10.0.0.1:1", "t", None, True, "t"),
        ("http://10.0.0.1:1", None, None, False, ""),
        ("https://named:1", "t", None, False, "t"),
        ("https://named:2", "t", None, False, "it gets no token"),
        ("https://named:2", "t", None, True, "it gets no token"),
        ("https://named:2", "t", TRUST, False, "t"),
        ("https://named:2", None, None, False, ""),
    ],
)
def test_a_token_goes_to_those_who_may_have_it(
    url: str, token: str | None, trust: Trust | None, in_the_clear: bool, expected: str
) -> None:
    """Somebody on the way reads a user's token, or no command reaches its masters."""
    assert expected == given(url, token, trust, in_the_clear=in_the_clear)


def test_credentials_are_those_of_the_server() -> None:
    """A server gets another server's token, or is believed without a certificate of the cluster."""
    access = with_token("t", lambda: TRUST)(origin_of("https://m:1"))

    assert (Access("t", TRUST), {"Authorization": "Bearer t"}) == (access, access.headers())
    assert (Access(), {}) == (anonymously(MASTER), anonymously(MASTER).headers())


def test_only_a_rule_with_a_token_asks_for_proofs() -> None:
    """A master that an answer named gets the token at once, or a client without a token is
    refused."""
    rule = with_token("t", in_the_clear=True)
    narrowed = to_known_masters(rule, "t", lambda: ["http://10.0.0.7:7070"])(MASTER)

    assert anonymously is to_known_masters(anonymously, None, list)
    assert ("t", None) == (narrowed.token, narrowed.trust)
    assert narrowed.recipients is not None
    assert asyncio.run(narrowed.recipients.admit(MASTER, Server().answer))


class Server:
    """A server that proves that it knows a token, for the URL that it takes for its own."""

    def __init__(self, token: str = TOKEN, own_url: str = "http://10.0.0.7:7070", status: int = 200) -> None:
        found = name_and_key(token)
        assert found is not None
        self._key, self._own_url, self._status = found[1], own_url, status
        self.asked: list[tuple[str, str, str, int]] = []

    async def answer(self, url: str, params: dict[str, str], most_bytes: int) -> Answer:
        self.asked.append((url, params["name"], params["url"], most_bytes))
        return Answer(self._status, content=proof(self._key, params["nonce"], self._own_url).encode())


async def gone(url: str, params: dict[str, str], most_bytes: int) -> Answer:
    raise ConnectError("down")


async def broken(url: str, params: dict[str, str], most_bytes: int) -> Answer:
    raise HttpError("cut off")


async def no_text(url: str, params: dict[str, str], most_bytes: int) -> Answer:
    return Answer(200, content=b"\xff" * 64)


def test_a_proven_server_is_asked_once() -> None:
    """Each request to a master costs two, or a master that knows the token gets none."""
    server, recipients = Server(), TokenRecipients(TOKEN, list)
    admitted = [asyncio.run(recipients.admit(MASTER, server.answer)) for _ in range(2)]

    assert [True, True] == admitted
    assert [("http://10.0.0.7:7070" + PATH, "", "http://10.0.0.7:7070", MOST_PROOF_BYTES)] == server.asked


def test_each_proof_is_for_a_number_that_is_used_once() -> None:
    """A server that overheard a proof once gets the token for ever."""
    nonces: list[str] = []

    async def listen(url: str, params: dict[str, str], most_bytes: int) -> Answer:
        nonces.append(params["nonce"])
        return Answer(404)

    recipients = TokenRecipients("td.ann.secret", list)
    admitted = [asyncio.run(recipients.admit(MASTER, listen)) for _ in range(2)]

    assert [False, False] == admitted
    assert ([32, 32], 2) == ([len(nonce) for nonce in nonces], len(set(nonces)))


@pytest.mark.parametrize(
    "server",
    [Server("o" * 32), Server(own_url="http://10.0.0.8:7070"), Server(status=500), Server(status=203)],
    ids=["another token", "another URL", "an error", "another status"],
)
def test_a_server_without_the_right_proof_gets_no_token(server: Server) -> None:
    """A stranger that an answer named, or that passes the question on, gets a user's token."""
    assert not asyncio.run(TokenRecipients(TOKEN, list).admit(MASTER, server.answer))


@pytest.mark.parametrize("answer", [gone, broken, no_text])
def test_a_server_that_fails_to_answer_gets_no_token(answer: AnonymousRequest) -> None:
    """A command ends in a traceback when a master is down while it is asked for its proof."""
    assert not asyncio.run(TokenRecipients(TOKEN, list).admit(MASTER, answer))


def test_a_token_that_can_be_guessed_goes_to_known_servers_only() -> None:
    """A stranger tries guesses of a short token against what it is asked to prove."""
    server, short = Server(), TokenRecipients("t" * 31, lambda: ["not a url", "http://told:7070"])
    origins = [MASTER, origin_of("http://told:7070"), origin_of("https://other:1")]

    assert [False, True, True] == [asyncio.run(short.admit(origin, server.answer)) for origin in origins]
    assert [] == server.asked


def test_a_url_has_one_spelling() -> None:
    """A master with an IPv6 address never proves that it knows the token."""
    urls = ["HTTP://M:80/x", "https://[fd00::1]", "ftp://a", "", "http://10.0.0.7:7070"]

    assert ["http://m:80", "https://[fd00::1]:443", "http://10.0.0.7:7070"] == [url_of(o) for o in origins_of(urls)]
