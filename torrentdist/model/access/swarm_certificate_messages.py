"""What the API says about certificates of the swarm CA."""

from typing import Final

import msgspec

from torrentdist.model.ids import Digest
from torrentdist.model.wire.view import View

MOST_DIGESTS: Final = 2000
"""Most bundles that one certificate names. OpenSSL refuses certificates of more than 100 kB."""


class SwarmCertificatesBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/swarm-certificates: the public key that the certificates are for, in PEM, and the
    bundles to exchange."""

    public_key: str
    digests: tuple[Digest, ...] = ()
    """A sender that may have everything gets a certificate for everything."""


class IssuedMembership(View, frozen=True, kw_only=True):
    """A CA of the swarm, and a certificate of it. Both are PEM texts."""

    ca: str
    certificate: str


class SwarmCertificatesView(View, frozen=True, kw_only=True):
    """The sender's certificates, the CA for new downloads first. Empty: this cluster's swarm has no
    TLS."""

    memberships: list[IssuedMembership]
