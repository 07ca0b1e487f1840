"""Capabilities: a signed text in a URL that lets its holder read a bundle at the gateways of pods.

The masters sign it for one pattern of bundles, one path inside them, one cluster and one end. A
gateway verifies it with the public key of the masters and asks nobody.
Always: the signature is verified before the statement is parsed, and its size before both. A
capability ends by itself.
Pure: no I/O and no clock. `cryptography` is imported when it is used, because it is slow to load.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from torrentdist.model.access.envelope import KEY_BYTES
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MAX_ID_LENGTH
from torrentdist.model.wire.view import decode_json
from torrentdist.security.authorization import Principal, Proof, Role, matches_one
from torrentdist.security.signing.signatures import to_be_signed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PARAMETER: Final = "capability"
"""The query parameter that carries a capability. Paths are logged, and queries are not."""
DOMAIN: Final = "torrentdist/url/v1"
PAYLOAD_TYPE: Final = "application/vnd.torrentdist.url+json"
LONGEST_PATH: Final = 1024
LONGEST_TEXT: Final = 4096
"""A longer text is none of ours, and is refused unread."""
LONGEST_SECS: Final = 7 * 86_400.0
"""How long a capability lives at most. Records of revoked tokens are kept for longer."""
_TEXT: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{86})", re.ASCII)
_BAD_PARTS: Final = frozenset({"", ".", ".."})


class Capability(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a capability states."""

    domain: str = DOMAIN
    cluster: str
    name: str
    """The name by which it can be revoked."""
    bundles: str
    path: str
    until: int
    """Its end, by ZooKeeper's clock."""


class UrlTrust(msgspec.Struct, frozen=True):
    """What a gateway knows about capabilities."""

    cluster: str
    key: bytes
    """The public key of the masters."""
    since: float = 0.0
    """When the key replaced the one before."""
    revoked: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Names of revoked capabilities, each with its end."""


def signing_key(secret: str, salt: str) -> Ed25519PrivateKey:
    """Returns the key that all masters derive from what they alone know. Another `salt` makes
    another key, which tells nothing about this one."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    seed = hmac.new(secret.encode(), f"torrentdist url key\0{salt}".encode(), hashlib.sha256).digest()
    return Ed25519PrivateKey.from_private_bytes(seed)


def sign_capability(capability: Capability, key: Ed25519PrivateKey) -> str:
    """Returns the text of a capability. The same statement has the same text."""
    payload = msgspec.json.encode(capability, order="sorted")
    return f"{_encoded(payload)}.{_encoded(key.sign(to_be_signed(PAYLOAD_TYPE, payload)))}"


def verified_capability(text: str, trust: UrlTrust, now: float) -> Capability:
    """Returns what a text states, or raises `url_invalid`, `url_expired` or `url_revoked`. Only
    the holder of a right signature is told more than that it is invalid."""
    capability = _signed(text, trust.key)
    if capability is None or capability.domain != DOMAIN or capability.cluster != trust.cluster:
        raise TorrentdistError("url_invalid")
    if now >= capability.until:
        raise TorrentdistError("url_expired", name=capability.name)
    if capability.name in trust.revoked:
        raise TorrentdistError("url_revoked", name=capability.name)
    return capability


def _signed(text: str, key: bytes) -> Capability | None:
    """Returns the statement of a text that this key has signed; None if it has not."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    parts = _TEXT.fullmatch(text) if len(text) <= LONGEST_TEXT else None
    if parts is None or len(key) != KEY_BYTES:
        return None
    payload, signature = _decoded(parts[1]), _decoded(parts[2])
    if payload is None or signature is None:
        return None
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, to_be_signed(PAYLOAD_TYPE, payload))
        return decode_json(payload, Capability)
    except (InvalidSignature, msgspec.MsgspecError, ValueError):
        return None


def covers(capability: Capability, bundle: str, path: str | None) -> bool:
    """Whether a capability lets its holder read a file of a bundle. `path` None: all files. A path
    that leads back, or that has an empty part, is covered by no capability for a path."""
    if not matches_one((capability.bundles,), bundle):
        return False
    if not capability.path:
        return True
    if path is None or _BAD_PARTS & set(path.split("/")):
        return False
    return path == capability.path or path.startswith(f"{capability.path}/")


def checked_path(path: str) -> str:
    """Returns a path inside a bundle, or raises an error."""
    trimmed = path.removesuffix("/")
    if len(trimmed) > LONGEST_PATH or "\0" in trimmed or (path and _BAD_PARTS & set(trimmed.split("/"))):
        raise TorrentdistError("invalid_request", detail=f"{path[:100]!r} is not a path inside a bundle")
    return trimmed


def capability_principal(capability: Capability) -> Principal:
    """The sender of a request with this capability."""
    return Principal(
        capability.name, Role.READER, Proof.CAPABILITY, reads=(capability.bundles,), expires_at=float(capability.until)
    )


def newer_trust(known: UrlTrust | None, heard: UrlTrust, now: float) -> UrlTrust:
    """Returns what a gateway knows after it has heard this of a master.

    A revocation stays until its capability ends anyway, and a key that was replaced never returns:
    a master that lags behind its peers takes nothing back.
    """
    if known is None or known.cluster != heard.cluster:
        return heard
    if heard.since < known.since:
        return known
    earlier = known.revoked if known.key == heard.key else {}
    left = {name: until for name, until in {**earlier, **heard.revoked}.items() if until > now}
    return replace(heard, revoked=left)


def is_one_bundle(pattern: str) -> bool:
    """Whether a pattern matches one id only."""
    return not set("*?") & set(pattern) and len(pattern) <= MAX_ID_LENGTH


def _encoded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> bytes | None:
    """Decodes base64url without its padding; None if it is none, or not the only text of its
    bytes. Python overlooks padding that is too much."""
    try:
        raw = urlsafe_b64decode(text + "==")
    except ValueError:
        return None
    return raw if _encoded(raw) == text else None
