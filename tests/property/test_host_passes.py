"""Passes and proofs: what one lets its holder read, and which server one stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.security.master_proof import SHORTEST_TOKEN, name_and_key, proof, proves
from torrentdist.security.passes import AT_ONCE_SECS, OUTPUT_SECS, admits, host_key, new_pass
from torrentdist.security.tokens import hash_of, token_text

pytestmark = pytest.mark.case("F4")

KEYS = st.text(min_size=1, max_size=20)
PATHS = st.text("/ab.:1", max_size=12)
NOW = 1_000_000.0


@given(KEYS, PATHS, PATHS)
def test_a_pass_admits_to_the_paths_that_begin_as_it_says(key: str, prefix: str, path: str) -> None:
    """A pass for one job's output would open that of every job."""
    assert path.startswith(prefix) == admits(key, new_pass(key, prefix, NOW, OUTPUT_SECS), path, NOW)


@given(KEYS, KEYS, PATHS)
def test_a_pass_is_of_its_key(key: str, other: str, prefix: str) -> None:
    """Anybody could make passes."""
    assert (key == other) == admits(other, new_pass(key, prefix, NOW, OUTPUT_SECS), prefix, NOW)


@given(KEYS, PATHS, st.sampled_from([AT_ONCE_SECS, OUTPUT_SECS]), st.floats(0, 2))
def test_a_pass_ends(key: str, prefix: str, secs: float, share: float) -> None:
    """One pass would let its holder read for ever."""
    given_pass, later = new_pass(key, prefix, NOW, secs), secs * share

    assert (NOW + later < int(NOW + secs)) == admits(key, given_pass, prefix, NOW + later)


@given(st.text(max_size=60), PATHS)
def test_no_other_text_is_a_pass(text: str, path: str) -> None:
    """A hostile query would open a host, or end the request with a bug."""
    assert not admits("key", text, path, NOW)
    assert not admits("", text, path, NOW)


def test_a_host_without_a_key_admits_nobody() -> None:
    """A host that has read no key yet would open itself to everybody who guesses that."""
    assert not admits("", new_pass("", "/", NOW, OUTPUT_SECS), "/", NOW)


def test_the_key_of_a_host_is_made_of_its_password_alone() -> None:
    """Masters and hosts of two releases would refuse each other's passes."""
    assert "53eb02dbd16029af17f6dabe8ef76cf58ded78be7fafd8cc17b99d9a1686a7b5" == host_key("password")
    assert host_key("password") != host_key("other")


@given(KEYS, PATHS, PATHS, KEYS, KEYS)
def test_a_proof_is_for_one_server_and_one_question(key: str, url: str, other: str, nonce: str, later: str) -> None:
    """A rogue server could pass the question on to a real master, or repeat an old answer."""
    given_proof = proof(key, nonce, url)

    assert proves(given_proof, key, nonce, url)
    assert (other == url) == proves(given_proof, key, nonce, other)
    assert (later == nonce) == proves(given_proof, key, later, url)


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (token_text("ann", "secret"), ("ann", hash_of("secret"))),
        ("x" * SHORTEST_TOKEN, ("", hash_of("x" * SHORTEST_TOKEN))),
        ("guessable", None),
        ("", None),
    ],
)
def test_only_a_token_that_nobody_can_guess_has_proofs(token: str, expected: tuple[str, str] | None) -> None:
    """A stranger could try every word of a dictionary against one proof."""
    assert expected == name_and_key(token)
