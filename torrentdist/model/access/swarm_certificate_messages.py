"""What the API says about certificates of the swarm CA."""

import msgspec

from torrentdist.model.wire.view import View


class SwarmCertificatesBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/swarm-certificates: the public key that the certificates are for, in PEM."""

    public_key: str


class IssuedMembership(View, frozen=True, kw_only=True):
    """A CA of the swarm, and a certificate of it. Both are PEM texts."""

    ca: str
    certificate: str


class SwarmCertificatesView(View, frozen=True, kw_only=True):
    """The sender's certificates, the CA for new downloads first. Empty: this cluster's swarm has no
    TLS."""

    memberships: list[IssuedMembership]
