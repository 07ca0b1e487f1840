"""Keeps a daemon a member of the swarm: gets its certificates of the swarm, and renews them.

A host with the CA's key issues them itself, others ask any master, again for each bundle that the
last ones do not cover. A master whose certificates are not valid now counts only if all are so.
Always: certificates are kept in a file if it can be written, so that a host that starts without
masters can seed. A swarm that changes its CA is noticed within minutes.
Never: end the daemon. Without a new certificate it goes on with the old one.
"""

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from torrentdist.http.api_calls import Broken, result_of
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import HttpError
from torrentdist.log import get_logger
from torrentdist.model.access.swarm_certificate_messages import (
    MOST_DIGESTS,
    SwarmCertificatesBody,
    SwarmCertificatesView,
)
from torrentdist.model.access.swarm_membership import SwarmMembership
from torrentdist.model.backoff import Retry
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.model.wording import cause_text
from torrentdist.security.authority.certificates import new_key
from torrentdist.security.authority.membership_files import keep_memberships, membership_file, read_memberships
from torrentdist.security.authority.pem_texts import public_key_pem
from torrentdist.security.authority.swarm_authority import HOST_LIFETIME, memberships_of
from torrentdist.security.authority.swarm_issuing import SwarmIssuing
from torrentdist.security.live_tls import ends_soon

log = get_logger()

PATH: Final = "/v1/swarm-certificates"
LOOK_SECS: Final = 2.0
"""Time between two looks at the files, and between two attempts to become a member at all."""
ASK_SECS: Final = 600.0
"""Time between two questions whether the swarm's CAs have changed, on average."""
LONGEST_ASK_SECS: Final = 1.5 * ASK_SECS
Stamp = tuple[tuple[int, int], ...]


class SwarmMemberships:
    """`join` tells the engine of new certificates. Call `poke` when a bundle comes."""

    def __init__(
        self,
        config: Config,
        http: Http,
        masters: Callable[[], Sequence[str]],
        join: Callable[[Sequence[SwarmMembership]], None],
        exchanged: Callable[[], Sequence[Digest]],
    ) -> None:
        """`exchanged` returns the bundles that this host exchanges, the newest last."""
        self._issuing = SwarmIssuing(config)
        self._path = membership_file(config)
        self._http = http
        self._masters = masters
        self._join = join
        self._held: tuple[SwarmMembership, ...] = ()
        self._stamp: Stamp = ()
        self._exchanged = exchanged
        self._ask_at = 0.0
        self._uncovered = Retry(LOOK_SECS, ASK_SECS)
        self._again_at = 0.0
        """When to ask again for what is not covered."""
        self._poked = asyncio.Event()
        self._said = ""

    async def start(self, *, must_issue: bool) -> None:
        """Takes what the file holds, if it can be read. A host with the CA's key is a member
        afterwards.

        `must_issue`: raises `swarm_key_missing` on a host without that key.
        """
        if must_issue and not self._issuing.key_file:
            raise TorrentdistError("swarm_key_missing")
        self._stamp = await asyncio.to_thread(self._stamps)
        held: tuple[SwarmMembership, ...] = ()
        try:
            held = await asyncio.to_thread(read_memberships, self._path)
        except TorrentdistError as error:
            self._stamp = ()  # the next look tries again
            log.warning("the certificates of the swarm cannot be read", reason=error.message)
        self._take(held)
        if self._issuing.key_file:
            await self._renew(time.time())

    def poke(self, _: Digest) -> None:
        """A bundle has come, which the certificates may not cover."""
        self._again_at = 0.0
        self._poked.set()

    async def follow(self) -> None:
        """Takes changed files and renews the certificates, for as long as the daemon runs."""
        while True:
            self._poked.clear()
            try:
                await self._look(time.time())
                self._said = ""
            except (TorrentdistError, OSError, ValueError) as exc:
                self._complain(cause_text(exc))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECS):
                    await self._poked.wait()

    async def _look(self, now: float) -> None:
        stamp = await asyncio.to_thread(self._stamps)
        if stamp != self._stamp:
            self._stamp, self._ask_at = stamp, 0.0
            self._take(await asyncio.to_thread(read_memberships, self._path))
        # A clock that was ahead and is right again must not make a pause longer.
        rests = 0 < self._ask_at - now <= LONGEST_ASK_SECS
        leaves = 0 < self._again_at - now <= LONGEST_ASK_SECS or self._is_covered()
        if not (rests and self._held and leaves):
            self._ask_at = now + random.uniform(ASK_SECS / 2, LONGEST_ASK_SECS)
            await self._renew(now)
            if self._is_covered():
                self._uncovered.succeeded()
            else:
                self._uncovered.failed("")
                self._again_at = now + self._uncovered.pause_secs

    def _is_covered(self) -> bool:
        return all(each.covers(digest) for digest in self._exchanged() for each in self._held[:1])

    async def _renew(self, now: float) -> None:
        """Gets new certificates, if they are due or the swarm's CAs have changed."""
        fresh = await self._obtain(now)
        if not fresh:
            raise TorrentdistError("swarm_tls_differs")
        is_same = [(each.ca, each.names) for each in fresh] == [(each.ca, each.names) for each in self._held]
        if is_same and not self._is_replaced(fresh, now):
            return
        self._take(fresh)
        try:
            await asyncio.to_thread(keep_memberships, self._path, fresh)
        except TorrentdistError as error:  # such as a directory that is mounted read-only
            log.warning("the certificates of the swarm are not kept for the next start", reason=error.message)
        # The key may have changed since it was read, and is then looked at again.
        self._stamp = (await asyncio.to_thread(_stamp, self._path), *self._stamp[1:])
        log.info("this host has new certificates of the swarm", expires_at=fresh[0].expires_at)

    def _is_replaced(self, fresh: Sequence[SwarmMembership], now: float) -> bool:
        """Whether new certificates for the same bundles replace those that this host has. Some that
        are not valid now, by a wrong clock, replace only what ends soon."""
        if not all(each.is_valid(now) for each in fresh):
            return any(ends_soon(each.begins_at, each.expires_at, now) for each in self._held)
        return any(each.is_due(now) for each in self._held)

    async def _obtain(self, now: float) -> tuple[SwarmMembership, ...]:
        # In threads: the first key and the first certificate each load a large library.
        key = await asyncio.to_thread(new_key)
        public_key = (await asyncio.to_thread(public_key_pem, key.public_key())).decode()
        if self._issuing.key_file:
            issued = await asyncio.to_thread(self._issuing.issue, public_key, HOST_LIFETIME, time.time())
            return await asyncio.to_thread(memberships_of, key, issued)
        newest = tuple(self._exchanged())[-MOST_DIGESTS:]
        content = msgspec.json.encode(SwarmCertificatesBody(public_key=public_key, digests=newest))
        failure = TorrentdistError("unreachable", detail="no master is known")
        doubtful, has_failed = tuple[SwarmMembership, ...](), False
        for url in self._masters():
            try:
                answer = await self._http.post(url + PATH, content=content)
                told = result_of(answer, SwarmCertificatesView).memberships
                fresh = await asyncio.to_thread(memberships_of, key, told)
                if all(each.is_valid(now) for each in fresh):
                    return fresh
                doubtful = doubtful or fresh
            except TorrentdistError as refusal:
                failure, has_failed = refusal, True
            except (HttpError, Broken) as exc:
                failure, has_failed = TorrentdistError("unreachable", detail=f"{url}: {exc}"), True
        # A clock is wrong. Valid ones stay while a master that did not answer may give better ones.
        holds_valid = bool(self._held) and all(each.is_valid(now) for each in self._held)
        if not doubtful or (has_failed and holds_valid):
            raise failure
        return doubtful

    def _take(self, memberships: tuple[SwarmMembership, ...]) -> None:
        self._held = memberships
        if memberships:
            self._join(memberships)

    def _complain(self, reason: str) -> None:
        if reason != self._said:
            log.warning("the certificates of the swarm are not renewed", reason=reason)
        self._said = reason

    def _stamps(self) -> Stamp:
        """Returns what differs when a file has been replaced or written to."""
        files = [self._path, *([Path(self._issuing.key_file).expanduser()] if self._issuing.key_file else [])]
        return tuple(_stamp(path) for path in files)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = os.stat(path)
    except OSError:
        return (0, 0)
    return (stat.st_ino, stat.st_mtime_ns)
