"""The sender of a request: a name, a role, and how both were proven.

Always: a request has exactly one principal, and authentication sets it before any handler runs.
Never: I/O. The layer that reads headers, tokens or kernel tables calls this module with what it
found.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from torrentdist.security.certificate_identity import CertificateIdentity


class Role(StrEnum):
    """The roles of the cluster. Each operation names the role that it is meant for."""

    READER = "reader"
    """May read everything but backups and snapshots."""
    UPLOADER = "uploader"
    """May also upload and distribute bundles."""
    SUBMITTER = "submitter"
    """May also submit, steer and kill jobs."""
    OPERATOR = "operator"
    """May do everything that a person may do."""
    HOST = "host"
    """A machine of the cluster: heartbeats, announces, metafiles and snapshots."""


class Proof(StrEnum):
    """How the sender of a request proved its name."""

    NONE = "none"
    TOKEN = "token"
    CONNECTION = "connection"
    """The kernel names the user at the other end of a loopback connection."""
    CERTIFICATE = "certificate"
    """TLS verified a certificate of the cluster's CA that carries the name."""


@dataclass(frozen=True)
class Principal:
    """The sender of one request."""

    name: str
    role: Role
    how: Proof
    certificate: CertificateIdentity | None = None
    """The holder of the certificate, where that is the proof."""


LOCAL = Principal("anonymous", Role.OPERATOR, Proof.NONE)
"""A program on this machine: without a token, a daemon listens on loopback only."""
STRANGER = Principal("anonymous", Role.READER, Proof.NONE)
"""The sender of a request to a path that is open to everybody."""
TOKEN_HOLDER = Principal("token", Role.OPERATOR, Proof.TOKEN)
"""The sender of the cluster's token."""


def host_user(user_id: int) -> Principal:
    """The principal of a local user whose connection the kernel has attributed to it."""
    return Principal(f"user {user_id}", Role.OPERATOR, Proof.CONNECTION)


def certificate_holder(identity: CertificateIdentity) -> Principal:
    """The principal of a verified certificate. Only the CA's owner can give one to a person, so a
    person with one is an operator.
    """
    role = Role.HOST if identity.is_host else Role.OPERATOR
    return Principal(identity.id, role, Proof.CERTIFICATE, identity)
