"""The files of a host that joins: its key, its certificate, the CA, and on masters the CA's key.

Always: a file that is there and still good stays as it is. Never: replace a key.
"""

from pathlib import Path

from torrentdist.model.access.host_messages import CertificateView
from torrentdist.model.configuration.config import TlsConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import cause_text
from torrentdist.security.authority.certificates import fingerprint, has_key, new_key
from torrentdist.security.authority.pem_texts import (
    certificate_pem,
    key_pem,
    parse_certificate,
    parse_certificates,
    parse_key,
    public_key_pem,
)
from torrentdist.security.private_files import read_private, write_private, write_public


def key_of_host(tls: TlsConfig) -> str:
    """Makes this host's key, or reads the one that is there. Returns the public key in PEM."""
    path = _place(tls.key_file)
    try:
        if not path.exists():
            write_private(path, key_pem(new_key()))
        return public_key_pem(parse_key(read_private(path)).public_key()).decode()
    except (OSError, ValueError) as exc:
        raise TorrentdistError("certificate_invalid", path=str(path), detail=cause_text(exc)) from exc


def keep_ca(tls: TlsConfig, pem: bytes, fingerprints: str) -> None:
    """Writes those CAs that the invitation names. Raises `certificate_invalid` if none is there."""
    path = _place(tls.ca_file)
    try:
        found = [each for each in parse_certificates(pem) if fingerprint(each) in fingerprints.split(",")]
    except ValueError:
        found = []
    if not found:
        detail = "whoever answered does not have the CA that the invitation names"
        raise TorrentdistError("certificate_invalid", path=str(path), detail=detail)
    write_public(path, b"".join(map(certificate_pem, found)))


def keep_certificate(tls: TlsConfig, view: CertificateView) -> None:
    """Writes the certificate that was issued for this host's key, and the CAs."""
    path = _place(tls.certificate_file)
    pem = view.certificate.encode()
    try:
        certificate, key = parse_certificate(pem), parse_key(read_private(_place(tls.key_file)))
    except (OSError, ValueError) as exc:
        raise TorrentdistError("certificate_invalid", path=str(path), detail=cause_text(exc)) from exc
    if not has_key(certificate, key):
        raise TorrentdistError("certificate_invalid", path=str(path), detail="it is for another key than this host's")
    write_public(_place(tls.ca_file), view.ca.encode())
    write_public(path, pem)


def keep_issuing_key(tls: TlsConfig, pem: bytes) -> None:
    """Writes the CA's key on a master."""
    path = _place(tls.ca_key_file)
    try:
        parse_key(pem)
        if not path.exists():
            write_private(path, pem)
    except ValueError as exc:
        raise TorrentdistError("ca_invalid", path=str(path), detail=str(exc)) from exc


def _place(name: str) -> Path:
    path = Path(name).expanduser()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise TorrentdistError("disk_error", path=str(path), detail=cause_text(exc)) from exc
    return path
