"""The TLS material of a running daemon: it takes files that have changed without losing a
connection.

Always: connections that are open keep the certificate that they began with; new ones use the files
as they are now. Files that cannot be used, or that name another host, leave the old ones in force.
The certificate that a daemon shows names its own role, id and address.
Never: read a clock; the caller passes the time.
"""

import os
import ssl
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import cause_text
from torrentdist.security.authority.certificates import CertificateFacts, facts_of
from torrentdist.security.authority.pem_texts import parse_certificate
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole
from torrentdist.security.tls_contexts import TlsFiles, client_context, complaint_about, server_context

Stamp = tuple[tuple[int, int, int], ...]
LOW_SHARE: Final = 0.25
"""A certificate with less of its life left is a reason to complain."""


class TlsOwner(msgspec.Struct, frozen=True):
    """The daemon that a certificate has to name."""

    role: CertificateRole
    id: str
    address: str


class _Loaded(msgspec.Struct, frozen=True):
    server: ssl.SSLContext
    client: ssl.SSLContext
    facts: CertificateFacts
    identity: CertificateIdentity
    stamp: Stamp


class LiveTls:
    """Made at the start of a daemon, from files that must be good then."""

    def __init__(self, files: TlsFiles, owner: TlsOwner) -> None:
        self.files = files
        self.owner = owner
        self._loaded = _load(files, owner)
        self.listening = server_context(files)
        """The context of listening sockets. It hands each new connection to the newest context."""
        self.listening.sni_callback = self._hand_over

    @property
    def cluster(self) -> str:
        """The name of the cluster that our certificate is for."""
        return self._loaded.identity.cluster

    @property
    def facts(self) -> CertificateFacts:
        """What our certificate says now."""
        return self._loaded.facts

    @property
    def client(self) -> ssl.SSLContext:
        """The context of connections to other daemons."""
        return self._loaded.client

    def complaint(self, certificate: Mapping[str, Any]) -> str:
        """Says why a server is no host of our cluster; empty if it is one."""
        return complaint_about(certificate, self.cluster)

    def reload(self) -> bool:
        """Takes the files if they have changed. Returns whether they had. Raises an error if they
        cannot be used, and keeps the old ones. Blocks.
        """
        if _stamp(self.files) == self._loaded.stamp:
            return False
        self._loaded = _load(self.files, self.owner)
        return True

    def trouble(self, now: float) -> str:
        """Says what is wrong with the age of our certificate; empty if nothing is."""
        facts = self.facts
        if now >= facts.expires_at:
            return "this daemon's certificate has expired, or its clock is wrong: other daemons refuse it"
        if now < facts.begins_at:
            return "this daemon's certificate is not valid yet, or its clock is wrong"
        if ends_soon(facts.begins_at, facts.expires_at, now):
            return f"this daemon's certificate expires in {(facts.expires_at - now) / 86_400:.1f} days"
        return ""

    def _hand_over(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._loaded.server


def ends_soon(begins_at: float, expires_at: float, now: float) -> bool:
    """Whether less than a quarter of a certificate's life is left."""
    return expires_at - now < (expires_at - begins_at) * LOW_SHARE


def _load(files: TlsFiles, owner: TlsOwner) -> _Loaded:
    assert files.certificate is not None
    stamp = _stamp(files)
    server, client = server_context(files), client_context(files)
    try:
        facts = facts_of(parse_certificate(files.certificate.read_bytes()))
    except (OSError, ValueError) as exc:
        raise TorrentdistError("certificate_invalid", path=str(files.certificate), detail=cause_text(exc)) from exc
    identity = facts.identity
    if identity is None:
        detail = f"it carries no URI like torrentdist://CLUSTER/{owner.role.value}/{owner.id}"
        raise TorrentdistError("certificate_invalid", path=str(files.certificate), detail=detail)
    if (identity.role, identity.id) != (owner.role, owner.id):
        detail = f"it is that of {identity.role.value} {identity.id}, and this is {owner.role.value} {owner.id}"
        raise TorrentdistError("certificate_invalid", path=str(files.certificate), detail=detail)
    if owner.address.lower() not in facts.addresses:
        detail = (
            f"it is for {', '.join(facts.addresses) or 'no address'}, and others reach this host at {owner.address}"
        )
        raise TorrentdistError("certificate_invalid", path=str(files.certificate), detail=detail)
    return _Loaded(server, client, facts, identity, stamp)


def _stamp(files: TlsFiles) -> Stamp:
    """Returns what differs when a file has been replaced or written to."""
    found = []
    for path in files.paths():
        try:
            stat = os.stat(path)
        except OSError:  # in the middle of being replaced, or lost; reading it says which
            found.append((0, 0, 0))
            continue
        found.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return tuple(found)
