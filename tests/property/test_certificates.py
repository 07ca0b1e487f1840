"""Certificates for any identity and addresses contain exactly what was asked for, and are not valid
for longer."""

from __future__ import annotations

from cryptography import x509
from hypothesis import assume, given
from hypothesis import strategies as st

from torrentdist.security.authority.certificates import (
    checked_addresses,
    facts_of,
    is_issued_by,
    issue,
    new_authority,
    new_key,
)
from torrentdist.security.authority.pem_texts import certificate_pem, parse_certificate
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole

NOW = 1_800_000_000.0
AUTHORITY, OTHER = (new_authority("prod", new_key(), NOW) for _ in range(2))
KEY = new_key()
NAME = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", fullmatch=True)
HOST = st.builds(
    CertificateIdentity, st.just("prod"), st.sampled_from([CertificateRole.MASTER, CertificateRole.SUPERVISOR]), NAME
)
IP = st.ip_addresses().filter(lambda a: not (a.is_unspecified or a.is_multicast)).map(str)
DNS = st.from_regex(r"[a-z][a-z0-9]{0,20}(\.[a-z][a-z0-9]{0,20}){0,3}", fullmatch=True)


@given(identity=HOST, addresses=st.lists(IP | DNS, min_size=1, max_size=4), age=st.floats(0, 86_400 * 3_600))
def test_a_certificate_says_what_was_asked_for_and_lasts_no_longer_than_its_ca(
    identity: CertificateIdentity, addresses: list[str], age: float
) -> None:
    """A host could prove more than it was given, or for longer."""
    certificate = issue(AUTHORITY, identity, addresses, KEY.public_key(), NOW + age)
    facts = facts_of(parse_certificate(certificate_pem(certificate)))

    assert (identity, checked_addresses(addresses)) == (facts.identity, facts.addresses)
    assert facts.begins_at < facts.expires_at <= AUTHORITY.certificate.not_valid_after_utc.timestamp()
    assert facts.expires_at <= NOW + age + 30 * 86_400
    assert (True, False) == (
        is_issued_by(certificate, AUTHORITY.certificate),
        is_issued_by(certificate, OTHER.certificate),
    )


@given(moments=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)))
def test_no_certificate_is_valid_before_it_may_be(moments: tuple[int, int]) -> None:
    """A certificate made after a revocation would count as one from before it."""
    now, bound = (NOW + moment for moment in moments)
    assume(bound < now + 86_400)
    identity = CertificateIdentity("prod", CertificateRole.MASTER, "m")

    assert (
        facts_of(issue(AUTHORITY, identity, ["10.0.0.1"], KEY.public_key(), now, not_before=bound)).begins_at >= bound
    )


def test_no_program_may_pass_over_what_a_certificate_is_not_for() -> None:
    """A program that does not know these extensions would take a host's key for one that signs."""
    identity = CertificateIdentity("prod", CertificateRole.SUPERVISOR, "h")
    for certificate in (AUTHORITY.certificate, issue(AUTHORITY, identity, ["10.0.0.1"], KEY.public_key(), NOW)):
        limits = [
            certificate.extensions.get_extension_for_class(kind) for kind in (x509.BasicConstraints, x509.KeyUsage)
        ]

        assert [True, True] == [limit.critical for limit in limits]
