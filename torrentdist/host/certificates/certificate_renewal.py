"""Keeps a daemon's certificate good: renews it at half of its life and after it has expired,
takes changed files, and complains about one that is about to expire.

Always: the key stays. The request is signed by the key, not shown as a certificate of TLS, so
that an expired one is renewed too. A file that cannot be used is logged once, and looked at
again. A certificate that is not valid now replaces none that is good for long.
Never: end the daemon; without a new certificate it goes on with the old one.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from torrentdist.http.access import Trust, with_token
from torrentdist.http.asking_in_turn import ask_leader
from torrentdist.http.connection_pool import Http
from torrentdist.log import get_logger
from torrentdist.model.access.host_messages import CertificateView, RenewalBody
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import cause_text
from torrentdist.security.authority.certificates import CertificateFacts, facts_of, renewal_text, sign
from torrentdist.security.authority.pem_texts import parse_certificate, parse_key
from torrentdist.security.live_tls import LiveTls, ends_soon
from torrentdist.security.private_files import read_private, write_public
from torrentdist.security.tls_contexts import TlsFiles, client_context

log = get_logger()

PAUSE_SECS: Final = 600.0
"""Time between two attempts, on average."""
LONGEST_PAUSE_SECS: Final = 1.5 * PAUSE_SECS


class CertificateRenewal:
    """`masters` returns the URLs of the masters to ask."""

    def __init__(self, tls: LiveTls, masters: Callable[[], Sequence[str]]) -> None:
        self._tls = tls
        self._masters = masters
        self._next_at = 0.0

    async def renew_if_due(self, now: float) -> None:
        """Asks the leader for a new certificate, if the present one is old and the last attempt
        was not just now."""
        # A clock that was ahead and is right again must not make the pause longer.
        if not is_due(self._tls, now) or 0 < self._next_at - now <= LONGEST_PAUSE_SECS:
            return
        self._next_at = now + random.uniform(PAUSE_SECS / 2, LONGEST_PAUSE_SECS)
        try:
            got = await self._ask(now)
        except (TorrentdistError, OSError, ValueError) as exc:
            log.warning("the certificate is not renewed", reason=cause_text(exc))
            return
        if got:
            log.info("the certificate is renewed")

    async def _ask(self, now: float) -> bool:
        files = self._tls.files
        body = await asyncio.to_thread(_request, files)
        context = await asyncio.to_thread(client_context, TlsFiles(files.ca, None, None))
        async with Http(access=with_token(None, lambda: Trust(context, self._tls.complaint))) as http:
            path = f"/v1/hosts/{self._tls.owner.id}/renew"
            answer = await ask_leader(http, "", self._masters(), path, body, CertificateView)
        if answer is None:
            return False
        await asyncio.to_thread(_take, files, answer[1].certificate.encode(), now)
        return True


def is_due(tls: LiveTls, now: float) -> bool:
    """Whether half of the certificate's life is over, or its life has not begun."""
    facts = tls.facts
    return now < facts.begins_at or now >= (facts.begins_at + facts.expires_at) / 2


def _request(files: TlsFiles) -> RenewalBody:
    assert files.certificate is not None
    assert files.key is not None
    pem = files.certificate.read_bytes()
    signature = sign(parse_key(read_private(files.key)), renewal_text(parse_certificate(pem)))
    return RenewalBody(certificate=pem.decode("ascii"), signature=signature)


def _take(files: TlsFiles, pem: bytes, now: float) -> None:
    """Replaces the certificate by one for the same key, role, id and addresses."""
    path: Path | None = files.certificate
    assert path is not None
    old, new = parse_certificate(path.read_bytes()), parse_certificate(pem)
    before, after = facts_of(old), facts_of(new)
    if (before.identity, before.addresses, old.public_key()) != (after.identity, after.addresses, new.public_key()):
        raise ValueError("the leader sent a certificate of somebody else")
    if is_premature(before, after, now):
        raise ValueError("the leader sent a certificate that is not valid now: its clock is wrong, or this host's")
    write_public(path, pem)


def is_premature(old: CertificateFacts, new: CertificateFacts, now: float) -> bool:
    """Whether a certificate is not valid now, and the present one is good for long. Either the
    leader's clock is wrong or ours, and later attempts may find both right."""
    return not new.begins_at <= now < new.expires_at and not ends_soon(old.begins_at, old.expires_at, now)


LOOK_SECS: Final = 2.0
"""A look costs three calls of stat()."""


async def follow_certificates(tls: LiveTls, masters: Callable[[], Sequence[str]]) -> None:
    """Takes changed files, and has the certificate renewed, for as long as the daemon runs."""
    said, renewal = "", CertificateRenewal(tls, masters)
    while True:
        await renewal.renew_if_due(time.time())
        unused = ""
        try:
            if await asyncio.to_thread(tls.reload):
                log.info("new certificate files are in use", serial=tls.facts.serial, expires_at=tls.facts.expires_at)
        except TorrentdistError as error:
            unused = f"changed certificate files are not used: {error.message}"
        trouble = unused or tls.trouble(time.time()).partition(" in ")[0]
        if trouble and trouble != said:
            log.warning(trouble, expires_at=tls.facts.expires_at)
        said = trouble
        await asyncio.sleep(LOOK_SECS)
