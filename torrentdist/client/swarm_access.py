"""Gets a command into the swarms of bundles: asks a master for certificates, for its token.

Always: the certificates are for this command alone. They are in memory only, except that a download
keeps them beside what has arrived, so that it can go on without a master while they are valid. A
command that takes longer than they live gets new ones in time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.http.api_calls import Request, decode
from torrentdist.model.access.swarm_certificate_messages import SwarmCertificatesBody, SwarmCertificatesView
from torrentdist.model.access.swarm_membership import SwarmMembership
from torrentdist.model.backoff import Retry
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.ids import Digest

if TYPE_CHECKING:
    from torrentdist.swarm.engine.engine import Engine

FIRST_RETRY_SECS: Final = 0.5
RETRY_SECS: Final = 30.0


async def swarm_memberships(
    client: MasterClient, digests: Sequence[Digest], kept: Path | None = None
) -> tuple[SwarmMembership, ...]:
    """Returns what proves that this command is a member of the swarms of these bundles. Nothing:
    the swarm has no TLS.

    `kept`: the file in which an earlier attempt kept it, and this one does.
    """
    if not any(url.startswith("https://") for url in client.masters):
        return ()
    if kept is None:
        return await _issued(client, digests)
    from torrentdist.security.authority.membership_files import keep_memberships

    held = await asyncio.to_thread(_still_valid, kept)
    if held and not held[0].is_due(time.time()):
        return held
    try:
        fresh = await _issued(client, digests)
    except TorrentdistError as error:
        if held and error.exit_code == EXIT_UNAVAILABLE:
            return held
        raise
    if fresh:
        await asyncio.to_thread(keep_memberships, kept, fresh)
    return fresh


def _still_valid(path: Path) -> tuple[SwarmMembership, ...]:
    from torrentdist.security.authority.membership_files import read_memberships

    try:
        held = read_memberships(path)
    except TorrentdistError:
        return ()  # a new one replaces it
    return held if all(time.time() < each.expires_at for each in held) else ()


async def _issued(client: MasterClient, digests: Sequence[Digest]) -> tuple[SwarmMembership, ...]:
    from torrentdist.security.authority.certificates import new_key  # takes long to import
    from torrentdist.security.authority.pem_texts import public_key_pem
    from torrentdist.security.authority.swarm_authority import memberships_of

    key = new_key()
    body = SwarmCertificatesBody(public_key=public_key_pem(key.public_key()).decode(), digests=tuple(digests))
    request = Request("POST", "/v1/swarm-certificates", content=msgspec.json.encode(body))
    parse = lambda answer: decode(answer, SwarmCertificatesView)  # noqa: E731
    view = await client.read_patiently(request, parse, client.config.deadline_secs)
    return memberships_of(key, view.memberships)


async def stay_member(
    client: MasterClient, engine: Engine, digests: Sequence[Digest], memberships: tuple[SwarmMembership, ...]
) -> None:
    """Renews memberships at half of their life, for as long as the command runs. What does not
    cover the bundles is renewed soon: a master may not know a bundle's id yet."""
    uncovered = Retry(FIRST_RETRY_SECS, RETRY_SECS)
    while memberships:
        if all(map(memberships[0].covers, digests)):
            half = (memberships[0].begins_at + memberships[0].expires_at) / 2
            await asyncio.sleep(max(RETRY_SECS, half - time.time()))
        else:
            uncovered.failed("")
            await asyncio.sleep(uncovered.pause_secs)
        try:
            memberships = await swarm_memberships(client, digests)
        except TorrentdistError:
            continue  # What is held may still be valid, and a master may answer later.
        engine.join(memberships)
