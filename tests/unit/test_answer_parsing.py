"""What an HTTP client makes of the head and the body of an answer."""

from __future__ import annotations

import gzip

import pytest

from torrentdist.http.answer_parsing import chunk_size, expect_room, length_in, read_head, unpacked
from torrentdist.http.http_values import AnswerTooLarge, Headers, HttpError

END = b"\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "status", "lasting"),
    [
        (b"HTTP/1.1 200 OK", 200, True),
        (b"HTTP/1.1 599", 599, True),
        (b"HTTP/1.1 100 Continue", 100, True),
        (b"HTTP/1.0 200 OK", 200, False),
        (b"HTTP/1.1 204 No Content\r\nConnection: Close", 204, False),
        (b"HTTP/1.1 200 \r\nconnection: keep-alive", 200, True),
    ],
)
def test_a_head_says_how_a_connection_goes_on(head: bytes, status: int, lasting: bool) -> None:
    """A client sends its next request over a connection that its server ends, or makes a new one
    for each."""
    found = read_head(head + END)

    assert (status, lasting) == (found.status, found.lasting)


def test_a_header_is_found_by_its_name() -> None:
    """A client overlooks what a server says in other letters, in more than one line, or after
    spaces."""
    found = read_head(b"HTTP/1.1 200 OK\r\nX-Age:  3 \r\nVary: a\r\nVARY: b\r\nEmpty:\r\nTime: 1:2" + END)

    assert {"x-age": "3", "vary": "a, b", "empty": "", "time": "1:2"} == dict(found.headers)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 600 No",
        b"HTTP/1.1 099 No",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/2.0 200 OK",
        b"xHTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\nno colon",
        b"HTTP/1.1 200 OK\r\n: no name",
        b"HTTP/1.1 200 OK\r\nname : value",
        b"HTTP/1.1 200 OK\r\n folded: value",
    ],
)
def test_what_is_no_head_is_refused(head: bytes) -> None:
    """A client takes the bytes of another protocol, or of somebody who injects headers, for an
    answer."""
    with pytest.raises(HttpError):
        read_head(head + END)


@pytest.mark.parametrize(("text", "length"), [(None, None), ("0", 0), ("12", 12), ("9" * 15, 10**15 - 1)])
def test_a_length_is_read(text: str | None, length: int | None) -> None:
    """A client waits for bytes that never come, or takes a part of an answer for the whole."""
    assert length == length_in(Headers({} if text is None else {"Content-Length": text}))


@pytest.mark.parametrize("text", ["", "-1", "+1", "1 ", "1, 1", "1" * 16, "0x10", "\u0661"])
def test_a_length_that_is_none_is_refused(text: str) -> None:
    """Two readers of one answer find different ends, so a stranger's bytes pass for the next
    one."""
    with pytest.raises(HttpError):
        length_in(Headers({"content-length": text}))


@pytest.mark.parametrize(
    ("line", "size"), [(b"0\r\n", 0), (b"1a\r\n", 26), (b"1A ;name=value\r\n", 26), (b"f" * 15, 16**15 - 1)]
)
def test_the_size_of_a_chunk_is_read(line: bytes, size: int) -> None:
    """A client takes a part of an answer in chunks for the whole."""
    assert size == chunk_size(line)


@pytest.mark.parametrize("line", [b"\r\n", b";x\r\n", b"-1\r\n", b"0x1\r\n", b"f" * 16, b"1 1\r\n"])
def test_a_chunk_without_a_size_is_refused(line: bytes) -> None:
    """A damaged answer keeps a client reading for ever."""
    with pytest.raises(HttpError):
        chunk_size(line)


def test_a_body_may_be_as_large_as_its_limit() -> None:
    """The largest metafile is refused, or one that is larger fills the memory of a daemon."""
    expect_room(10, 10)

    with pytest.raises(AnswerTooLarge):
        expect_room(11, 10)


@pytest.mark.parametrize("coding", ["gzip", "GZIP"])
def test_a_packed_body_is_as_it_was(coding: str) -> None:
    """A packed answer is refused, or one that is small when packed fills the memory."""
    packed, headers = gzip.compress(b"x" * 1000), Headers({"Content-Encoding": coding})

    assert b"x" * 1000 == unpacked(packed, headers, 1000)
    with pytest.raises(AnswerTooLarge):
        unpacked(packed, headers, 999)


def test_a_body_that_is_not_packed_stays() -> None:
    """An answer that says that it is not packed, or that has no body, is refused."""
    plain = [unpacked(b"x", Headers({}), 0), unpacked(b"x", Headers({"content-encoding": "Identity"}), 0)]

    assert [b"x", b"x"] == plain
    assert b"" == unpacked(b"", Headers({"content-encoding": "gzip"}), 0)


@pytest.mark.parametrize(
    ("content", "coding", "said"),
    [
        (gzip.compress(b"x" * 100)[:-1], "gzip", "cut off"),
        (b"plain", "gzip", "cannot be unpacked"),
        (b"x", "br", "unknown content encoding br"),
    ],
    ids=["cut off", "not packed", "packed otherwise"],
)
def test_a_body_that_cannot_be_unpacked_says_so(content: bytes, coding: str, said: str) -> None:
    """A client takes the first half of a packed list for all of it."""
    with pytest.raises(HttpError, match=said):
        unpacked(content, Headers({"content-encoding": coding}), 1000)
