"""What this gateway knows to verify capabilities: the masters' public key, and what was revoked.

Always: what was heard is kept on disk, so that a host that starts without a master goes on. Time
is ZooKeeper's, as a master told it. Never: ask anybody while a request waits.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.http.asking_in_turn import first_sound
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import Answer
from torrentdist.log import get_logger
from torrentdist.model.access.envelope import parse_public_key_text, public_key_text
from torrentdist.model.access.url_messages import UrlTrustView
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json
from torrentdist.security.capabilities import Capability, UrlTrust, newer_trust, verified_capability
from torrentdist.security.private_files import replace_private

log = get_logger()

LOOK_SECS: Final = 5.0
FILE: Final = "url-trust.json"


class KnownUrlTrust:
    """`directory` is the host's data directory."""

    def __init__(self, http: Http, masters: Callable[[], Sequence[str]], directory: Path) -> None:
        self._http = http
        self._masters = masters
        self._file = directory / FILE
        self._known: UrlTrust | None = None
        self._written: UrlTrust | None = None
        """What the file has, as far as we know."""
        self._ahead = 0.0
        """How far ZooKeeper's clock is ahead of the monotonic one; of ours until a master told."""

    async def load(self) -> None:
        """Reads what was kept by the process before this one."""
        self._ahead = time.time() - time.monotonic()
        try:
            told = decode_json(await asyncio.to_thread(self._file.read_bytes), UrlTrustView)
            self._known = self._written = _trust_of(told)
        except FileNotFoundError:
            return
        except (OSError, ValueError, msgspec.MsgspecError) as exc:
            log.warning("cannot read what was known of URLs for pods", path=str(self._file), reason=str(exc))

    def verified(self, text: str) -> Capability:
        """Returns what a capability states, or raises the error that refuses it."""
        if self._known is None:
            raise TorrentdistError("not_ready", detail="no master has told this host how to verify URLs for pods")
        return verified_capability(text, self._known, self._now())

    async def follow(self) -> None:
        """Asks the masters again and again, at a pace of its own."""
        while True:
            with contextlib.suppress(TorrentdistError):
                told = await first_sound(self._http, self._masters(), "/v1/urls/trust", _read)
                await self.hear(told)
            await asyncio.sleep(LOOK_SECS * random.uniform(0.8, 1.2))

    async def hear(self, told: UrlTrustView) -> None:
        """Takes what a master has told."""
        heard = _trust_of(told)
        self._ahead = told.now - time.monotonic()
        before, known = self._known, newer_trust(self._known, heard, told.now)
        self._known = known
        if known == self._written:
            return
        key, revoked = public_key_text(known.key), dict(known.revoked)
        kept = UrlTrustView(cluster=known.cluster, key=key, since=known.since, now=told.now, revoked=revoked)
        try:
            await asyncio.to_thread(replace_private, self._file, msgspec.json.encode(kept))
            self._written = known
        except (OSError, TorrentdistError) as exc:
            if known != before:  # the next answer tries again
                log.warning("cannot keep what is known of URLs for pods", path=str(self._file), reason=str(exc))

    def _now(self) -> float:
        return self._ahead + time.monotonic()


async def _read(answer: Answer) -> UrlTrustView:
    try:
        told = await in_heavy_thread(lambda: decode_json(answer.content, UrlTrustView))
        _trust_of(told)
    except (msgspec.MsgspecError, ValueError) as exc:
        raise TorrentdistError("invalid_request", detail=str(exc)) from exc
    return told


def _trust_of(told: UrlTrustView) -> UrlTrust:
    return UrlTrust(told.cluster, parse_public_key_text(told.key).raw, told.since, told.revoked)
