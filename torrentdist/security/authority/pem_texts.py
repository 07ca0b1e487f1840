"""Keys and certificates as PEM texts.

Pure: no files. Always: a key is ECDSA, as all keys that we make are.
"""

from __future__ import annotations

from torrentdist.security.authority.certificates import Key, PublicKey
from torrentdist.security.authority.lazy_cryptography import ec, serialization, x509


def key_pem(key: Key) -> bytes:
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, pkcs8, plain)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def public_key_pem(key: PublicKey) -> bytes:
    info = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.PEM, info)


def parse_certificates(pem: bytes) -> list[x509.Certificate]:
    """Reads all certificates of a PEM text. Raises ValueError."""
    return x509.load_pem_x509_certificates(pem)


def parse_certificate(pem: bytes) -> x509.Certificate:
    """Reads the first certificate of a PEM text. Raises ValueError."""
    return x509.load_pem_x509_certificate(pem)


def parse_key(pem: bytes) -> Key:
    """Reads a private key. Raises ValueError."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except TypeError as exc:
        raise ValueError("the key is encrypted") from exc
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("it is no ECDSA key")
    return key


def parse_public_key(pem: bytes) -> PublicKey:
    """Reads a public key on P-256. Raises ValueError."""
    key = serialization.load_pem_public_key(pem)
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("it is no ECDSA key on P-256")
    return key
