"""Decisions about who may do what, exactly at their limits."""

from __future__ import annotations

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from torrentdist.model.access.envelope import (
    Envelope,
    EnvelopeSignature,
    SigningKeyText,
    parse_public_key_text,
    public_key_text,
)
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MAX_ID_LENGTH, BundleId, Digest
from torrentdist.security.authorization import STRANGER, Principal, Proof, Role, check_role
from torrentdist.security.certificate_identity import (
    CertificateIdentity,
    CertificateRole,
    identity_in,
    identity_of_peer,
)
from torrentdist.security.passes import OUTPUT_SECS, admits, new_pass
from torrentdist.security.signing.signatures import (
    BundleStatement,
    canonical,
    parse_statement,
    sign,
    signer_of,
    to_be_signed,
)


@pytest.mark.parametrize(
    ("sender", "needed", "code"),
    [
        (STRANGER, Role.READER, "unauthorized"),
        (STRANGER, Role.HOST, "unauthorized"),
        (Principal("ann", Role.OPERATOR, Proof.TOKEN), Role.HOST, "hosts_only"),
        (Principal("ann", Role.READER, Proof.TOKEN), Role.UPLOADER, "role_needed"),
        (Principal("m1", Role.HOST, Proof.CERTIFICATE), Role.UPLOADER, "role_needed"),
    ],
)
def test_each_refusal_of_a_role_has_its_error(sender: Principal, needed: Role, code: str) -> None:
    """F5: a person would be told to get a role that no person can have."""
    with pytest.raises(TorrentdistError) as caught:
        check_role(sender, needed, "POST /v1/x")

    assert code == caught.value.code


def test_a_peers_certificate_names_its_holder() -> None:
    """F4: no host could prove its name in a connection."""
    identity = CertificateIdentity("c", CertificateRole.MASTER, "m1")
    names = (("DNS", "m1"), ("URI", "https://company/x"), ("URI", identity.uri))

    assert identity == identity_of_peer({"subjectAltName": names})


@pytest.mark.parametrize(("length", "is_known"), [(MAX_ID_LENGTH, True), (MAX_ID_LENGTH + 1, False)])
def test_a_name_in_a_certificate_is_as_long_as_an_id(length: int, is_known: bool) -> None:
    """F4: a host whose id is as long as it may be could not prove it."""
    for identity in (
        CertificateIdentity("c" * length, CertificateRole.MASTER, "m"),
        CertificateIdentity("c", CertificateRole.MASTER, "m" * length),
    ):
        assert (identity if is_known else None) == identity_in([identity.uri])


@pytest.mark.parametrize(
    ("role", "is_host", "has_addresses"),
    [
        (CertificateRole.MASTER, True, True),
        (CertificateRole.SUPERVISOR, True, True),
        (CertificateRole.PERSON, False, False),
        (CertificateRole.ZOOKEEPER, False, True),
    ],
)
def test_what_a_certificates_holder_is(role: CertificateRole, is_host: bool, has_addresses: bool) -> None:
    """F4: a person's certificate would do for a host, or a server's be made without addresses."""
    identity = CertificateIdentity("c", role, "x")

    assert (is_host, has_addresses) == (identity.is_host, identity.has_addresses)


def test_a_pass_ends_with_its_last_second() -> None:
    """F4: a pass would admit for longer than it says."""
    given = new_pass("key", "/a", 1000.0, OUTPUT_SECS)

    assert [True, False] == [admits("key", given, "/a", 1000.0 + OUTPUT_SECS - early) for early in (0.01, 0.0)]
    assert given.startswith(f"{int(1000 + OUTPUT_SECS)}.")


@pytest.mark.parametrize("digits", [12, 13])
def test_a_pass_of_the_far_future_is_none(digits: int) -> None:
    """F4: a time of a million digits would keep a gateway busy."""
    given = new_pass("key", "/a", float("9" * digits) - OUTPUT_SECS, OUTPUT_SECS)

    assert (digits == 12) == admits("key", given, "/a", 1000.0)


KEY = Ed25519PrivateKey.generate()
PUBLIC: SigningKeyText = parse_public_key_text(public_key_text(KEY.public_key().public_bytes_raw()))
SAID = BundleStatement(cluster="c", id=BundleId("b"), digest=Digest("d" * 64))


def resigned(payload_type: str, payload: bytes) -> Envelope:
    made = EnvelopeSignature(keyid=PUBLIC.id, sig=KEY.sign(to_be_signed(payload_type, payload)))
    return Envelope(payload_type=payload_type, payload=payload, signatures=(made,))


def test_a_payload_of_another_type_is_no_statement() -> None:
    """F12: what was signed for another program would count as a signature of a bundle."""
    good = sign(SAID, KEY)
    other = resigned("text/plain", good.payload)
    domain = resigned(good.payload_type, canonical(msgspec.structs.replace(SAID, domain="other")))

    assert SAID == parse_statement(good, BundleStatement, "x")
    for envelope in (other, domain):
        assert PUBLIC.id == signer_of(envelope, [PUBLIC], "x")
        with pytest.raises(TorrentdistError) as caught:
            parse_statement(envelope, BundleStatement, "x")
        assert "bad_signature" == caught.value.code


def test_one_right_signature_among_wrong_ones_is_enough() -> None:
    """F12: a signature that a stranger adds would make a bundle unusable."""
    good = sign(SAID, KEY)
    wrong = EnvelopeSignature(keyid=PUBLIC.id, sig=bytes(64))
    unknown = EnvelopeSignature(keyid="x" * 64, sig=bytes(64))
    both = msgspec.structs.replace(good, signatures=(unknown, wrong, *good.signatures))

    assert PUBLIC.id == signer_of(both, [PUBLIC], "x")
    for signatures, code in (((unknown,), "unknown_key"), ((wrong, unknown), "bad_signature")):
        with pytest.raises(TorrentdistError) as caught:
            signer_of(msgspec.structs.replace(good, signatures=signatures), [PUBLIC], "x")
        assert code == caught.value.code
