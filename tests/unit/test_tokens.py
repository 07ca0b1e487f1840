"""Tokens as decisions: which records they write, what they refuse, and whose token a secret is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records_of import snapshot

from torrentdist.cluster.records.snapshot import ClusterSnapshot, TokenEntry
from torrentdist.cluster.session.znode_operations import Create, Delete, Set
from torrentdist.master.access.token_operations import (
    KEEP_SECS,
    MOST_TOKENS,
    creation_ops,
    new_record,
    revocation_ops,
    token_view,
)
from torrentdist.model.access.token_messages import TokenBody, TokenRecord
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import decode
from torrentdist.security.authorization import Proof, Role
from torrentdist.security.tokens import (
    hash_of,
    is_unbound,
    name_and_secret,
    new_secret,
    principal_of_token,
    reads_of,
    token_text,
)

NOW = 1_000_000.0
SECRET = new_secret()


def body(**given: Any) -> TokenBody:
    values: dict[str, Any] = {"name": "ann", "role": "uploader", "hash": hash_of(SECRET), **given}
    return TokenBody(**values)


def record(name: str = "ann", **given: Any) -> TokenRecord:
    values: dict[str, Any] = {"name": name, "role": "uploader", "hash": hash_of(SECRET), "created_at": NOW, **given}
    return TokenRecord(**values)


def with_tokens(*records: TokenRecord) -> ClusterSnapshot:
    return replace(snapshot(), tokens={token.name: TokenEntry(token, 7) for token in records})


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"name": "../x"}, "invalid_id"),
        ({"name": "token"}, "invalid_request"),
        ({"name": "anonymous"}, "invalid_request"),
        ({"role": "host"}, "invalid_request"),
        ({"role": "anyone"}, "invalid_request"),
        ({"bundles": "etl-[a]"}, "invalid_pattern"),
        ({"bundles": ""}, "invalid_pattern"),
        ({"reads": "etl-[a]"}, "invalid_pattern"),
        ({"role": "operator", "bundles": "etl-*"}, "invalid_request"),
        ({"role": "operator", "reads": "etl-*"}, "invalid_request"),
        ({"ttl_secs": 0.0}, "invalid_request"),
        ({"ttl_secs": float("nan")}, "invalid_request"),
        ({"ttl_secs": 1e12}, "invalid_request"),
        ({"hash": SECRET}, "invalid_request"),
        ({"hash": "g" * 64}, "invalid_request"),
        ({"hash": "a" * 63}, "invalid_request"),
    ],
)
def test_an_impossible_token_is_refused(given: dict[str, object], code: str) -> None:
    """A token could have the role of hosts, live for ever by mistake, or store its secret."""
    with pytest.raises(TorrentdistError) as caught:
        new_record(body(**given), "op", NOW)

    assert code == caught.value.code


def test_a_usable_token_keeps_its_name() -> None:
    """A second `token create` would end the first token without a message."""
    with pytest.raises(TorrentdistError) as caught:
        creation_ops(with_tokens(record()), record())

    assert "token_exists" == caught.value.code


@pytest.mark.parametrize("ended", [{"revoked_at": NOW - 1}, {"expires_at": NOW}])
def test_the_name_of_a_token_that_ended_is_free(ended: dict[str, Any]) -> None:
    """A team could never renew its token under the same name."""
    (op,) = creation_ops(with_tokens(record(**ended)), record())

    assert isinstance(op, Set)
    assert 7 == op.version
    assert decode(op.data, TokenRecord, path="").is_usable(NOW)


def test_there_are_not_more_tokens_than_the_limit() -> None:
    """A script that creates tokens in a loop would fill ZooKeeper and every master's memory."""
    many = with_tokens(*(record(f"t{n}") for n in range(MOST_TOKENS)))
    with pytest.raises(TorrentdistError) as caught:
        creation_ops(many, record("one-more"))

    assert "too_large" == caught.value.code


def test_tokens_that_ended_long_ago_are_forgotten() -> None:
    """Tokens of a year ago would count against the limit, and fill every list."""
    old, young = record("old", revoked_at=NOW - KEEP_SECS - 1), record("young", revoked_at=NOW - 1)
    made, forgotten = creation_ops(with_tokens(old, young), record("new"))

    assert isinstance(made, Create)
    assert Delete("/tokens/old", 7) == forgotten


def test_a_revocation_is_written_once() -> None:
    """A repeated `token revoke` would fail, or change the time of the first one."""
    (op,) = revocation_ops(with_tokens(record()), "ann", NOW)
    assert isinstance(op, Set)
    revoked = decode(op.data, TokenRecord, path="")

    assert NOW == revoked.revoked_at
    assert [] == revocation_ops(with_tokens(revoked), "ann", NOW + 1)
    with pytest.raises(TorrentdistError):
        revocation_ops(with_tokens(), "ann", NOW)


def test_a_token_proves_the_name_and_role_of_its_record() -> None:
    """A token would be refused, or give more than it was made for."""
    known = record(bundles="etl-*", expires_at=NOW + 1)
    principal = principal_of_token(token_text("ann", SECRET), lambda _: known, NOW)
    assert principal is not None

    assert ("ann", Role.UPLOADER, Proof.TOKEN, "etl-*", NOW + 1, False) == (
        principal.name,
        principal.role,
        principal.how,
        principal.bundles,
        principal.expires_at,
        principal.is_host,
    )


@pytest.mark.case("I1")
@pytest.mark.parametrize(
    ("given", "reads"),
    [
        ({"bundles": "etl-*"}, ("etl-*",)),
        ({"bundles": "etl-*", "reads": "lib-*"}, ("etl-*", "lib-*")),
        ({"bundles": "etl-*", "reads": "*"}, ("etl-*", "*")),
        ({"role": "reader", "bundles": "etl-*"}, ("etl-*",)),
        ({"role": "operator"}, ("*",)),
    ],
)
def test_a_new_token_reads_what_its_patterns_allow(given: dict[str, Any], reads: tuple[str, ...]) -> None:
    """A team's token would show the bundles of all other teams."""
    made = new_record(body(**given), "op", NOW)

    assert (reads, False) == (reads_of(made), is_unbound(made))


def test_a_pattern_for_reading_alone_is_refused_where_everything_may_be_read() -> None:
    """An operator who means to make a narrow token would give away every bundle."""
    with pytest.raises(TorrentdistError, match="--bundles"):
        new_record(body(role="reader", reads="etl-*"), "op", NOW)


def test_a_token_from_before_patterns_bound_reading_reads_everything() -> None:
    """After an upgrade, a pipeline could not find its dependencies any more, and nobody could tell
    which tokens still read everything."""
    old = record(bundles="etl-*")

    assert (("*",), True) == (reads_of(old), is_unbound(old))
    assert token_view(old, NOW).reads is None
    assert "etl-*,lib-*" == token_view(record(bundles="etl-*", reads="lib-*"), NOW).reads


@pytest.mark.parametrize(
    "text",
    ["", "td.ann.", "td..x", "ann", "td.ann", token_text("ann", "wrong"), pytest.param(SECRET, id="the secret alone")],
)
def test_anything_else_proves_nothing(text: str) -> None:
    """Half a token, or the token of somebody else, would open the cluster."""
    assert principal_of_token(text, lambda _: record(), NOW) is None


@pytest.mark.parametrize("text", ["", "td.ann.", "td..x", "td.ann", "te.ann.x", ".ann.x"])
def test_what_is_no_token_has_no_parts(text: str) -> None:
    """Any text with dots would be looked up, and hashed, as a token."""
    assert name_and_secret(text) is None


def test_a_secret_is_long_and_made_anew() -> None:
    """A stranger who guesses one secret would have them all."""
    secrets = {new_secret() for _ in range(10)}

    assert 10 == len(secrets)
    assert all(len(secret) == 43 for secret in secrets)


def test_an_unknown_name_proves_nothing() -> None:
    """The hash of nothing would open the cluster under any name."""
    assert principal_of_token(token_text("eve", ""), lambda _: None, NOW) is None
    assert principal_of_token("td.eve.", lambda _: None, NOW) is None


@pytest.mark.parametrize(
    ("ended", "code"),
    [({"revoked_at": NOW}, "token_revoked"), ({"expires_at": NOW}, "token_expired")],
)
def test_an_ended_token_says_why_it_is_refused(ended: dict[str, Any], code: str) -> None:
    """F5: a user whose token has expired would look for a typing error."""
    with pytest.raises(TorrentdistError) as caught:
        principal_of_token(token_text("ann", SECRET), lambda _: record(**ended), NOW)

    assert (code, True) == (caught.value.code, "ann" in caught.value.message)
    assert principal_of_token(token_text("ann", "guess"), lambda _: record(**ended), NOW) is None


def test_a_token_of_an_unknown_role_proves_nothing() -> None:
    """A record of a later release would give a role that nobody here has checked."""
    assert principal_of_token(token_text("ann", SECRET), lambda _: record(role="host"), NOW) is None


def test_a_name_may_hold_dots() -> None:
    """The token of `ci.nightly` would be taken for that of `ci`."""
    assert ("ci.nightly", SECRET) == name_and_secret(token_text("ci.nightly", SECRET))


@pytest.mark.parametrize(
    ("given", "unbound", "reads"),
    [
        ({"role": "uploader"}, True, ("*",)),
        ({"role": "operator"}, False, ("*",)),
        ({"role": "operator", "reads": "a-*"}, False, ("*",)),
        ({"role": "uploader", "bundles": "a-*", "reads": "b-*"}, False, ("a-*", "b-*")),
        ({"role": "uploader", "bundles": "a-*", "reads": "a-*"}, False, ("a-*",)),
        ({"role": "reader", "bundles": "a-*", "reads": ""}, False, ("a-*",)),
    ],
)
def test_a_token_reads_what_its_record_says(given: dict[str, str], unbound: bool, reads: tuple[str, ...]) -> None:
    """I1: a team's token would read the bundles of other teams, or an operator's not all."""
    assert (unbound, reads) == (is_unbound(record(**given)), reads_of(record(**given)))
