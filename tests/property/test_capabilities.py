"""Capabilities in URLs: what one opens, what it does not, and what no change of its text opens."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from property_size import examples

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MAX_ID_LENGTH
from torrentdist.security.authorization import may_read
from torrentdist.security.capabilities import (
    PAYLOAD_TYPE,
    Capability,
    UrlTrust,
    capability_principal,
    checked_path,
    covers,
    is_one_bundle,
    newer_trust,
    sign_capability,
    signing_key,
    verified_capability,
)
from torrentdist.security.signing.signatures import to_be_signed

NOW = 1_700_000_000.0
KEY = signing_key("the masters' secret", "")
TRUST = UrlTrust("c1", KEY.public_key().public_bytes_raw())
PARTS = st.text("ab.-é ", min_size=1, max_size=4)
FILES = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
MADE = Capability(cluster="c1", name="url-1", bundles="etl-*", path="data", until=int(NOW) + 60)
TEXT = sign_capability(MADE, KEY)


def refusal(text: str, trust: UrlTrust = TRUST, now: float = NOW) -> str:
    with pytest.raises(TorrentdistError) as refused:
        verified_capability(text, trust, now)
    return refused.value.code


def test_what_was_signed_is_read_back() -> None:
    """No URL would open anything."""
    assert MADE == verified_capability(TEXT, TRUST, NOW)


def test_a_text_has_one_form() -> None:
    """A revoked or logged URL could be written in another way; or the gateway would fail with a
    bug."""
    forms = [TEXT[:-1] + letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"]

    assert {"url_invalid"} == {refusal(form) for form in forms if form != TEXT}
    assert "url_invalid" == refusal(TEXT + "=")


@pytest.mark.parametrize(
    ("pattern", "expected"), [("etl-42", True), ("a" * MAX_ID_LENGTH, True), ("a" * (MAX_ID_LENGTH + 1), False),
                              ("etl-*", False), ("etl-?", False)]
)  # fmt: skip
def test_what_names_one_bundle(pattern: str, expected: bool) -> None:
    """The page of a URL would say that it opens one bundle when it opens many, or none."""
    assert expected is is_one_bundle(pattern)


@given(st.integers(0, len(TEXT) - 1), st.characters(codec="utf-8"))
@settings(max_examples=examples(300))
def test_no_other_text_of_its_length_counts(at: int, other: str) -> None:
    """The holder of a URL for one bundle could make one for another, or one that lasts longer."""
    changed = TEXT[:at] + other + TEXT[at + 1 :]
    assume(changed != TEXT)

    assert "url_invalid" == refusal(changed)


@given(
    st.one_of(st.text(max_size=400), st.binary(max_size=300).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
)
@example("")
@example(".")
@example("a" * 5000)
@example(TEXT + "=")
@example(TEXT + "." + TEXT)
@example(" " + TEXT)
@settings(max_examples=examples(300))
def test_hostile_texts_are_refused_in_the_same_words(text: str) -> None:
    """A text could stop the gateway, or its answer could tell what is wrong with it."""
    assert "url_invalid" == refusal(text)


@pytest.mark.parametrize("raw", [b"", b"null", b"{}", b"[" * 2000, b'{"domain":"x"}', b"\xff", msgspec.json.encode(1)])
def test_signed_nonsense_is_refused(raw: bytes) -> None:
    """A statement of another kind that the same key has signed would be an error of ours."""
    parts = [raw, KEY.sign(to_be_signed(PAYLOAD_TYPE, raw))]
    text = ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)

    assert "url_invalid" == refusal(text)


def test_another_cluster_another_key_and_another_kind_are_refused() -> None:
    """A URL of one cluster would open another one's bundles."""
    elsewhere = sign_capability(msgspec.structs.replace(MADE, cluster="c2"), KEY)
    another_kind = sign_capability(msgspec.structs.replace(MADE, domain="torrentdist/bundle/v1"), KEY)
    rotated = replace(TRUST, key=signing_key("the masters' secret", "salt").public_key().public_bytes_raw())

    assert ["url_invalid"] * 4 == [
        refusal(elsewhere),
        refusal(another_kind),
        refusal(TEXT, rotated),
        refusal(TEXT, replace(TRUST, key=b"")),
    ]


@given(st.integers(-(10**9), 10**9))
def test_it_counts_until_its_end_and_not_later(after: int) -> None:
    """A URL could never end."""
    now = MADE.until + after
    if after < 0:
        assert MADE == verified_capability(TEXT, TRUST, now)
    else:
        assert "url_expired" == refusal(TEXT, now=now)


def test_a_revoked_one_is_refused_by_its_name() -> None:
    """`token revoke` would change nothing."""
    assert "url_revoked" == refusal(TEXT, replace(TRUST, revoked={"url-1": NOW + 60}))


@given(FILES, FILES)
@settings(max_examples=examples(300))
def test_a_path_covers_itself_and_what_is_below(path: str, file: str) -> None:
    """A URL for one directory would open its neighbours."""
    assume(not {".", ".."} & {*path.split("/"), *file.split("/")})
    made = msgspec.structs.replace(MADE, path=path)
    parts, wanted = path.split("/"), file.split("/")

    assert (wanted[: len(parts)] == parts) == covers(made, "etl-1", file)
    assert covers(made, "etl-1", f"{path}/{file}")
    assert not covers(made, "etl-1", None)
    assert not covers(made, "etl-1", f"{path}x")
    assert not covers(made, "other", path)
    assert not any(covers(made, "etl-1", f"{path}/{back}") for back in ("../x", "./x", "..", "", "/x", "a//b"))


@given(FILES)
def test_without_a_path_all_of_its_bundles_is_covered_and_nothing_else(file: str) -> None:
    """An archive could not be read, or the bundles of another team could."""
    made = msgspec.structs.replace(MADE, path="")

    assert covers(made, "etl-1", None)
    assert covers(made, "etl-1", file)
    assert not covers(made, "web-1", None)
    assert not covers(made, "x-etl-1", file)


@given(st.sampled_from(["etl-1", "web-1", "etl-", "etl"]))
def test_the_sender_may_read_what_the_capability_names(bundle: str) -> None:
    """The gateway's own check of readers would refuse what the URL is for, or allow more."""
    assert covers(msgspec.structs.replace(MADE, path=""), bundle, None) == may_read(capability_principal(MADE), bundle)


@pytest.mark.parametrize("path", ["/", "/a", "a//b", "..", "a/../b", ".", "a/./b", "a\0", "a" * 1025])
def test_a_path_that_leads_elsewhere_is_no_path(path: str) -> None:
    """A URL could be made for what lies beside the bundle."""
    with pytest.raises(TorrentdistError):
        checked_path(path)


def test_a_directory_may_end_with_a_slash() -> None:
    """`--path data/` would be an error."""
    assert ("data", "") == (checked_path("data/"), checked_path(""))


TIMES = st.integers(0, 4).map(float)
HEARD = st.builds(
    UrlTrust,
    cluster=st.just("c1"),
    key=TIMES.map(lambda since: bytes([int(since)]) * 32),
    since=TIMES,
    revoked=st.dictionaries(st.sampled_from(["u1", "u2", "u3"]), st.integers(5, 9).map(float)),
).map(lambda trust: replace(trust, key=bytes([int(trust.since)]) * 32))


@given(st.lists(HEARD, min_size=1, max_size=6))
@settings(max_examples=examples(300))
def test_masters_that_lag_behind_take_nothing_back(heard: list[UrlTrust]) -> None:
    """A URL that was revoked would open gateways again as soon as they ask an older master."""
    known: UrlTrust | None = None
    for each in heard:
        known = newer_trust(known, each, 4.0)
    newest = max(each.since for each in heard)
    revoked = {name for each in heard if each.since == newest for name in each.revoked}

    assert known is not None
    assert (newest, revoked) == (known.since, set(known.revoked))


def test_what_has_ended_anyway_is_forgotten() -> None:
    """The list of revoked URLs would grow for ever."""
    known = replace(TRUST, revoked={"old": 1.0, "young": 9.0})

    assert {"young": 9.0} == newer_trust(known, TRUST, 5.0).revoked


def test_another_cluster_replaces_all_that_is_known() -> None:
    """A host that was moved to another cluster would refuse all of its URLs."""
    other = UrlTrust("c2", b"k" * 32)

    assert other == newer_trust(replace(TRUST, since=9.0), other, 5.0)
