"""What the doctor and `cluster` say about TLS: ports without it, and certificates that are about to
fail.

Always: a certificate is judged by the files that a configuration names.
Never: connect to anything.
"""

import time
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from torrentdist.client import diagnosis
from torrentdist.model.configuration.config import ClientConfig, Config, TlsConfig
from torrentdist.model.errors import EXIT_USAGE, TorrentdistError
from torrentdist.model.loopback import is_loopback
from torrentdist.model.wire.cluster_messages import ClusterView
from torrentdist.model.wire.doctor_views import Finding
from torrentdist.model.wording import counted

HINT = 'Set tls.mode = "mutual" on every host: docs/security.md#migration'
LOW_SHARE = 0.25
"""A certificate with less of its life left than this has not been renewed in time."""


def insecure_hosts(view: ClusterView) -> list[str]:
    """Returns the daemons that listen beyond loopback without TLS."""
    daemons = [*((m.id, m.url) for m in view.masters), *((s.id, s.url) for s in view.supervisors)]
    return [id_ for id_, url in daemons if _is_insecure(url)]


def insecure_sentence(view: ClusterView) -> str:
    """Says that requests travel in the clear; empty if none do."""
    found = insecure_hosts(view)
    if not found:
        return ""
    others = f" and {counted(len(found) - 3, 'other')}" if len(found) > 3 else ""
    return f"no TLS on {', '.join(found[:3])}{others}: anybody on the way reads tokens and bundles"


def _is_insecure(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def judge_transport(views: Iterable[ClusterView]) -> list[Finding]:
    """Judges how daemons are reached, by the first picture of the cluster."""
    for view in views:
        sentence = insecure_sentence(view)
        return [diagnosis.warning("tls", "", sentence, HINT)] if sentence else []
    return []


def certificates(config: Config) -> list[Finding]:
    """Judges the certificates that this host's configuration names. Blocks."""
    sections: dict[str, TlsConfig | ClientConfig] = {"tls": config.tls, "client": config.client}
    return [finding for name, section in sections.items() for finding in _section(name, section)]


def _section(name: str, section: TlsConfig | ClientConfig) -> Iterator[Finding]:
    from torrentdist.security.authority.certificates import facts_of
    from torrentdist.security.authority.pem_texts import parse_certificate
    from torrentdist.security.tls_contexts import client_context, files_of

    files = files_of(section)
    if files is None:
        return
    try:
        client_context(files)
    except TorrentdistError as error:
        yield diagnosis.of_error("certificate", name, error)
        return
    if files.certificate is None:
        return
    facts, now = facts_of(parse_certificate(files.certificate.read_bytes())), time.time()
    days, where = (facts.expires_at - now) / 86_400, str(files.certificate)
    hint = "Renew it: `torrentdist ca issue` again, or where it comes from. A daemon takes the new file by itself."
    if not facts.begins_at <= now < facts.expires_at:
        detail = "it has expired" if days < 0 else "it is not valid yet, or this host's clock is late"
        yield diagnosis.failure("certificate", where, detail, hint, EXIT_USAGE)
    elif facts.expires_at - now < (facts.expires_at - facts.begins_at) * LOW_SHARE:
        yield diagnosis.warning("certificate", where, f"it expires in {days:.1f} days", hint)
    else:
        yield Finding(check="certificate", subject=where, detail=f"valid for {days:.0f} days more")
