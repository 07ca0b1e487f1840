"""The cluster's CA as a directory, and certificates that are issued from it without a network.

    DIR/ca.pem, DIR/ca.key                     the CA; its key can make a certificate of any host
    DIR/zookeeper.auth                         the masters' identity in ZooKeeper
    OUT/ca.pem, certificate.pem, key.pem       what one host needs, as its [tls] section names it
    OUT/zookeeper.auth                         its identity in ZooKeeper, for zookeeper.auth_file

Always: a key has mode 0600 from its first byte on. A command that is run again changes nothing that
is still good, and completes what an interrupted one has begun: the certificate is the last file.
Never: overwrite a key.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from torrentdist.model.access.host_messages import JoinedView
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import cause_text
from torrentdist.security.authority.certificates import (
    Authority,
    CertificateFacts,
    Key,
    checked_addresses,
    cluster_of,
    facts_of,
    fingerprint,
    has_key,
    is_issued_by,
    issue,
    new_authority,
    new_key,
)
from torrentdist.security.authority.lazy_cryptography import x509
from torrentdist.security.authority.pem_texts import (
    certificate_pem,
    key_pem,
    parse_certificate,
    parse_certificates,
    parse_key,
)
from torrentdist.security.authority.zookeeper_files import issue_auth, make_secret
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole, identity_in
from torrentdist.security.private_files import read_private, write_private, write_public

CA: Final = "ca.pem"
CA_KEY: Final = "ca.key"
CERTIFICATE: Final = "certificate.pem"
KEY: Final = "key.pem"
HOSTS: Final = "hosts"


class AuthorityView(msgspec.Struct, frozen=True, kw_only=True):
    """`ca init`"""

    dir: str
    cluster: str
    fingerprint: str
    created: bool


class IssuedView(JoinedView, frozen=True, kw_only=True):
    """`ca issue`"""

    addresses: tuple[str, ...]
    zookeeper_auth_file: str = ""
    """Empty: the CA's directory holds no identity of the masters in ZooKeeper."""
    created: bool


def init_authority(directory: Path, cluster: str, now: float) -> AuthorityView:
    """Makes a CA in this directory, or shows the one that is there. Empty `cluster`: any name."""
    if (directory / CA).exists():
        authority = read_authority(directory)
        if cluster not in ("", authority.cluster):
            raise TorrentdistError("ca_exists", path=str(directory), cluster=authority.cluster)
        return _view(directory, authority, created=False)
    key = _key_in(directory / CA_KEY, "ca_invalid")
    if key is not None and (directory / HOSTS).exists():
        detail = f"{CA} is gone: copy it back from a host, which has it beside its certificate"
        raise TorrentdistError("ca_invalid", path=str(directory), detail=detail)
    authority = new_authority(cluster or f"cluster-{os.urandom(4).hex()}", key or new_key(), now)
    _make_directory(directory)
    if key is None:
        write_private(directory / CA_KEY, key_pem(authority.key))
    make_secret(directory)
    write_public(directory / CA, certificate_pem(authority.certificate))
    return _view(directory, authority, created=True)


def read_authority(directory: Path) -> Authority:
    """Reads a CA of ours. Raises `ca_missing`, `issuing_elsewhere` or `ca_invalid`."""
    if not (directory / CA).exists():
        raise TorrentdistError("ca_missing", path=str(directory))
    if not (directory / CA_KEY).exists():
        raise TorrentdistError("issuing_elsewhere", detail=f"{directory} holds {CA} without {CA_KEY}")
    return authority_of(directory / CA, directory / CA_KEY)


def authority_of(certificate_file: Path, key_file: Path) -> Authority:
    """Reads a CA of ours from two files. While CAs change, the first file holds several."""
    try:
        certificates = parse_certificates(certificate_file.read_bytes())
        key = parse_key(read_private(key_file))
    except (OSError, ValueError) as exc:
        raise TorrentdistError("ca_invalid", path=str(key_file), detail=cause_text(exc)) from exc
    certificate = next((each for each in certificates if has_key(each, key)), None)
    if certificate is None:
        detail = f"the key does not belong to {certificate_file}"
        raise TorrentdistError("ca_invalid", path=str(key_file), detail=detail)
    if not _is_ours(certificate):
        detail = f"{certificate_file} is a certificate that `ca init` did not make"
        raise TorrentdistError("issuing_elsewhere", detail=detail)
    return Authority(certificate, key)


def issue_files(
    directory: Path, role: CertificateRole, id_: str, addresses: Sequence[str], out: Path | None, now: float
) -> IssuedView:
    """Issues a certificate with its key into `out`, or shows the one there that has more than half
    of its life left. An older one is replaced, and keeps its key.
    """
    authority = read_authority(directory)
    identity = _identity(authority.cluster, role, id_)
    wanted = checked_addresses(addresses)
    if identity.has_addresses and not wanted:
        raise TorrentdistError("usage", detail=f"a {role.value}'s certificate names its addresses: give --address")
    if wanted and not identity.has_addresses:
        raise TorrentdistError("usage", detail="a person's certificate names no --address")
    out = out or directory / HOSTS / identity.id
    present = _present(out, identity)
    _make_directory(out)
    auth = issue_auth(directory, identity, out)
    own = _key_in(out / KEY, "certificate_invalid")
    if present is not None and is_issued_by(present, authority.certificate):
        facts = facts_of(present)
        young = facts.begins_at <= now < (facts.begins_at + facts.expires_at) / 2
        is_whole = (out / CA).exists() and own is not None and has_key(present, own)
        if young and is_whole and facts.addresses == wanted:
            return _issued(out, identity, facts, auth, created=False)
    key = own or new_key()
    certificate = issue(authority, identity, wanted, key.public_key(), now)
    if own is None:
        write_private(out / KEY, key_pem(key))
    write_public(out / CA, certificate_pem(authority.certificate))
    write_public(out / CERTIFICATE, certificate_pem(certificate))
    return _issued(out, identity, facts_of(certificate), auth, created=True)


def _identity(cluster: str, role: CertificateRole, id_: str) -> CertificateIdentity:
    identity = CertificateIdentity(cluster, role, id_)
    if identity_in([identity.uri]) != identity:
        raise TorrentdistError("invalid_id", kind="id", text=id_[:200])
    return identity


def _present(out: Path, identity: CertificateIdentity) -> x509.Certificate | None:
    """Returns this holder's certificate in `out`. Raises `certificate_exists` for another's."""
    try:
        certificate = parse_certificate((out / CERTIFICATE).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        raise TorrentdistError("certificate_invalid", path=str(out / CERTIFICATE), detail=cause_text(exc)) from exc
    found = facts_of(certificate).identity
    if found is None or (found.role, found.id) != (identity.role, identity.id):
        holder = "somebody else" if found is None else f"{found.role.value} {found.id}"
        raise TorrentdistError("certificate_exists", path=str(out / CERTIFICATE), holder=holder)
    return certificate


def _key_in(path: Path, refusal: str) -> Key | None:
    """Returns the key that is there already. Raises the error `refusal` if it cannot be used."""
    try:
        return parse_key(read_private(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        raise TorrentdistError(refusal, path=str(path), detail=cause_text(exc)) from exc


def _is_ours(certificate: x509.Certificate) -> bool:
    cluster = cluster_of(certificate)
    is_root = certificate.subject == certificate.issuer
    return is_root and identity_in([CertificateIdentity(cluster, CertificateRole.MASTER, "m").uri]) is not None


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise TorrentdistError("disk_error", path=str(directory), detail=cause_text(exc)) from exc


def _view(directory: Path, authority: Authority, *, created: bool) -> AuthorityView:
    print_ = fingerprint(authority.certificate)
    return AuthorityView(dir=str(directory), cluster=authority.cluster, fingerprint=print_, created=created)


def _issued(
    out: Path, identity: CertificateIdentity, facts: CertificateFacts, auth: str, *, created: bool
) -> IssuedView:
    return IssuedView(
        id=identity.id,
        role=identity.role.value,
        addresses=facts.addresses,
        serial=facts.serial,
        expires_at=facts.expires_at,
        ca_file=str(out / CA),
        certificate_file=str(out / CERTIFICATE),
        key_file=str(out / KEY),
        zookeeper_auth_file=auth,
        created=created,
    )
