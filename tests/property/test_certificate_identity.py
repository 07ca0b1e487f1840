"""The name in a certificate: it can be read back, and no other field names a holder."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.security.authorization import Proof, Role, certificate_holder
from torrentdist.security.certificate_identity import (
    CertificateIdentity,
    CertificateRole,
    identity_in,
    identity_of_peer,
)

NAME = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
IDENTITY = st.builds(CertificateIdentity, NAME, st.sampled_from(CertificateRole), NAME)


@given(identity=IDENTITY, others=st.lists(st.text(string.printable), max_size=3))
def test_a_name_is_read_back_among_foreign_uris(identity: CertificateIdentity, others: list[str]) -> None:
    """A host could not prove its own name, or further URIs of a company's CA would hide it."""
    assert identity == identity_in([*others, identity.uri])


@given(identity=IDENTITY)
def test_a_spiffe_id_names_the_same_holder(identity: CertificateIdentity) -> None:
    """A cluster whose certificates come from SPIFFE would know none of its hosts."""
    spiffe = f"spiffe://{identity.cluster}/torrentdist/{identity.role.value}/{identity.id}"

    assert identity == identity_in([spiffe])


@given(first=IDENTITY, second=IDENTITY)
def test_two_names_are_none(first: CertificateIdentity, second: CertificateIdentity) -> None:
    """A certificate with two names could count as whichever suits its holder."""
    assert identity_in([first.uri, second.uri]) == (first if first == second else None)


@given(identity=IDENTITY, junk=st.text(min_size=1, max_size=3))
def test_a_uri_with_anything_more_names_nobody(identity: CertificateIdentity, junk: str) -> None:
    """`.../host-1/../host-2` or a query would pass for a name."""
    found = [identity_in([uri]) for uri in (junk + identity.uri, f"{identity.uri}/{junk}", f"{identity.uri}?{junk}")]

    assert [None, None, None] == found


@pytest.mark.parametrize(
    "certificate",
    [None, {}, {"subjectAltName": (("DNS", "torrentdist://c/master/m"),)}, {"subjectAltName": (("URI", "x"),)}],
)
def test_only_a_uri_names_a_holder(certificate: dict[str, object] | None) -> None:
    """A DNS name that looks like our URI would make its holder a master."""
    assert identity_of_peer(certificate) is None


@given(identity=IDENTITY)
def test_a_hosts_certificate_makes_it_a_host_and_nothing_more(identity: CertificateIdentity) -> None:
    """A stolen supervisor's certificate could upload, or submit jobs."""
    principal = certificate_holder(identity)

    assert (identity.id, Proof.CERTIFICATE, identity) == (principal.name, principal.how, principal.certificate)
    roles = {CertificateRole.PERSON: Role.OPERATOR, CertificateRole.ZOOKEEPER: Role.ANYONE}
    assert principal.role is roles.get(identity.role, Role.HOST)
