"""Verifies the tokens that a Kubernetes cluster gives to the pods of a service account, by the keys
that the cluster publishes (JWKS).

Always: the algorithm is the key's and never only the token's word. A token is for one audience, and
ends. What is not understood is refused.
Pure: no I/O and no clock.
"""

from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from torrentdist.model.wire.view import decode_json

LONGEST_TOKEN = 16 * 1024
MOST_KEYS = 64
LEAST_RSA_BITS = 2048
SKEW_SECS = 10.0
"""Most seconds by which the clock of the API server may be ahead of this one."""
_HASHES: Mapping[str, hashes.HashAlgorithm] = {
    "256": hashes.SHA256(),
    "384": hashes.SHA384(),
    "512": hashes.SHA512(),
}
_CURVES = {"P-256": (ec.SECP256R1, "256"), "P-384": (ec.SECP384R1, "384"), "P-521": (ec.SECP521R1, "512")}


class PodTokenRefused(Exception):
    """The token proves nothing. The text says why, without the token."""


class PodIdentity(msgspec.Struct, frozen=True):
    """What a verified token says of its pod."""

    namespace: str
    account: str
    pod: str
    uid: str


class PublishedKey(msgspec.Struct, frozen=True):
    """A public key of the cluster."""

    id: str
    family: str
    """The algorithms that it verifies: `RS`, or one such as `ES256`."""
    key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey


class ExpectedToken(msgspec.Struct, frozen=True):
    audience: str
    issuer: str = ""
    """Empty: any issuer whose keys these are."""


class _Jwk(msgspec.Struct, frozen=True):
    kty: str
    kid: str = ""
    use: str = "sig"
    n: str = ""
    e: str = ""
    crv: str = ""
    x: str = ""
    y: str = ""


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[_Jwk]


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str = ""


class _BoundName(msgspec.Struct, frozen=True):
    name: str
    uid: str = ""


class _Bound(msgspec.Struct, frozen=True):
    namespace: str
    pod: _BoundName
    serviceaccount: _BoundName


class _Claims(msgspec.Struct, frozen=True):
    iss: str
    aud: list[str] | str
    exp: float
    bound: _Bound = msgspec.field(name="kubernetes.io")
    nbf: float = 0.0


def parse_keys(text: bytes) -> list[PublishedKey]:
    """Returns the keys of a JWKS that verify signatures. Raises ValueError if it is none."""
    try:
        found = decode_json(text, _KeySet).keys[:MOST_KEYS]
    except msgspec.MsgspecError as exc:
        raise ValueError(f"it is no set of keys (JWKS): {exc}") from exc
    keys = [key for jwk in found if jwk.use == "sig" and (key := _key_of(jwk)) is not None]
    if not keys:
        raise ValueError("it has no RSA or EC key that verifies signatures")
    return keys


def _key_of(jwk: _Jwk) -> PublishedKey | None:
    try:
        if jwk.kty == "RSA":
            numbers = rsa.RSAPublicNumbers(_number(jwk.e), _number(jwk.n))
            key = numbers.public_key()
            return PublishedKey(jwk.kid, "RS", key) if key.key_size >= LEAST_RSA_BITS else None
        if jwk.kty == "EC" and jwk.crv in _CURVES:
            curve, bits = _CURVES[jwk.crv]
            point = ec.EllipticCurvePublicNumbers(_number(jwk.x), _number(jwk.y), curve())
            return PublishedKey(jwk.kid, f"ES{bits}", point.public_key())
    except ValueError:
        return None
    return None


def verify(token: str, keys: Sequence[PublishedKey], expected: ExpectedToken, now: float) -> PodIdentity:
    """Returns the pod that the token is bound to, or raises PodTokenRefused."""
    parts = token.split(".")
    if len(token) > LONGEST_TOKEN or len(parts) != 3 or not token.isascii():
        raise PodTokenRefused("it is no signed token")
    try:
        header = decode_json(_decoded(parts[0]), _Header)
        claims_text, signature = _decoded(parts[1]), _decoded(parts[2])
    except (msgspec.MsgspecError, ValueError) as exc:
        raise PodTokenRefused("it is not understood") from exc
    signed = f"{parts[0]}.{parts[1]}".encode()
    if not any(_has_signed(key, header.alg, signed, signature) for key in candidates(keys, header.kid)):
        raise PodTokenRefused("no key of this cluster has signed it")
    try:
        claims = decode_json(claims_text, _Claims)
    except msgspec.MsgspecError as exc:
        raise PodTokenRefused("it is not bound to a pod") from exc
    if reason := _unfit(claims, expected, now):
        raise PodTokenRefused(reason)
    bound = claims.bound
    return PodIdentity(bound.namespace, bound.serviceaccount.name, bound.pod.name, bound.pod.uid)


def candidates(keys: Sequence[PublishedKey], id_: str) -> list[PublishedKey]:
    """Returns the keys that a token may be signed with: all, if it names none."""
    return [key for key in keys if not id_ or key.id == id_]


def key_id(token: str) -> str:
    """Returns the key that a token names, unverified; empty if it names none."""
    try:
        return decode_json(_decoded(token[:LONGEST_TOKEN].partition(".")[0]), _Header).kid
    except (msgspec.MsgspecError, ValueError):
        return ""


def _unfit(claims: _Claims, expected: ExpectedToken, now: float) -> str:
    """Says why claims are not what is expected; empty if they are."""
    audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    if expected.audience not in audiences:
        return f"it is not for {expected.audience!r}"
    if expected.issuer and claims.iss != expected.issuer:
        return "another cluster has issued it"
    if not now < claims.exp:
        return "it has expired"
    return "it is not valid yet" if claims.nbf > now + SKEW_SECS else ""


def _has_signed(published: PublishedKey, algorithm: str, signed: bytes, signature: bytes) -> bool:
    family, bits = algorithm[:2], algorithm[2:]
    if bits not in _HASHES or published.family not in (family, algorithm):
        return False
    try:
        if isinstance(published.key, rsa.RSAPublicKey):
            published.key.verify(signature, signed, padding.PKCS1v15(), _HASHES[bits])
        else:
            size = (published.key.key_size + 7) // 8
            if len(signature) != 2 * size:
                return False
            r, s = int.from_bytes(signature[:size]), int.from_bytes(signature[size:])
            published.key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(_HASHES[bits]))
    except InvalidSignature:
        return False
    return True


def _number(text: str) -> int:
    return int.from_bytes(_decoded(text))


def _decoded(text: str) -> bytes:
    """Decodes base64url without its padding, or raises ValueError. Python overlooks padding that is
    too much."""
    if "=" in text or "+" in text or "/" in text:
        raise ValueError("not base64url")
    return urlsafe_b64decode(text + "==")
