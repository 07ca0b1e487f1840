"""What the API says about hosts, their certificates and invitations."""

from enum import StrEnum

import msgspec

from torrentdist.model.wire.view import View


class MembershipState(StrEnum):
    LIVE = "live"
    EXPIRED = "expired"
    """Its certificate has expired. It may still renew it by itself."""
    INVITED = "invited"
    REVOKED = "revoked"


class InvitationBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /v1/invitations: what a host may become. The client makes the secret and sends its
    hash."""

    id: str
    role: str
    addresses: list[str]
    ttl_secs: float
    hash: str
    bundles: str = "*"
    """The pattern of the bundles that the host may have besides those that are assigned to it."""


class HostBundlesBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """PUT /v1/hosts/{id}/bundles: which bundles a host may have besides those that are assigned to
    it."""

    bundles: str
    """A pattern; empty: none."""


class InvitationView(View, frozen=True, kw_only=True):
    """An invitation that was made, without its secret."""

    id: str
    role: str
    addresses: list[str]
    expires_at: float
    bundles: str = "*"


class RedemptionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/invitations/{id}/redeem: the secret, and the public key in PEM."""

    secret: str
    public_key: str


class RenewalBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/hosts/{id}/renew: the old certificate in PEM, and a signature by its key."""

    certificate: str
    signature: str
    """In base64, over the text that certificates.renewal_text() makes of the old certificate."""


class PlaceBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/hosts/{id}/place: the certificate says everything."""


class PlaceView(View, frozen=True, kw_only=True):
    """A host's place in ZooKeeper, and its identity there."""

    id: str
    user: str
    auth: str
    """The content of the host's zookeeper.auth_file."""


class CertificateView(View, frozen=True, kw_only=True):
    """A certificate that was issued."""

    id: str
    serial: str
    expires_at: float
    certificate: str
    """In PEM."""
    ca: str
    """The CAs that the cluster trusts, in PEM."""


class HostView(View, frozen=True, kw_only=True):
    """`host ls`"""

    id: str
    role: str
    serial: str
    expires_at: float
    state: MembershipState
    addresses: list[str]
    bundles: str = "*"
    """The pattern of the bundles that it may have besides those that are assigned to it."""


class JoinedView(View, frozen=True, kw_only=True):
    """`host join`"""

    id: str
    role: str
    serial: str
    expires_at: float
    certificate_file: str
    key_file: str
    ca_file: str
