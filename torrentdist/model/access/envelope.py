"""A signed statement as DSSE envelopes carry it: a payload, its type, and signatures over both.

Always: sizes and counts are bounded by `check_bounds` before anything else is done with an
envelope from outside.
Never: verify a signature; security/signing/signatures.py does.
"""

import base64
import binascii
import hashlib
import re
from typing import Final, NamedTuple

import msgspec

from torrentdist.model.errors import TorrentdistError

MAX_PAYLOAD_BYTES: Final = 128 * 1024
"""Longest payload. That of a job contains its whole specification."""
MAX_BUNDLE_PAYLOAD_BYTES: Final = 1024
MAX_SIGNATURES: Final = 16
"""Most signatures of one bundle."""
SIGNATURE_BYTES: Final = 64
KEY_BYTES: Final = 32
KEY_PREFIX: Final = "ed25519:"
_KEY_ID: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)


class EnvelopeSignature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    keyid: str
    """The id of the key, to find it quickly. It proves nothing."""
    sig: bytes


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """https://github.com/secure-systems-lab/dsse, with the keys and the encoding of its JSON."""

    payload_type: str = msgspec.field(name="payloadType")
    payload: bytes
    signatures: tuple[EnvelopeSignature, ...]

    @property
    def key_ids(self) -> list[str]:
        return [signature.keyid for signature in self.signatures]


class SigningKeyText(NamedTuple):
    """A public key as configurations name it."""

    id: str
    raw: bytes


def check_bounds(envelope: Envelope, most_bytes: int = MAX_PAYLOAD_BYTES) -> None:
    """Raises `bad_signature` for an envelope that no command of ours makes."""
    if len(envelope.payload) > most_bytes:
        raise TorrentdistError("bad_signature", what="the signed statement", detail=f"it is over {most_bytes} bytes")
    if not 1 <= len(envelope.signatures) <= MAX_SIGNATURES or len(envelope.payload_type) > 100:
        raise TorrentdistError("bad_signature", what="the envelope", detail="it has no signature, or too many")
    for signature in envelope.signatures:
        if not _KEY_ID.fullmatch(signature.keyid) or len(signature.sig) != SIGNATURE_BYTES:
            raise TorrentdistError("bad_signature", what="the envelope", detail="it holds no signature by ed25519")


def key_id(raw: bytes) -> str:
    """Returns the id of a public key: the start of its SHA-256, as 16 hex digits."""
    return hashlib.sha256(raw).hexdigest()[:16]


def public_key_text(raw: bytes) -> str:
    return KEY_PREFIX + base64.b64encode(raw).decode()


def parse_public_key_text(text: str) -> SigningKeyText:
    """Reads a key as `key generate` prints it: `ed25519:` and 32 bytes in base64. Raises
    ValueError."""
    encoded = text.strip().removeprefix(KEY_PREFIX)
    if encoded == text.strip():
        raise ValueError(f"a key begins with {KEY_PREFIX}")
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise ValueError("it is not base64") from exc
    if len(raw) != KEY_BYTES:
        raise ValueError(f"it holds {len(raw)} bytes instead of {KEY_BYTES}")
    return SigningKeyText(key_id(raw), raw)
