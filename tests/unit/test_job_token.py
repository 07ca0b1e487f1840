"""The tokens of jobs, exactly as daemons of every release make them."""

from __future__ import annotations

from torrentdist.model.ids import JobId
from torrentdist.security.job_token import job_of, key_of, key_of_host, token_of_job


def test_all_releases_make_the_same_keys_and_tokens() -> None:
    """After an upgrade of half of the hosts, jobs would be refused by the others."""
    assert "5519dfddaa0b948b55f3af085e4309afe4be3df5e0047986eede201c0ece1f88" == key_of("secret").hex()
    assert "a47aca470dccfdb64028eeb4866138376b14f68477832c967e180ce32aec8ade" == key_of_host("key").hex()
    assert "job:etl:f54627bc9c3d85e56687d44df5c776e85368221ba0bff749b7c7836194ffa64e" == token_of_job(
        b"k" * 32, JobId("etl")
    )


def test_without_a_key_no_token_proves_a_job() -> None:
    """Anybody could make the tokens of a host that has no key."""
    assert b"" == key_of_host("")
    assert job_of(b"", token_of_job(b"", JobId("etl"))) is None
