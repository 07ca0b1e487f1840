"""The steps of docs/security.md that replace every certificate and the CAs of a running cluster, as
`dev up --tls` made it.

Always: a step returns once every daemon has taken it, as an operator waits for it. Calls block.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
from cluster_fixtures import until

from torrentdist.security.authority.authority_files import CA, CA_KEY, init_authority, issue_files
from torrentdist.security.authority.membership_files import MEMBERSHIP, read_memberships
from torrentdist.security.certificate_identity import CertificateRole

ADDRESS = "127.0.0.1"


def put(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replaces a file by rename."""
    fresh = path.with_name(f".{path.name}.new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as out:
        out.write(data)
    fresh.rename(path)


def shown_ports(view: Mapping[str, Any]) -> dict[str, int]:
    """Returns the port of each daemon at which it shows its certificate. `view`: of /v1/cluster."""
    return {each["id"]: int(each["url"].rpartition(":")[2]) for each in (*view["masters"], *view["supervisors"])}


def role_of(name: str) -> CertificateRole:
    return CertificateRole.MASTER if name.startswith("master") else CertificateRole.SUPERVISOR


class Rotation:
    def __init__(self, authority: Path, work: Path, ports: Mapping[str, int]) -> None:
        """`authority`: the directory of the cluster's CA. `work`: a directory for new files.
        `ports`: where each daemon shows its certificate."""
        self._authority = authority
        self._new = work / "new"
        self._work = work
        self._ports = ports
        self._old_ca, self._new_ca = (authority / CA).read_bytes(), b""
        self._old_key = (authority / CA_KEY).read_bytes()
        self._swarm_ca = ""
        """The new CA of the swarm."""

    def replace_leaves(self) -> None:
        """Gives every daemon, and ZooKeeper, a new certificate of the CA that is the newest now."""
        ca = self._new if self._new_ca else self._authority
        for name in self._ports:
            path = self._hosts() / name / "certificate.pem"
            made = issue_files(ca, role_of(name), name, [ADDRESS], self._work / f"{ca.name}-{name}", time.time())
            put(path.with_name("key.pem"), Path(made.key_file).read_bytes(), 0o600)
            put(path, Path(made.certificate_file).read_bytes())
        out = self._work / f"{ca.name}-zookeeper"
        made = issue_files(ca, CertificateRole.ZOOKEEPER, "zookeeper", [ADDRESS], out, time.time())
        both = Path(made.key_file).read_bytes() + Path(made.certificate_file).read_bytes()
        put(self._hosts() / "zookeeper" / "keystore.pem", both, 0o600)
        for name, port in self._ports.items():
            fresh = (self._hosts() / name / "certificate.pem").read_bytes()
            _until_all({name: port}, lambda p, c=fresh: _shows(p, c), "shows its new certificate")  # type: ignore[misc]

    def trust_both(self) -> None:
        """Makes the new CA, and lets everybody trust it beside the old one."""
        issue_files(self._authority, CertificateRole.PERSON, "ann", [], self._work / "old-ann", time.time())
        init_authority(self._new, "dev", time.time() - 3600)
        self._new_ca = (self._new / CA).read_bytes()
        self._write_cas(self._old_ca + self._new_ca)
        issue_files(self._new, CertificateRole.PERSON, "ann", [], self._work / "ann", time.time())
        old, ann = self._work / "old-ann" / "ca.pem", self._work / "ann"
        _until_all(self._ports, lambda port: _is_trusted(port, old, ann), "trusts both CAs")

    def trust_only_new(self) -> None:
        """Ends the trust in the old CA."""
        self._write_cas(self._new_ca)
        new, ann = self._new / CA, self._work / "old-ann"
        _until_all(self._ports, lambda port: not _is_trusted(port, new, ann), "does not trust the old CA")

    def swarm_has_both(self) -> None:
        """Makes every host a member under the new CA of the swarm too."""
        self._change_swarm(self._old_key + self._new_key(), lambda cas: len(cas) == 2)
        self._swarm_ca = self._cas(next(iter(self._ports)))[1]

    def swarm_prefers_new(self) -> None:
        """Makes new downloads use the new CA of the swarm."""
        self._change_swarm(self._new_key() + self._old_key, lambda cas: cas[0] == self._swarm_ca)

    def swarm_has_only_new(self) -> None:
        """Ends the old CA of the swarm."""
        self._change_swarm(self._new_key(), lambda cas: cas == [self._swarm_ca])

    def _hosts(self) -> Path:
        return self._authority / "hosts"

    def _new_key(self) -> bytes:
        return (self._new / CA_KEY).read_bytes()

    def _write_cas(self, cas: bytes) -> None:
        for path in [self._authority / CA, *self._hosts().glob(f"*/{CA}")]:
            put(path, cas)

    def _change_swarm(self, keys: bytes, has_followed: Callable[[list[str]], bool]) -> None:
        put(self._authority / CA_KEY, keys, 0o600)
        for name in sorted(self._ports):  # masters first: the others ask them
            if role_of(name) is not CertificateRole.MASTER:
                os.utime(self._hosts() / name / MEMBERSHIP)  # it asks at once, and not within a quarter of an hour
            until(lambda n=name: has_followed(self._cas(n)), f"{name} has changed the swarm's CAs")  # type: ignore[misc]

    def _cas(self, name: str) -> list[str]:
        return [each.ca for each in read_memberships(self._hosts() / name / MEMBERSHIP)]


def _until_all(ports: Mapping[str, int], holds: Callable[[int], bool], what: str) -> None:
    for name, port in ports.items():
        until(lambda p=port: holds(p), f"{name} {what}")  # type: ignore[misc]


def _shows(port: int, certificate: bytes) -> bool:
    with contextlib.suppress(OSError):
        return ssl.get_server_certificate((ADDRESS, port), timeout=5.0).strip() == certificate.decode().strip()
    return False


def _is_trusted(port: int, ca: Path, person: Path) -> bool:
    """Whether the port takes a certificate of the CA that `person` is from."""
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(person / "certificate.pem", person / "key.pem")
    with contextlib.suppress(httpx.HTTPError), httpx.Client(trust_env=False, timeout=5.0, verify=context) as http:
        http.get(f"https://{ADDRESS}:{port}/livez")
        return True
    return False
