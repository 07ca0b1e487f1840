"""The name that a certificate carries: which cluster, which role in it, which id.

It stands in the certificate as a URI: `torrentdist://<cluster>/<role>/<id>`, or as the SPIFFE id
`spiffe://<cluster>/torrentdist/<role>/<id>` where SPIFFE issues the certificates.
Always: a URI that is not exactly of this form names nobody, and neither do two different ones.
Pure: no I/O, and no cryptography. TLS has verified the certificate before this module reads it.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from torrentdist.model.ids import MAX_ID_LENGTH

_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_OURS: Final = re.compile(rf"torrentdist://({_NAME})/(master|supervisor|person|zookeeper)/({_NAME})", re.ASCII)
_SPIFFE: Final = re.compile(rf"spiffe://({_NAME})/torrentdist/(master|supervisor|person|zookeeper)/({_NAME})", re.ASCII)


class CertificateRole(StrEnum):
    """What a certificate's holder is."""

    MASTER = "master"
    SUPERVISOR = "supervisor"
    PERSON = "person"
    ZOOKEEPER = "zookeeper"
    """A server of ZooKeeper. It is nobody at our own daemons."""


class CertificateIdentity(msgspec.Struct, frozen=True):
    """The holder of a certificate."""

    cluster: str
    """The name that the cluster's CA was given."""
    role: CertificateRole
    id: str

    @property
    def uri(self) -> str:
        return f"torrentdist://{self.cluster}/{self.role.value}/{self.id}"

    @property
    def is_host(self) -> bool:
        """Whether it is a master or a supervisor."""
        return self.role in (CertificateRole.MASTER, CertificateRole.SUPERVISOR)

    @property
    def has_addresses(self) -> bool:
        """Whether it is a server, which others reach at the addresses of its certificate."""
        return self.role is not CertificateRole.PERSON


def identity_in(uris: Iterable[str]) -> CertificateIdentity | None:
    """Returns the holder that a certificate's URIs name; None if they name none, or several."""
    found = {identity for uri in uris if (identity := _parsed(uri)) is not None}
    return found.pop() if len(found) == 1 else None


def identity_of_peer(certificate: Mapping[str, Any] | None) -> CertificateIdentity | None:
    """Returns the holder of a verified certificate, in the form in which Python's ssl gives it."""
    names = (certificate or {}).get("subjectAltName", ())
    return identity_in(value for kind, value in names if kind == "URI")


def _parsed(uri: str) -> CertificateIdentity | None:
    match = _OURS.fullmatch(uri) or _SPIFFE.fullmatch(uri)
    if match is None or max(len(match[1]), len(match[3])) > MAX_ID_LENGTH:
        return None
    return CertificateIdentity(match[1], CertificateRole(match[2]), match[3])
