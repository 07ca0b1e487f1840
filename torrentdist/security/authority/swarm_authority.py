"""The CA of the swarm, which the cluster makes for itself from a key that its masters have.

libtorrent accepts a peer whose certificate is for the torrent's name or for `*`, and no outside CA
signs that.
Always: the CA's certificate is a function of the key alone, byte for byte, so that all masters with
that key issue for the same swarm, and nothing has to be agreed on or copied. The key of the swarm
CA tells nothing about the key that it is made from.
Never: name the holder in a certificate. It proves membership in the swarms of some bundles, or of
all, and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from torrentdist.model.access.swarm_certificate_messages import IssuedMembership
from torrentdist.model.access.swarm_membership import ANY_BUNDLE, SwarmMembership
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authority.certificates import SKEW, Key, PublicKey, has_key, key_usage
from torrentdist.security.authority.lazy_cryptography import ed25519, hashes, hkdf, oid, x509
from torrentdist.security.authority.pem_texts import certificate_pem, key_pem, parse_certificate, parse_key

HOST_LIFETIME: Final = timedelta(days=1)
"""A host that may not have everything any more keeps its certificate for everything that long."""
PERSON_LIFETIME: Final = timedelta(hours=1)
ALL_NAMES: Final = (ANY_BUNDLE,)
_PURPOSE: Final = b"torrentdist swarm CA 1"
_BEGIN: Final = datetime(2020, 1, 1, tzinfo=UTC)
_END: Final = datetime(2120, 1, 1, tzinfo=UTC)


class SwarmAuthority(msgspec.Struct, frozen=True):
    certificate: x509.Certificate
    key: ed25519.Ed25519PrivateKey

    @property
    def pem(self) -> str:
        return certificate_pem(self.certificate).decode()


def swarm_authority(key: Key) -> SwarmAuthority:
    """Returns the swarm CA that belongs to a CA's key. Its signatures are ed25519, which have no
    random part."""
    number = key.private_numbers().private_value
    secret = number.to_bytes(-(-key.curve.key_size // 8))
    derived = hkdf.HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=_PURPOSE).derive(secret)
    own = ed25519.Ed25519PrivateKey.from_private_bytes(derived)
    name = hashlib.sha256(own.public_key().public_bytes_raw()).hexdigest()
    subject = _name(name[:16])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(own.public_key())
        .serial_number(int(name[:30], 16) | 1)
        .not_valid_before(_BEGIN)
        .not_valid_after(_END)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
        .sign(own, None)
    )
    return SwarmAuthority(certificate, own)


def issue_membership(
    authority: SwarmAuthority, public_key: PublicKey, lifetime: timedelta, now: float, names: Sequence[str]
) -> x509.Certificate:
    """Issues a certificate of membership for this key, in the swarms of these names on the wire."""
    moment = datetime.fromtimestamp(int(now), UTC)
    purposes = [oid.ExtendedKeyUsageOID.CLIENT_AUTH, oid.ExtendedKeyUsageOID.SERVER_AUTH]
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(_name("member"))
        .issuer_name(authority.certificate.subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - SKEW)
        .not_valid_after(moment + lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(x509.DNSName, names))), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(authority.key, None)
    )


def issued_for(
    authorities: Sequence[SwarmAuthority],
    public_key: PublicKey,
    lifetime: timedelta,
    now: float,
    names: Sequence[str] = ALL_NAMES,
) -> list[IssuedMembership]:
    """Issues a certificate of each CA."""
    return [
        IssuedMembership(
            ca=authority.pem,
            certificate=certificate_pem(issue_membership(authority, public_key, lifetime, now, names)).decode(),
        )
        for authority in authorities
    ]


def memberships_of(key: Key, issued: Sequence[IssuedMembership]) -> tuple[SwarmMembership, ...]:
    """Joins what was issued with the key that it is for. Raises `certificate_refused` if it is for
    another key, or no certificate."""
    return tuple(_membership(key, each) for each in issued)


def _membership(key: Key, issued: IssuedMembership) -> SwarmMembership:
    try:
        certificate = parse_certificate(issued.certificate.encode())
        parse_certificate(issued.ca.encode())
    except ValueError as exc:
        raise TorrentdistError("certificate_refused", detail=f"a master sent no certificate: {exc}") from exc
    if not has_key(certificate, key):
        raise TorrentdistError("certificate_refused", detail="a master sent a certificate for another key")
    return SwarmMembership(
        ca=issued.ca,
        certificate=issued.certificate,
        key=key_pem(key).decode(),
        names=_names_in(certificate),
        begins_at=certificate.not_valid_before_utc.timestamp(),
        expires_at=certificate.not_valid_after_utc.timestamp(),
    )


def _names_in(certificate: x509.Certificate) -> frozenset[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(found.value.get_values_for_type(x509.DNSName))


def memberships_text(memberships: Sequence[SwarmMembership]) -> str:
    """Returns memberships with one key as the text of a file: the key, then each certificate with
    its CA."""
    return memberships[0].key + "".join(each.certificate + each.ca for each in memberships)


def parse_memberships(text: str) -> tuple[SwarmMembership, ...]:
    """Reads what `memberships_text` made. Raises ValueError."""
    key, *certificates = pem_parts(text)
    if not certificates or len(certificates) % 2:
        raise ValueError("it holds no certificates with their CAs")
    pairs = zip(certificates[::2], certificates[1::2], strict=True)
    issued = [IssuedMembership(ca=ca, certificate=certificate) for certificate, ca in pairs]
    return memberships_of(parse_key(key.encode()), issued)


def pem_parts(text: str) -> list[str]:
    """Splits a text into its PEM objects. Raises ValueError if there is none."""
    parts: list[str] = []
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("-----BEGIN "):
            lines = []
        lines.append(line)
        if line.startswith("-----END "):
            parts.append("\n".join(lines) + "\n")
    if not parts:
        raise ValueError("it holds no PEM object")
    return parts


def _name(common: str) -> x509.Name:
    organization = x509.NameAttribute(oid.NameOID.ORGANIZATION_NAME, "torrentdist swarm")
    return x509.Name([organization, x509.NameAttribute(oid.NameOID.COMMON_NAME, common)])
