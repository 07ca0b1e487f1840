"""The keys of a Kubernetes cluster: its CA, and what proves to the API server who somebody is.

Always: a user's groups are the organizations of the certificate, as Kubernetes reads it.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """Files of a certificate and its key."""

    certificate: Path
    key: Path
    ca: Path


class ClusterKeys:
    def __init__(self, directory: Path, server: str) -> None:
        """`server`: the URL of the API server."""
        directory.mkdir()
        self._dir = directory
        self._server = server
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("kubernetes", [])
        self.ca = directory / "ca.pem"
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=True, path_length=None), True),
            (usage, True),
        ]
        self.ca.write_bytes(self._signed(self._name, self._key.public_key(), extensions))
        self.accounts_key = directory / "accounts.key"
        self.accounts_public = directory / "accounts.pub"
        accounts = ec.generate_private_key(ec.SECP256R1())
        self.accounts_key.write_bytes(_pem(accounts))
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        self.accounts_public.write_bytes(accounts.public_key().public_bytes(serialization.Encoding.PEM, form))

    def issue(self, name: str, groups: Sequence[str] = (), addresses: Sequence[str] = ()) -> Identity:
        """Makes a certificate for a client, and for a server at `addresses`."""
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if addresses else [])]
        extensions: list[tuple[x509.ExtensionType, bool]] = [(x509.ExtendedKeyUsage(purposes), False)]
        if addresses:
            extensions.append((x509.SubjectAlternativeName([_address(one) for one in addresses]), False))
        base = name.replace(":", "-")
        made = Identity(self._dir / f"{base}.pem", self._dir / f"{base}.key", self.ca)
        made.certificate.write_bytes(self._signed(_name(name, groups), key.public_key(), extensions))
        made.key.write_bytes(_pem(key))
        return made

    def kubeconfig(self, name: str, groups: Sequence[str] = ()) -> Path:
        """Makes a certificate for a client, and the file by which Kubernetes' programs use it."""
        identity = self.issue(name, groups)
        user = {"client-certificate": str(identity.certificate), "client-key": str(identity.key)}
        path = self._dir / f"{name.replace(':', '-')}.kubeconfig"
        cluster = {"server": self._server, "certificate-authority": str(self.ca)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name}}],
            "current-context": "lab",
        }
        path.write_text(json.dumps(content))
        return path

    def _signed(
        self,
        subject: x509.Name,
        public: ec.EllipticCurvePublicKey,
        extensions: Sequence[tuple[x509.ExtensionType, bool]],
    ) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(public)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - DAY).not_valid_after(now + DAY)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _name(name: str, groups: Sequence[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _address(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())
