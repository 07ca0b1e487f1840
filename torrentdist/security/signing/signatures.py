"""Statements about bundles and jobs, their signatures by ed25519, and the verification of both.

An envelope is a DSSE envelope. Its statement contains a domain, so that a signature of one kind is
none of another, and the cluster's name, so that it is none in another cluster.
Always: the signature is verified before the payload is parsed. The payload must then be exactly the
expected statement.
Pure: no I/O and no clock. `cryptography` is imported when it is used, because it is slow to load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from torrentdist.model.access.envelope import (
    MAX_BUNDLE_PAYLOAD_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_SIGNATURES,
    Envelope,
    EnvelopeSignature,
    SigningKeyText,
    check_bounds,
    key_id,
)
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.wire.view import decode_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PAYLOAD_TYPE: Final = "application/vnd.torrentdist+json"
BUNDLE_DOMAIN: Final = "torrentdist/bundle/v1"
JOB_DOMAIN: Final = "torrentdist/job/v1"
_PAE: Final = b"DSSEv1"


class BundleStatement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    domain: str = BUNDLE_DOMAIN
    cluster: str
    id: BundleId
    digest: Digest


class SignedContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bundle that a job uses."""

    id: BundleId
    digest: Digest


class JobStatement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    domain: str = JOB_DOMAIN
    cluster: str
    id: JobId
    bundle: SignedContent
    dependencies: tuple[SignedContent, ...]
    """In the order of the specification."""
    name: str | None
    workers: int | None
    conf: dict[str, str]
    """What the submitter overrides in job.toml, as `job submit` takes it."""
    spec: JobSpec
    """The job of job.toml with these overrides, without any defaults of a cluster."""


Statement = BundleStatement | JobStatement
S = TypeVar("S", bound=Statement)
_DOMAINS: Final[Mapping[type, str]] = {BundleStatement: BUNDLE_DOMAIN, JobStatement: JOB_DOMAIN}


def canonical(statement: Statement) -> bytes:
    """Returns the only encoding of a statement: JSON with sorted keys and without spaces."""
    return msgspec.json.encode(statement, order="sorted")


def to_be_signed(payload_type: str, payload: bytes) -> bytes:
    """Returns the pre-authentication encoding of DSSE, which no other payload and type share."""
    kind = payload_type.encode()
    return b" ".join([_PAE, str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])


def sign(statement: Statement, key: Ed25519PrivateKey) -> Envelope:
    payload = canonical(statement)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise TorrentdistError(
            "too_large", what="the signed statement", size=f"{len(payload)} bytes", limit=f"{MAX_PAYLOAD_BYTES} bytes"
        )
    made = EnvelopeSignature(
        keyid=key_id(key.public_key().public_bytes_raw()), sig=key.sign(to_be_signed(PAYLOAD_TYPE, payload))
    )
    return Envelope(payload_type=PAYLOAD_TYPE, payload=payload, signatures=(made,))


def signer_of(envelope: Envelope, keys: Iterable[SigningKeyText], what: str) -> str:
    """Returns the id of a key whose signature of the payload is right. Raises `unknown_key` or
    `bad_signature`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    known = [(key, made) for made in envelope.signatures for key in keys if key.id == made.keyid]
    if not known:
        raise TorrentdistError("unknown_key", what=what, keys=", ".join(sorted(set(envelope.key_ids))))
    signed = to_be_signed(envelope.payload_type, envelope.payload)
    for key, made in known:
        try:
            Ed25519PublicKey.from_public_bytes(key.raw).verify(made.sig, signed)
        except InvalidSignature:
            continue
        return key.id
    raise TorrentdistError("bad_signature", what=what, detail=f"it was not made by {known[0][0].id} for this statement")


def parse_statement(envelope: Envelope, kind: type[S], what: str) -> S:
    """Reads the statement of an envelope without verifying it. Raises `bad_signature`."""
    check_bounds(envelope, MAX_BUNDLE_PAYLOAD_BYTES if kind is BundleStatement else MAX_PAYLOAD_BYTES)
    try:
        statement = decode_json(envelope.payload, kind)
    except msgspec.MsgspecError as exc:
        detail = f"it is no {kind.__name__}: {exc}"
        raise TorrentdistError("bad_signature", what=what, detail=detail) from exc
    if envelope.payload_type != PAYLOAD_TYPE or statement.domain != _DOMAINS[kind]:
        raise TorrentdistError("bad_signature", what=what, detail=f"it is about {statement.domain!r}")
    return statement


def verified(envelope: Envelope, kind: type[S], keys: Iterable[SigningKeyText], what: str) -> tuple[str, S]:
    """Returns the signer and the statement of an envelope that one of these keys has signed."""
    check_bounds(envelope, MAX_BUNDLE_PAYLOAD_BYTES if kind is BundleStatement else MAX_PAYLOAD_BYTES)
    signer = signer_of(envelope, keys, what)
    return signer, parse_statement(envelope, kind, what)


def check_bundle(
    envelopes: Sequence[Envelope], wanted: BundleStatement, keys: Sequence[SigningKeyText]
) -> tuple[str, ...]:
    """Returns the ids of the keys that say what is wanted. Raises the most telling error if there
    is none."""
    what = f"bundle {wanted.id!r}"
    signers: list[str] = []
    errors: list[TorrentdistError] = []
    for envelope in envelopes[:MAX_SIGNATURES]:
        try:
            signer, said = verified(envelope, BundleStatement, keys, what)
            if detail := difference(said, wanted):
                raise TorrentdistError("bad_signature", what=what, detail=detail)
            signers.append(signer)
        except TorrentdistError as error:
            errors.append(error)
    if signers:
        return tuple(dict.fromkeys(signers))
    if not errors:
        raise TorrentdistError("unsigned_bundle", id=wanted.id)
    raise min(errors, key=lambda error: error.code != "bad_signature")


def difference(said: BundleStatement, wanted: BundleStatement) -> str:
    """Says what a statement is about if it is not about this bundle; empty if it is."""
    if said.cluster != wanted.cluster:
        return f"it is for the cluster {said.cluster!r}, and this one is {wanted.cluster!r}"
    if said.id != wanted.id:
        return f"it is for the bundle {said.id!r}"
    return "" if said.digest == wanted.digest else f"it is for other content ({said.digest})"


def check_job(
    said: JobStatement, job: JobId, bundle: SignedContent, digests: Mapping[BundleId, Digest], cluster: str
) -> str:
    """Says what is wrong if a job's statement is not about this job, its bundle and these contents
    of its dependencies; empty if it is."""
    if said.cluster != cluster:
        return f"it is for the cluster {said.cluster!r}, and this one is {cluster!r}"
    if said.id != job:
        return f"it is for the job {said.id!r}"
    if said.bundle != bundle:
        return f"it is for the bundle {said.bundle.id!r} with content {said.bundle.digest}"
    if tuple(content.id for content in said.dependencies) != said.spec.dependencies:
        return "its dependencies are not those of its specification"
    other = next((content for content in said.dependencies if digests.get(content.id) != content.digest), None)
    return "" if other is None else f"it is for other content of {other.id!r} ({other.digest})"
