"""A CA, certificates and a token for a cluster on this machine, in the cluster's directory.

Always: what is there already is used again. Always: keys and the token are for their owner alone.
"""

from __future__ import annotations

import secrets
import ssl
import time
from pathlib import Path
from typing import Final

from torrentdist.security.authority_files import CA, init_authority, issue_files
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.private_files import write_private
from torrentdist.security.tls_contexts import TlsFiles, client_context

ADDRESS: Final = "127.0.0.1"
_ROLES: Final = {"master": CertificateRole.MASTER, "supervisor": CertificateRole.SUPERVISOR}

Section = dict[str, object]


class DevCertificates:
    """The CA is in `ca` of the cluster's directory, and the operator's token in `token`."""

    def __init__(self, directory: Path) -> None:
        self._ca = directory / "ca"
        self.token_file = directory / "token"
        init_authority(self._ca, "dev", time.time())
        if not self.token_file.exists():
            write_private(self.token_file, secrets.token_urlsafe(32).encode())

    def daemon_sections(self, name: str) -> dict[str, Section]:
        """Issues a daemon's certificate, and returns what its configuration says of it."""
        view = issue_files(self._ca, _ROLES[name.partition("-")[0]], name, [ADDRESS], None, time.time())
        tls: Section = {"mode": "mutual", "ca_file": view.ca_file}
        tls |= {"certificate_file": view.certificate_file, "key_file": view.key_file}
        return {"tls": tls, "api": {"token_file": str(self.token_file)}}

    def client_section(self) -> Section:
        return {"ca_file": str(self._ca / CA), "token_file": str(self.token_file)}

    def context(self) -> ssl.SSLContext:
        """Returns the context of a client of this cluster."""
        return client_context(TlsFiles(self._ca / CA, None, None))
