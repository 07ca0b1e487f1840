"""What a daemon demands of others on its ports, and how it proves itself to them.

Always: a daemon listens beyond loopback with TLS, or with a token if the configuration explicitly
allows it to run without TLS. In `mutual` a daemon proves itself by its certificate alone, and sends
its token nowhere. In `both` it shows its certificate over HTTPS and its token over plain HTTP.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from torrentdist.host.http.authentication import CertificateRules
from torrentdist.http.access import AccessRule, Trust, with_token
from torrentdist.log import get_logger
from torrentdist.model.configuration.config import Config
from torrentdist.model.configuration.settings import read_secret
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.loopback import is_loopback
from torrentdist.model.records import OwnCertificate
from torrentdist.model.wire.swarm_messages import PeerRole
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.job_token import key_of
from torrentdist.security.live_tls import LiveTls, TlsOwner
from torrentdist.security.tls_contexts import PeerCertificate, files_of

log = get_logger()

INSECURE: Final = 'no TLS: anybody on the way reads tokens and bundles. Set tls.mode = "mutual" (docs/security.md)'
_ROLES: Final = {PeerRole.MASTER: CertificateRole.MASTER, PeerRole.SUPERVISOR: CertificateRole.SUPERVISOR}


class PortGuard(msgspec.Struct, frozen=True):
    """Proofs of a daemon, in both directions."""

    token: str | None
    """The token that an operator may show. None: there is none."""
    tls: LiveTls | None
    """None: plain HTTP."""
    access: AccessRule
    """How the daemon proves itself to other daemons."""
    job_key: bytes = b""
    """The key of job tokens. Empty: there is no secret to make them of."""
    plain_too: bool = False
    """With `tls`: the port answers plain HTTP too, and hosts may prove themselves by the token."""

    @property
    def own_token(self) -> str | None:
        """The token that this daemon shows to others."""
        return self.token if self.tls is None or self.plain_too else None

    @property
    def only_https(self) -> bool:
        """Whether the daemon speaks HTTPS and nothing else."""
        return self.tls is not None and not self.plain_too

    def rules(self, is_revoked: Callable[[PeerCertificate], bool]) -> CertificateRules | None:
        """Returns what certificates count on the daemon's port; None: it has no TLS."""
        tls = self.tls
        return None if tls is None else CertificateRules(is_revoked, self.only_https, lambda: tls.cluster)

    def certificate(self) -> OwnCertificate | None:
        """Returns what the daemon's registration says about its certificate."""
        if self.tls is None:
            return None
        facts = self.tls.facts
        return OwnCertificate(serial=facts.serial, expires_at=facts.expires_at)

    @property
    def scheme(self) -> str:
        return "https" if self.only_https else "http"

    def url(self, host: str, port: int) -> str:
        """Returns the URL of a port of this daemon that other hosts reach."""
        return f"{self.scheme}://[{host}]:{port}" if ":" in host else f"{self.scheme}://{host}:{port}"


def open_guard(config: Config, role: PeerRole, id_: str, address: str) -> PortGuard:
    """Reads the token and the certificates. Refuses a configuration that lets strangers in."""
    token = read_secret(config.api.token_file) if config.api.token_file else None
    job_key = key_of(token) if token else b""
    if config.tls.mode == "mutual":
        tls, by_certificate = _opened_tls(config, TlsOwner(_ROLES[role], id_, address))
        return PortGuard(token, tls, by_certificate, job_key)
    if not is_loopback(config.api.listen):
        _expect_consent(config, token)
        log.warning(INSECURE, address=config.api.listen)
    in_the_clear = config.api.insecure_listen or config.client.token_in_the_clear
    by_token = with_token(token, in_the_clear=in_the_clear)
    if config.tls.mode == "off":
        return PortGuard(token, None, by_token, job_key)
    tls, by_certificate = _opened_tls(config, TlsOwner(_ROLES[role], id_, address))
    both = lambda origin: (by_token if origin.scheme == "http" else by_certificate)(origin)  # noqa: E731
    return PortGuard(token, tls, both, job_key, plain_too=True)


def _opened_tls(config: Config, owner: TlsOwner) -> tuple[LiveTls, AccessRule]:
    files = files_of(config.tls)
    assert files is not None
    tls = LiveTls(files, owner)
    return tls, with_token(None, lambda: Trust(tls.client, tls.complaint))


def _expect_consent(config: Config, token: str | None) -> None:
    if token is None:
        raise TorrentdistError("insecure_listen", address=config.api.listen, lack="without authentication")
    if not config.api.insecure_listen:
        raise TorrentdistError("insecure_listen", address=config.api.listen, lack="without TLS")
