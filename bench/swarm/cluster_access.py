"""How the lab's cluster is reached: plain HTTP with a token in the clear, or mutual TLS.

Always: certificates come from the project's own CA, as `ca init` and `ca issue` make them, each for
its host's address. The operator's commands have the CA and a token. ZooKeeper is plain in both.
"""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from typing import Protocol

import httpx

from bench.lab.namespaces import Host
from torrentdist.security.authority.authority_files import CA, CA_KEY, init_authority, issue_files
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.tls_contexts import TlsFiles, client_context


class ClusterAccess(Protocol):
    scheme: str

    def daemon_settings(self, host: Host, role: str) -> str:
        """Returns what a daemon's configuration says of it, from inside its [api] section on."""

    def client_settings(self) -> str:
        """Returns what the [client] section says of it."""

    def http(self, headers: dict[str, str]) -> httpx.Client:
        """Returns a client of the cluster's daemons."""


class InTheClear:
    scheme = "http"

    def daemon_settings(self, host: Host, role: str) -> str:
        return "insecure_listen = true\n"

    def client_settings(self) -> str:
        return "token_in_the_clear = true\n"

    def http(self, headers: dict[str, str]) -> httpx.Client:
        return httpx.Client(trust_env=False, timeout=5.0, headers=headers)


class MutualTls:
    scheme = "https"

    def __init__(self, directory: Path) -> None:
        self._ca = directory
        init_authority(directory, "lab", time.time())
        self._trust: ssl.SSLContext = client_context(TlsFiles(directory / CA, None, None))

    def daemon_settings(self, host: Host, role: str) -> str:
        """Issues the daemon's certificate too."""
        made = issue_files(self._ca, CertificateRole(role), host.name, [host.address], None, time.time())
        files = {"ca_file": made.ca_file, "certificate_file": made.certificate_file, "key_file": made.key_file}
        if role == "master":
            files["ca_key_file"] = str(self._ca / CA_KEY)
        named = "".join(f'{key} = "{file}"\n' for key, file in files.items())
        return f'[tls]\nmode = "mutual"\n{named}'

    def client_settings(self) -> str:
        return f'ca_file = "{self._ca / CA}"\n'

    def http(self, headers: dict[str, str]) -> httpx.Client:
        return httpx.Client(trust_env=False, timeout=5.0, headers=headers, verify=self._trust)
