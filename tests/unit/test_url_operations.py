"""URLs for pods as decisions: which records they write, whom they are for, which are revoked."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as replace_struct
from records_of import snapshot

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot, TokenEntry
from torrentdist.cluster.session.znode_operations import Create, Delete, Set
from torrentdist.master.access.token_operations import MOST_TOKENS, creation_ops, revocation_ops
from torrentdist.master.access.url_operations import (
    KEEP_SECS,
    MOST_FORGOTTEN,
    MOST_OF_ONE,
    MOST_URLS,
    WantedUrl,
    key_ops,
    revoked_urls,
    salt_for,
    url_ops,
    wanted_url,
)
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.access.url_messages import KEY_NAME, KEY_ROLE, URL_ROLE, UrlBody
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import decode
from torrentdist.security.authorization import LOCAL, Principal, Proof, Role, certificate_holder
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole

NOW = 1_000_000.0
ANN = Principal("ann", Role.READER, Proof.TOKEN, reads=("etl-*",), expires_at=NOW + 100)


def url(name: str = "url-1", **given: Any) -> TokenRecord:
    values: dict[str, Any] = {"name": name, "role": URL_ROLE, "hash": "", "created_at": NOW, "created_by": "ann"}
    return TokenRecord(**{**values, "expires_at": NOW + 60, **given})


def token(name: str = "ann", **given: Any) -> TokenRecord:
    return TokenRecord(**{"name": name, "role": "reader", "hash": "0" * 64, "created_at": NOW - 9, **given})


def with_tokens(*records: TokenRecord) -> ClusterSnapshot:
    return replace(snapshot(), tokens={record.name: TokenEntry(record, 7) for record in records})


def asked(bundles: str = "etl-1", path: str = "", ttl: float = 60.0, maker: Principal = ANN) -> WantedUrl:
    return wanted_url(UrlBody(bundles=bundles, path=path, ttl_secs=ttl), maker, "url-new", NOW)


def test_a_url_lives_no_longer_than_its_makers_token() -> None:
    """A token for a day could make a URL for a week."""
    assert NOW + 100 == asked(ttl=3600.0).record.expires_at
    assert NOW + 60 == asked().record.expires_at
    assert NOW + 3600 == asked(ttl=3600.0, maker=LOCAL).record.expires_at


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"bundles": "web-1"}, "bundle_not_found"),
        ({"bundles": "*"}, "forbidden"),
        ({"bundles": "etl-?"}, "forbidden"),
        ({"bundles": "a/b"}, "invalid_pattern"),
        ({"path": "../x"}, "invalid_request"),
        ({"ttl": 0.0}, "invalid_request"),
        ({"ttl": float("nan")}, "invalid_request"),
        ({"ttl": 8 * 86_400.0}, "invalid_request"),
    ],
)
def test_nobody_makes_a_url_of_more_than_is_its_own(given: dict[str, Any], code: str) -> None:
    """A token for one team's bundles could open those of another team to every pod."""
    with pytest.raises(TorrentdistError) as refused:
        asked(**given)

    assert code == refused.value.code


def test_a_stolen_host_makes_no_urls() -> None:
    """The certificate of one host would open every bundle of the cluster to its thief."""
    identity = CertificateIdentity("dev", CertificateRole.SUPERVISOR, "node-1")
    with pytest.raises(TorrentdistError) as refused:
        asked(maker=certificate_holder(identity))

    assert "forbidden" == refused.value.code


def test_a_pattern_of_ones_own_is_fine() -> None:
    """A pipeline's token could not make the URL that its pods need."""
    assert "etl-*" == asked("etl-*").record.bundles
    assert "w?b-*" == asked("w?b-*", maker=LOCAL).record.bundles


def test_the_record_has_no_secret_and_ended_ones_go() -> None:
    """ZooKeeper would fill up, or a backup would hold what opens gateways."""
    ended, young = url("url-old", expires_at=NOW - KEEP_SECS - 1), url("url-young", expires_at=NOW - 1)
    made, forgotten = url_ops(with_tokens(ended, young), asked())

    assert isinstance(made, Create)
    assert isinstance(forgotten, Delete)
    assert ("", None) == (
        decode(made.data, TokenRecord, path="").hash,
        decode(made.data, TokenRecord, path="").revoked_at,
    )
    assert forgotten.path.endswith("/url-old")


@pytest.mark.parametrize("count", [(MOST_OF_ONE, "ann"), (MOST_URLS, "")])
def test_the_number_of_urls_is_bounded(count: tuple[int, str]) -> None:
    """One sender could fill the records of all masters."""
    most, maker = count
    full = with_tokens(*(url(f"url-{n}", created_by=maker or f"m{n}") for n in range(most)))
    with pytest.raises(TorrentdistError) as refused:
        url_ops(full, asked())

    assert "too_many_urls" == refused.value.code
    assert f"{MOST_OF_ONE}, and a cluster {MOST_URLS:,}" in refused.value.hint


@pytest.mark.parametrize("revoked_at", [None, NOW - 5])
def test_another_key_makes_room_for_urls(revoked_at: float | None) -> None:
    """If this fails, an operator who ends all URLs after a flood of them waits for a week until
    there is room for new ones."""
    key = token(KEY_NAME, role=KEY_ROLE, created_at=NOW)
    void = [url(f"url-{n:04}", created_at=NOW - 9, revoked_at=revoked_at) for n in range(MOST_URLS)]
    made, *gone = url_ops(with_tokens(key, *void), asked())

    assert (Create, MOST_FORGOTTEN) == (type(made), len(gone))
    assert all(isinstance(op, Delete) for op in gone)


def test_a_url_belongs_to_the_key_that_is_there_when_it_is_made() -> None:
    """If this fails, a URL that a leader with a late clock made is forgotten at once, and nobody
    can revoke it."""
    key, old = token(KEY_NAME, role=KEY_ROLE, hash="salt", created_at=NOW + 5), url("url-old")
    (made, _) = url_ops(with_tokens(key, old), asked())
    assert isinstance(made, Create)
    record = decode(made.data, TokenRecord, path="")
    known = with_tokens(key, old, record)

    assert "salt" == salt_for(known, record.name)
    for name in ("url-old", "url-forgotten"):
        with pytest.raises(TorrentdistError, match="revoked"):
            salt_for(known, name)


def test_urls_that_have_ended_keep_nobody_from_making_one() -> None:
    """A maker of a thousand URLs for a second each would lock everybody out for an hour."""
    ended = [url(f"url-{n:03}", expires_at=NOW - 1 - n) for n in range(MOST_OF_ONE)]
    made, *gone = url_ops(with_tokens(*ended), asked())

    assert (Create, [Delete(paths.token(f"url-{MOST_OF_ONE - 1:03}"), 7)]) == (type(made), gone)
    assert 1 == len(url_ops(with_tokens(*ended), asked(bundles="b", maker=LOCAL)))
    with pytest.raises(TorrentdistError):
        url_ops(with_tokens(*(replace_struct(one, revoked_at=NOW - 2) for one in ended)), asked())


def test_urls_take_no_room_from_tokens() -> None:
    """A maker of URLs could keep an operator from making a token."""
    full = with_tokens(*(url(f"url-{n}") for n in range(MOST_TOKENS)))

    assert 1 == len(creation_ops(full, token("bob", created_at=NOW)))


def test_a_url_is_revoked_by_its_name_and_by_its_makers_token() -> None:
    """A URL made with a stolen token would outlive its revocation."""
    own, other, by = url("own", revoked_at=NOW), url("other", created_by="bob"), url("by")
    known = {"own": NOW + 60, "by": NOW + 60}

    assert {"own": NOW + 60} == revoked_urls(with_tokens(own, other, by).tokens)
    assert {"own": NOW + 60} == revoked_urls(with_tokens(own, other, by, token()).tokens)
    assert known == revoked_urls(with_tokens(own, other, by, token(revoked_at=NOW)).tokens)
    assert known == revoked_urls(with_tokens(own, other, by, token(created_at=NOW + 1)).tokens)


def test_the_key_is_replaced_and_is_no_token() -> None:
    """A second rotation in the same moment would look older than the first, or somebody could
    revoke the key's record like a token."""
    (first,) = key_ops(with_tokens(), "salt", "ann", NOW)
    assert isinstance(first, Create)
    record = decode(first.data, TokenRecord, path="")
    (second,) = key_ops(with_tokens(record), "other", "ann", NOW)
    assert isinstance(second, Set)

    assert decode(second.data, TokenRecord, path="").created_at > record.created_at
    with pytest.raises(TorrentdistError):
        revocation_ops(with_tokens(record), KEY_NAME, NOW)
    with pytest.raises(TorrentdistError):
        key_ops(with_tokens(token(KEY_NAME)), "salt", "ann", NOW)
