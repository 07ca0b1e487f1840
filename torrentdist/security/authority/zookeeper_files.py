"""ZooKeeper's part of what a host gets: the file with its identity there, which
`zookeeper.auth_file` names.

`ca init` makes the masters' password beside the CA, and every other one is derived from it.
Always: what is there stays as it is, but for the identity of an earlier host of the same id. A file
has mode 0600 from its first byte on.
"""

import secrets
from pathlib import Path
from typing import Final

from torrentdist.model.access.zookeeper_identity import (
    MASTERS,
    Credentials,
    auth_text,
    host_of,
    host_user,
    identity_of,
    parse_credentials,
)
from torrentdist.model.configuration.settings import read_secret
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole
from torrentdist.security.private_files import replace_private, write_private

AUTH: Final = "zookeeper.auth"


def make_secret(directory: Path) -> None:
    """Makes the masters' identity beside a new CA, if an interrupted run has not made it."""
    if not (directory / AUTH).exists():
        write_private(directory / AUTH, auth_text([Credentials(MASTERS, secrets.token_urlsafe(32))]).encode())


def issue_auth(directory: Path, identity: CertificateIdentity, out: Path) -> str:
    """Writes a host's identity, from the masters' one in the CA's directory. Returns its path;
    empty if there is nothing to give."""
    source, target = directory / AUTH, out / AUTH
    if not identity.is_host or not source.exists():
        return ""
    if not target.exists():
        masters = parse_credentials(read_secret(source), str(source))[:1]
        is_master = identity.role is CertificateRole.MASTER
        own = masters if is_master else identity_of(masters[0].password, host_user(identity.id))
        write_private(target, auth_text(own).encode())
    return str(target)


def takes_auth(auth_file: str, id_: str) -> bool:
    """Whether a host has a place for its identity, and nothing else than one of its id is there."""
    if not auth_file:
        return False
    return not Path(auth_file).expanduser().exists() or host_of(_own_in(auth_file).user) == id_


def keep_auth(auth_file: str, text: str) -> None:
    """Writes the identity that a host was given, in the place of that of an earlier host."""
    path, (own, *_) = Path(auth_file).expanduser(), parse_credentials(text, auth_file)
    if not path.exists():
        write_private(path, text.encode())
    elif _own_in(auth_file) != own:
        replace_private(path, text.encode())


def _own_in(auth_file: str) -> Credentials:
    return parse_credentials(read_secret(auth_file), auth_file)[0]
