"""The TLS contexts of daemons and clients, made from the files that a configuration names.

Always: TLS 1.3 inside a cluster, and certificates are verified by the cluster's CA alone. A peer
that shows a certificate shows a valid one. A file that cannot be used is an error with its name.
Never: use another library than Python's own ssl, which every command imports anyway.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from torrentdist.model.configuration.config import ClientConfig, TlsConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import cause_text
from torrentdist.security.certificate_identity import CertificateIdentity, identity_of_peer
from torrentdist.security.private_files import read_private

_NO_TLS: Final = ("HTTP_REQUEST", "WRONG_VERSION_NUMBER")
"""OpenSSL's reasons if a client does not speak TLS. Such a client would not understand an alert."""


class TlsFiles(msgspec.Struct, frozen=True):
    """The PEM files of one end of a connection. None: it has no certificate of its own."""

    ca: Path
    certificate: Path | None
    key: Path | None

    def paths(self) -> list[Path]:
        return [path for path in (self.ca, self.certificate, self.key) if path is not None]


class PeerCertificate(msgspec.Struct, frozen=True):
    """The verified certificate of the other end of a connection."""

    identity: CertificateIdentity
    serial: str
    begins_at: float
    addresses: frozenset[str] = frozenset()
    """The addresses and names at which its holder is reached."""


def files_of(config: TlsConfig | ClientConfig) -> TlsFiles | None:
    """Returns the files that a section names; None if it names no CA."""
    if not config.ca_file:
        return None
    own = bool(config.certificate_file)
    certificate, key = Path(config.certificate_file).expanduser(), Path(config.key_file).expanduser()
    return TlsFiles(Path(config.ca_file).expanduser(), certificate if own else None, key if own else None)


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Returns the context of a port that serves HTTPS. Clients may show a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, files)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.sslobject_class = _OutspokenEnd
    context.num_tickets = 0  # a resumed connection would not look at the certificate again
    return context


class _OutspokenEnd(ssl.SSLObject):
    """The server's end of a connection. If a handshake fails, asyncio closes the connection before
    it has sent TLS's alert with the reason. Here the alert is sent first, and the next call fails.
    """

    _failure: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as exc:
            if exc.reason in _NO_TLS:
                raise
            self._failure = exc
            raise ssl.SSLWantReadError from exc


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Returns the context of connections to servers of the cluster, whose names are checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load(context, files)
    return context


def unverified_context() -> ssl.SSLContext:
    """Returns the context of a connection whose other end proves nothing. For public data only,
    which is checked by its fingerprint.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(files.ca)
    except (OSError, ValueError) as exc:
        raise TorrentdistError("certificate_invalid", path=str(files.ca), detail=_why(exc)) from exc
    if files.certificate is None or files.key is None:
        return
    try:
        read_private(files.key)
    except OSError as exc:
        raise TorrentdistError("certificate_invalid", path=str(files.key), detail=_why(exc)) from exc
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ValueError) as exc:
        raise TorrentdistError("certificate_invalid", path=str(files.certificate), detail=_why(exc)) from exc


def _why(exc: OSError | ValueError) -> str:
    if not isinstance(exc, ssl.SSLError):
        return cause_text(exc)
    if exc.reason == "KEY_VALUES_MISMATCH":
        return "the key in key_file does not belong to it"
    return "it holds no PEM certificate with its key" if exc.reason is None else exc.reason.replace("_", " ").lower()


def peer_of(certificate: Mapping[str, Any] | None) -> PeerCertificate | None:
    """Returns what a verified certificate says; None if it names no holder of ours. `certificate`
    is in the form in which Python's ssl gives it.
    """
    identity = identity_of_peer(certificate)
    if certificate is None or identity is None:
        return None
    begins_at = float(ssl.cert_time_to_seconds(certificate["notBefore"]))
    names = certificate.get("subjectAltName", ())
    addresses = frozenset(value for kind, value in names if kind in ("DNS", "IP Address"))
    return PeerCertificate(identity, str(certificate["serialNumber"]), begins_at, addresses)


def complaint_about(certificate: Mapping[str, Any], cluster: str) -> str:
    """Says why a server's verified certificate is not that of one of our hosts; empty if it is.
    `cluster`: the name of ours; empty if it is not known.
    """
    identity = identity_of_peer(certificate)
    if identity is None or not identity.is_host:
        return "its certificate names no host of a torrentdist cluster"
    if cluster not in ("", identity.cluster):
        return f"its certificate is for the cluster {identity.cluster!r}, and ours is {cluster!r}"
    return ""
