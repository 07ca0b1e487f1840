"""What a client of S3 asks of a bucket's list, and what the answer repeats of it."""

from __future__ import annotations

import pytest

from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.objects.bucket_listing import ObjectPage, PageRequest
from torrentdist.supervisor.objects.list_requests import MOST_KEYS, ListRequest

PAGE = ObjectPage([0, 1], [b"d/"], "d/ü".encode(), is_cut=True)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, PageRequest()),
        ({"list-type": "1", "marker": "m", "start-after": "s"}, PageRequest(after=b"m")),
        ({"list-type": "2", "marker": "m", "start-after": "s"}, PageRequest(after=b"s")),
        ({"prefix": "ü/", "delimiter": "/", "max-keys": "7"}, PageRequest("ü/".encode(), b"/", b"", 7)),
        ({"max-keys": "0"}, PageRequest(most=0)),
        ({"max-keys": "999999999"}, PageRequest(most=MOST_KEYS)),
        ({"prefix": "\udcff"}, PageRequest(prefix=b"?")),
    ],
)
def test_a_query_becomes_a_page(query: dict[str, str], expected: PageRequest) -> None:
    """A client would get other objects than it asks for, and copy half of a bundle."""
    assert expected == ListRequest.of("b", query).page


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list-type", "3"),
        ("encoding-type", "xml"),
        ("max-keys", "-1"),
        ("max-keys", "x"),
        ("max-keys", "٣"),
        ("max-keys", "1000000000"),
        ("continuation-token", ""),
        ("continuation-token", "!"),
        ("continuation-token", "ü"),
        ("continuation-token", "_w=="),
    ],
)
def test_what_is_not_understood_is_refused_by_name(name: str, text: str) -> None:
    """A client would begin at the front again, for ever, or take a part for the whole."""
    with pytest.raises(TorrentdistError, match=name) as refused:
        ListRequest.of("b", {"list-type": "2", name: text})

    assert "invalid_request" == refused.value.code


def test_the_token_of_a_page_leads_to_the_next() -> None:
    """A list of more than a thousand objects would end early, or not at all."""
    asked = ListRequest.of("b", {"list-type": "2", "start-after": "a"})
    token = str(asked.repeated(PAGE)["NextContinuationToken"])

    assert PAGE.last == ListRequest.of("b", {**asked.query, "continuation-token": token}).page.after


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, {"Marker": "", "NextMarker": "d/ü", "Prefix": "", "MaxKeys": MOST_KEYS, "EncodingType": None}),
        (
            {"marker": "ü", "prefix": "p ", "encoding-type": "url"},
            {"Marker": "%C3%BC", "NextMarker": "d/%C3%BC", "Prefix": "p%20", "EncodingType": "url"},
        ),
        ({"delimiter": ""}, {"Delimiter": None}),
        ({"delimiter": "/"}, {"Delimiter": "/", "Name": "b", "IsTruncated": True}),
        ({"list-type": "2"}, {"KeyCount": 3, "StartAfter": None, "ContinuationToken": None}),
        (
            {"list-type": "2", "start-after": "ü", "encoding-type": "url"},
            {"StartAfter": "%C3%BC", "NextContinuationToken": "ZC_DvA=="},
        ),
    ],
)
def test_an_answer_repeats_what_was_asked(query: dict[str, str], expected: dict[str, object]) -> None:
    """A client that checks the answer against its request would refuse it."""
    said = ListRequest.of("b", query).repeated(PAGE)

    assert expected == {name: said[name] for name in expected}
    assert ("NextMarker" in said) != ("KeyCount" in said)


def test_the_last_page_names_no_next_one() -> None:
    """A client would ask for ever."""
    last = ObjectPage([0], [], b"a")

    assert ListRequest.of("b", {}).repeated(last)["NextMarker"] is None
    assert ListRequest.of("b", {"list-type": "2"}).repeated(last)["NextContinuationToken"] is None
