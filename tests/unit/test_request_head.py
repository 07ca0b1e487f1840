"""The bytes that begin a request, and the server that a URL names."""

from __future__ import annotations

import pytest

from torrentdist.http.http_values import (
    EXPECTS,
    WRITE_BYTES,
    Headers,
    HttpError,
    InvalidUrl,
    Origin,
    SentRequest,
    head_of,
    origin_of,
)


def head(url: str, *, method: str = "GET", content: bytes | None = None, **headers: str) -> list[str]:
    asked = SentRequest(method, url, Headers(headers), content)
    return head_of(asked, origin_of(url)).decode("latin-1").split("\r\n")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://m1", Origin("http", "m1", 80)),
        ("https://m1/x", Origin("https", "m1", 443)),
        ("http://[::1]:7070/x", Origin("http", "::1", 7070)),
        ("http://münchen.example", Origin("http", "xn--mnchen-3ya.example", 80)),
    ],
)
def test_a_url_names_a_server(url: str, expected: Origin) -> None:
    """A client would connect to another server than the user named."""
    assert expected == origin_of(url)


@pytest.mark.parametrize("url", ["m1:7070", "ftp://m1", "http://", "http://ann@m1", "http://m1:x", "http://:80"])
def test_a_url_that_names_no_server_is_refused(url: str) -> None:
    """A typing error in a configuration would look like a master that is down."""
    with pytest.raises(InvalidUrl):
        origin_of(url)


def test_a_request_begins_with_its_target_and_host() -> None:
    """No server would know what is asked, or for which of its names."""
    assert ["GET / HTTP/1.1", "host: m1", "", ""] == head("http://m1")
    assert ["GET /a%20b?c=d HTTP/1.1", "host: m1:80", "x: y", "", ""] == head("http://m1:80/a b?c=d", x="y")
    assert "host: [::1]:7070" == head("http://[::1]:7070/")[1]


@pytest.mark.parametrize(
    ("method", "content", "length"),
    [("GET", None, None), ("DELETE", None, None), ("POST", None, "0"), ("PUT", b"", "0"), ("GET", b"abc", "3")],
)
def test_a_body_says_how_long_it_is(method: str, content: bytes | None, length: str | None) -> None:
    """A server would wait for a body that never comes, or take it for the next request."""
    lines = head("http://m1/", method=method, content=content)

    assert (f"content-length: {length}" in lines) == (length is not None)
    assert ("content-length" in "".join(lines)) == (length is not None)


def test_only_a_body_of_several_writes_waits_until_it_is_asked_for() -> None:
    """Every small request would cost one more round trip, or a refused upload would be sent
    whole."""
    for more, waits in ((0, False), (1, True)):
        lines = "\r\n".join(head("http://m1/", method="PUT", content=bytes(WRITE_BYTES + more)))

        assert waits == (EXPECTS.decode() in lines)


@pytest.mark.parametrize("value", ["a\rb", "a\nb", "a\0b", "\u20ac"])
def test_a_header_that_would_end_early_is_refused(value: str) -> None:
    """A hostile name would add a header of its own to our request."""
    with pytest.raises(HttpError):
        head("http://m1/", name=value)
