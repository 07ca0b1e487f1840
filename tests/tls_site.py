"""A CA and a port with TLS for tests: our own server, which answers with the sender of a request.

Always: what a test starts here is closed by it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import Authentication, CertificateRules, principal_of
from torrentdist.host.http.operation import Operation, api_app
from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.http.web import json_response
from torrentdist.host.process.listening_sockets import bind_socket
from torrentdist.http.access import Trust, with_token
from torrentdist.http.connection_pool import Http
from torrentdist.security.authority.authority_files import init_authority, issue_files, read_authority
from torrentdist.security.authority.certificates import issue
from torrentdist.security.authority.pem_texts import certificate_pem, parse_certificate
from torrentdist.security.authorization import Role
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole
from torrentdist.security.live_tls import LiveTls, TlsOwner
from torrentdist.security.tls_contexts import TlsFiles, client_context, complaint_about

TOKEN = "operators-token"
LOOPBACK = "127.0.0.1"


async def tell(request: Request) -> Response:
    sender = principal_of(request)
    return json_response([sender.name, sender.role, sender.how, sender.is_host])


OPERATIONS = [
    Operation("GET", "/sender", tell, list[str], "the sender", Role.ANYONE),
    Operation("GET", "/read", tell, list[str], "for readers", Role.READER),
    Operation("POST", "/host", tell, list[str], "for hosts", Role.HOST),
    Operation("POST", "/operator", tell, list[str], "for operators", Role.OPERATOR),
]


@dataclass(frozen=True)
class TestAuthority:
    """A CA in a directory."""

    __test__ = False
    directory: Path

    def files(
        self, id_: str, role: CertificateRole = CertificateRole.MASTER, *, address: str = LOOPBACK, age: float = 0.0
    ) -> TlsFiles:
        """Issues a certificate that was made `age` seconds ago, in a directory of its own."""
        addresses = [] if role is CertificateRole.PERSON else [address]
        out = self.directory / "out" / f"{role.value}-{id_}-{address}-{age:g}"
        view = issue_files(self.directory, role, id_, addresses, out, time.time() - age)
        return TlsFiles(Path(view.ca_file), Path(view.certificate_file), Path(view.key_file))

    def files_elsewhere(self, id_: str, role: CertificateRole, cluster: str) -> TlsFiles:
        """Issues a certificate for another cluster, as a company's CA does that serves several."""
        files = self.files(id_, role)
        assert files.certificate is not None
        public_key = parse_certificate(files.certificate.read_bytes()).public_key()
        addresses = [] if role is CertificateRole.PERSON else [LOOPBACK]
        identity = CertificateIdentity(cluster, role, id_)
        issued = issue(read_authority(self.directory), identity, addresses, public_key, time.time())
        files.certificate.write_bytes(certificate_pem(issued))
        return files

    @property
    def ca(self) -> Path:
        return self.directory / "ca.pem"


def make_authority(directory: Path, cluster: str = "prod") -> TestAuthority:
    """Makes a CA that has been valid for a year."""
    init_authority(directory, cluster, time.time() - 365 * 86_400)
    return TestAuthority(directory)


def owner(id_: str = "m1", address: str = LOOPBACK) -> TlsOwner:
    return TlsOwner(CertificateRole.MASTER, id_, address)


@contextlib.asynccontextmanager
async def port(tls: LiveTls | None, token: str | None = TOKEN, *, plain_too: bool = False) -> AsyncIterator[WebServer]:
    """Serves OPERATIONS on a port of loopback."""
    rules = None if tls is None else CertificateRules(lambda peer: False, not plain_too, lambda: tls.cluster)
    app = Authentication(api_app(OPERATIONS), token, ("/sender",), certificates=rules)
    web = WebServer(app, bind_socket(LOOPBACK, 0, what="the test"), tls=tls, plain_too=plain_too, grace_secs=0.0)
    await web.start()
    try:
        yield web
    finally:
        await web.stop()


def client(files: TlsFiles | None, token: str | None = None, cluster: str = "") -> Http:
    """A client that shows and trusts what these files hold."""
    trust = None if files is None else Trust(client_context(files), lambda cert: complaint_about(cert, cluster))
    return Http(access=with_token(token, lambda: trust), connect_secs=5.0)
