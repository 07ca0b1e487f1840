"""Makes and reads X.509 certificates: the cluster's CA, and what it issues.

Always: a certificate carries exactly the identity and the addresses that the caller names, nothing
that a requester brings but its public key. A host's certificate serves both ends of a connection, a
person's only the client's.
Never: use files or clocks; the caller passes bytes and moments.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authority.lazy_cryptography import ec, exceptions, hashes, oid, serialization, x509
from torrentdist.security.certificate_identity import CertificateIdentity, identity_in

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

LIFETIME: Final = timedelta(days=30)
AUTHORITY_LIFETIME: Final = timedelta(days=3650)
SKEW: Final = timedelta(minutes=5)
"""A certificate is valid from this long before it is made, for hosts whose clocks are late."""
MOST_ADDRESSES: Final = 32
_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_LONGEST_NAME: Final = 64
"""X.509 allows no longer names. The full id stands in the URI."""

Key: TypeAlias = "ec.EllipticCurvePrivateKey"
PublicKey: TypeAlias = "ec.EllipticCurvePublicKey"


class Authority(msgspec.Struct, frozen=True):
    """A CA: its certificate and the key that signs."""

    certificate: x509.Certificate
    key: Key

    @property
    def cluster(self) -> str:
        """The name of the cluster whose hosts this CA names."""
        return cluster_of(self.certificate)


class CertificateFacts(msgspec.Struct, frozen=True):
    """What a certificate says."""

    identity: CertificateIdentity | None
    addresses: tuple[str, ...]
    serial: str
    """Hex digits, as `host ls` shows them and as Python's ssl gives them."""
    begins_at: float
    expires_at: float


def new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def new_authority(cluster: str, key: Key, now: float) -> Authority:
    """Makes a CA with this key for a cluster of this name."""
    if len(cluster) > _LONGEST_NAME or identity_in([f"torrentdist://{cluster}/master/m"]) is None:
        raise TorrentdistError("invalid_id", kind="cluster name", text=cluster[:200])
    moment = _moment(now)
    name = _name(f"CA of {cluster}"[:_LONGEST_NAME], cluster)
    usage = key_usage(signs_certificates=True)
    certificate = (
        _builder(name, name, key.public_key(), moment - SKEW, moment + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def issue(
    authority: Authority,
    identity: CertificateIdentity,
    addresses: Sequence[str],
    public_key: CertificatePublicKeyTypes,
    now: float,
    *,
    not_before: float = 0.0,
) -> x509.Certificate:
    """Issues a certificate. `not_before`: the earliest moment from which it may be valid."""
    if not isinstance(public_key, ec.EllipticCurvePublicKey) or not isinstance(public_key.curve, ec.SECP256R1):
        raise TorrentdistError("certificate_refused", detail="the key is no ECDSA key on P-256")
    moment = _moment(now)
    begins = max(moment - SKEW, _moment(not_before), authority.certificate.not_valid_before_utc)
    ends = min(moment + LIFETIME, authority.certificate.not_valid_after_utc)
    if ends <= begins:
        raise TorrentdistError("certificate_refused", detail="the CA's own certificate has expired")
    names = [x509.UniformResourceIdentifier(identity.uri), *map(_general_name, checked_addresses(addresses))]
    purposes = [oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    if identity.has_addresses:
        purposes.append(oid.ExtendedKeyUsageOID.SERVER_AUTH)
    subject = _name(identity.id[:_LONGEST_NAME], identity.cluster)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return (
        _builder(subject, authority.certificate.subject, public_key, begins, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def checked_addresses(addresses: Sequence[str]) -> tuple[str, ...]:
    """Returns the addresses in their usual spelling, sorted. Raises `invalid_address`."""
    if len(addresses) > MOST_ADDRESSES:
        raise TorrentdistError("too_large", what="the list of addresses", size=len(addresses), limit=MOST_ADDRESSES)
    return tuple(sorted({_checked_address(text) for text in addresses}))


def _checked_address(text: str) -> str:
    bare = text.removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        if len(text) <= 253 and _HOST_NAME.fullmatch(text) and not text.rpartition(".")[2].isdigit():
            return text.lower()
        raise TorrentdistError("invalid_address", text=text[:200]) from None
    if address.is_unspecified or address.is_multicast or (address.version == 6 and address.scope_id):
        raise TorrentdistError("invalid_address", text=text[:200])
    return str(address)


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def facts_of(certificate: x509.Certificate) -> CertificateFacts:
    """Returns what a certificate says."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return CertificateFacts(
        identity_in(names.get_values_for_type(x509.UniformResourceIdentifier)),
        tuple(sorted([*addresses, *names.get_values_for_type(x509.DNSName)])),
        serial_text(certificate.serial_number),
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
    )


def serial_text(number: int) -> str:
    text = f"{number:X}"
    return text if len(text) % 2 == 0 else f"0{text}"


def cluster_of(authority_certificate: x509.Certificate) -> str:
    """Returns the cluster that a CA of ours is for. Empty: it is no CA of ours."""
    names = authority_certificate.subject.get_attributes_for_oid(oid.NameOID.ORGANIZATION_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def fingerprint(certificate: x509.Certificate) -> str:
    """Returns the SHA-256 of a certificate in hex digits."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, exceptions.InvalidSignature):
        return False
    return True


def has_key(certificate: x509.Certificate, key: Key) -> bool:
    """Whether the certificate is about this key."""
    return certificate.public_key() == key.public_key()


def renewal_text(certificate: x509.Certificate) -> bytes:
    """Returns what the holder of a certificate signs to have it renewed."""
    return b"torrentdist renewal\0" + fingerprint(certificate).encode()


def sign(key: Key, text: bytes) -> str:
    """Returns a signature in base64."""
    return base64.b64encode(key.sign(text, ec.ECDSA(hashes.SHA256()))).decode()


def is_signed(text: bytes, signature: str, key: CertificatePublicKeyTypes) -> bool:
    """Whether the holder of this key has signed the text."""
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    try:
        key.verify(base64.b64decode(signature, validate=True), text, ec.ECDSA(hashes.SHA256()))
    except (ValueError, exceptions.InvalidSignature):
        return False
    return True


def key_fingerprint(key: CertificatePublicKeyTypes) -> str:
    """Returns the SHA-256 of a public key in hex digits."""
    info = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, info)).hexdigest()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PublicKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )


def _name(common: str, organization: str) -> x509.Name:
    common_name = x509.NameAttribute(oid.NameOID.COMMON_NAME, common)
    return x509.Name([x509.NameAttribute(oid.NameOID.ORGANIZATION_NAME, organization), common_name])


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Returns what the key of a CA, or of a holder, may be used for."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
