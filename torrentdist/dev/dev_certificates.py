"""A CA and certificates for a cluster on this machine, in the cluster's directory.

Always: existing files are used again. Only the owner can read keys.
"""

import ssl
import time
from pathlib import Path
from typing import Final

from torrentdist.dev.embedded_zookeeper import SecurePort
from torrentdist.security.authority.authority_files import CA, CA_KEY, init_authority, issue_files
from torrentdist.security.authority.zookeeper_files import AUTH
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.private_files import replace_private
from torrentdist.security.tls_contexts import TlsFiles, client_context

ADDRESS: Final = "127.0.0.1"
PERSON: Final = "dev"
"""The name in the certificate of commands."""
_ROLES: Final = {"master": CertificateRole.MASTER, "supervisor": CertificateRole.SUPERVISOR}

Section = dict[str, object]


class DevCertificates:
    """The CA is in `ca` of the cluster's directory."""

    def __init__(self, directory: Path) -> None:
        self._ca = directory / "ca"
        init_authority(self._ca, "dev", time.time())

    def daemon_sections(self, name: str) -> dict[str, Section]:
        """Issues a daemon's certificate, and returns the sections of its configuration for it."""
        view = issue_files(self._ca, _ROLES[name.partition("-")[0]], name, [ADDRESS], None, time.time())
        tls: Section = {"mode": "mutual", "ca_file": view.ca_file}
        tls |= {"certificate_file": view.certificate_file, "key_file": view.key_file}
        if name.startswith("master"):
            tls["ca_key_file"] = str(self._ca / CA_KEY)
        if not view.zookeeper_auth_file:  # an earlier release made this CA
            return {"tls": tls}
        zookeeper: Section = {"auth_file": view.zookeeper_auth_file, "identities": name.startswith("master")}
        return {"tls": tls, "zookeeper": zookeeper}

    def zookeeper_port(self) -> SecurePort:
        """Issues the certificate of the cluster's ZooKeeper, and returns the files of its TLS
        port."""
        view = issue_files(self._ca, CertificateRole.ZOOKEEPER, "zookeeper", [ADDRESS], None, time.time())
        keystore = Path(view.key_file).with_name("keystore.pem")
        replace_private(keystore, Path(view.key_file).read_bytes() + Path(view.certificate_file).read_bytes())
        return SecurePort(keystore, Path(view.ca_file))

    def founder_section(self) -> Section:
        """Returns the [zookeeper] settings with which the cluster is founded."""
        return {"auth_file": str(self._ca / AUTH), "identities": True} if (self._ca / AUTH).exists() else {}

    def zookeeper_section(self, name: str = PERSON) -> Section:
        """Returns the settings with which a member, or a command of this machine's user, reaches
        ZooKeeper over TLS."""
        role = _ROLES.get(name.partition("-")[0], CertificateRole.PERSON)
        addresses = [] if role is CertificateRole.PERSON else [ADDRESS]
        view = issue_files(self._ca, role, name, addresses, None, time.time())
        return {"tls_ca": view.ca_file, "tls_cert": view.certificate_file, "tls_key": view.key_file}

    def client_section(self) -> Section:
        return {"ca_file": str(self._ca / CA)}

    def context(self) -> ssl.SSLContext:
        """Returns the context of a client of this cluster."""
        return client_context(TlsFiles(self._ca / CA, None, None))
