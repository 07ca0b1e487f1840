"""Sessions of the console: whose they are, and when they end."""

from __future__ import annotations

from typing import Any

import pytest

from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.security.authorization import Principal, Proof, Role
from torrentdist.security.console_session import (
    LIFETIME_SECS,
    SHARED,
    form_key,
    new_session,
    principal_of_session,
    session_key,
)

KEY, NOW = b"k" * 32, 1_000_000.5
END = float(int(NOW + LIFETIME_SECS))
ANN = TokenRecord(name="ann.b", role=Role.UPLOADER, bundles="etl-*", reads="lib-*", hash="ab" * 32, created_at=1.0)
SESSION = new_session(KEY, ANN.name, ANN.hash, NOW)


def seen(session: str, now: float = NOW, key: bytes = KEY, **changes: Any) -> Principal | None:
    record = TokenRecord(**({name: getattr(ANN, name) for name in ANN.__struct_fields__} | changes))
    return principal_of_session(key, session, {record.name: record}.get, now)


def test_a_session_is_its_tokens_holder() -> None:
    """Somebody who has signed in would be somebody else, or see what the token may not."""
    expected = Principal(
        "ann.b", Role.UPLOADER, Proof.SESSION, bundles="etl-*", reads=("etl-*", "lib-*"), expires_at=END
    )

    assert expected == seen(SESSION)
    assert expected == seen(SESSION, END - 0.001)


def test_a_session_of_the_shared_token_is_an_operators() -> None:
    """An operator without a token of his own could not sign in; or hosts could be spoken for."""
    found = seen(new_session(KEY, SHARED, "", NOW))

    assert Principal("token", Role.OPERATOR, Proof.SESSION, expires_at=END) == found
    assert found is not None
    assert not found.is_host


@pytest.mark.parametrize(
    "changed",
    [
        {"now": END},
        {"key": b"other"},
        {"hash": "cd" * 32},
        {"name": "bob"},
        {"role": Role.HOST},
        {"revoked_at": NOW - 1},
        {"expires_at": NOW},
    ],
)
def test_a_session_ends_with_its_token(changed: dict[str, Any]) -> None:
    """Somebody who was shut out would go on with an old cookie."""
    assert seen(SESSION, **changed) is None


def test_what_was_no_session_is_none() -> None:
    """A stranger would be let in by a text that he made, or the page would fail with a bug."""
    until, name, code = SESSION.partition(".")[0], ANN.name, SESSION.rpartition(".")[2]
    later = f"{int(until) + 1}.{name}.{code}"
    texts = ["", ".", "..", until, f"{until}.", f"{until}.{name}", f"{until}.{name}.", later, f"-{SESSION}"]
    texts += [
        f"0{SESSION}".zfill(len(SESSION) + 9),
        f"²{until}.{name}.{code}",
        f"{until}.{name}.\udcff",
        f"{until}..{code}",
    ]

    assert [None] * len(texts) == [seen(text) for text in texts]


def test_masters_with_the_same_secrets_know_each_others_sessions() -> None:
    """A failover would sign everybody out, or a stranger's cluster would let its users in."""
    keys = [session_key(b"job", b"ca"), session_key(b"job", b""), session_key(b"", b"ca"), session_key(b"", b"")]

    assert keys[0] == keys[1] == session_key(b"job", b"other")
    assert keys[2] == session_key(b"", b"ca") != session_key(b"", b"other")
    assert 4 == len({*keys, session_key(b"", b"")})


def test_a_form_belongs_to_one_sender() -> None:
    """Another site could press a button for somebody who has signed in."""
    assert form_key(KEY, "a") == form_key(KEY, "a")
    assert 3 == len({form_key(KEY, "a"), form_key(KEY, "b"), form_key(b"other", "a")})
