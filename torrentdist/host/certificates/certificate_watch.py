"""Keeps a daemon's certificate good: has it renewed, takes changed files, and complains about one
that is about to expire.

Always: a file that cannot be used is logged once, and looked at again. Never: end the daemon.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from torrentdist.host.certificates.certificate_renewal import CertificateRenewal
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.live_tls import LiveTls

log = get_logger()

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
