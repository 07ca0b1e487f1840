"""Private keys for signatures, as files: made once, readable by their owner only.

Always: FILE holds the key as PKCS #8 and has mode 0600 from its first byte on; FILE.pub holds the
public key as configurations name it. Never: overwrite a file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torrentdist.model.access.envelope import Envelope, SigningKeyText, key_id, public_key_text
from torrentdist.model.configuration.config import TrustConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wording import cause_text
from torrentdist.security.private_files import read_private, write_private, write_public
from torrentdist.security.signing.signatures import BundleStatement, JobStatement, sign

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class NewKeyView(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `key generate`."""

    id: str
    key_file: str
    public_key_file: str
    public_key: str


class Signer(msgspec.Struct, frozen=True):
    """A private key, for statements about one cluster."""

    key: Ed25519PrivateKey
    cluster: str

    @property
    def public(self) -> SigningKeyText:
        raw = self.key.public_key().public_bytes_raw()
        return SigningKeyText(key_id(raw), raw)

    def bundle(self, bundle: BundleId, digest: Digest) -> Envelope:
        return sign(BundleStatement(cluster=self.cluster, id=bundle, digest=digest), self.key)

    def job(self, statement: JobStatement) -> Envelope:
        return sign(statement, self.key)


def generate_key(path: Path) -> NewKeyView:
    """Makes a key and writes FILE and FILE.pub. Raises `key_exists` if either exists."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public_path = path.with_name(f"{path.name}.pub")
    if os.path.lexists(public_path):
        raise TorrentdistError("key_exists", path=str(public_path))
    key = Ed25519PrivateKey.generate()
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    try:
        write_private(path, key.private_bytes(serialization.Encoding.PEM, pkcs8, plain))
    except TorrentdistError as error:
        if isinstance(error.__cause__, FileExistsError):
            raise TorrentdistError("key_exists", path=str(path)) from error
        raise
    raw = key.public_key().public_bytes_raw()
    write_public(public_path, f"{public_key_text(raw)}\n".encode())
    return NewKeyView(
        id=key_id(raw), key_file=str(path), public_key_file=str(public_path), public_key=public_key_text(raw)
    )


def read_signer(path: Path, trust: TrustConfig) -> Signer:
    """Reads a private key. Raises `signing_cluster_missing`, `secret_invalid` or `key_invalid`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if not trust.cluster:
        raise TorrentdistError("signing_cluster_missing")
    try:
        key = load_pem_private_key(read_private(path), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as exc:
        detail = cause_text(exc) if isinstance(exc, OSError) else "it is no private key, or it is encrypted"
        raise TorrentdistError("key_invalid", path=str(path), detail=detail) from exc
    if not isinstance(key, Ed25519PrivateKey):
        raise TorrentdistError("key_invalid", path=str(path), detail="it is no ed25519 key")
    return Signer(key, trust.cluster)
