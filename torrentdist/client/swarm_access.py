"""Gets a command into the swarm: asks a master for certificates of the swarm, for its token.

Always: they are for this command alone, and are in memory only. Always: a command that takes longer
than they live gets new ones in time.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import msgspec

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.http.api_calls import Request, decode
from torrentdist.model.access.swarm_certificate_messages import SwarmCertificatesBody, SwarmCertificatesView
from torrentdist.model.access.swarm_membership import SwarmMembership
from torrentdist.model.errors import TorrentdistError

if TYPE_CHECKING:
    from torrentdist.swarm.engine.engine import Engine

RETRY_SECS: Final = 30.0


async def swarm_memberships(client: MasterClient) -> tuple[SwarmMembership, ...]:
    """Returns what proves that this command is a member of the swarm. Nothing: the swarm has no
    TLS."""
    if not any(url.startswith("https://") for url in client.masters):
        return ()
    from torrentdist.security.authority.certificates import new_key  # takes long to import
    from torrentdist.security.authority.pem_texts import public_key_pem
    from torrentdist.security.authority.swarm_authority import memberships_of

    key = new_key()
    body = SwarmCertificatesBody(public_key=public_key_pem(key.public_key()).decode())
    request = Request("POST", "/v1/swarm-certificates", content=msgspec.json.encode(body))
    parse = lambda answer: decode(answer, SwarmCertificatesView)  # noqa: E731
    view = await client.read_patiently(request, parse, client.config.deadline_secs)
    return memberships_of(key, view.memberships)


async def stay_member(client: MasterClient, engine: Engine, memberships: tuple[SwarmMembership, ...]) -> None:
    """Renews memberships at half of their life, for as long as the command runs."""
    while memberships:
        half = (memberships[0].begins_at + memberships[0].expires_at) / 2
        await asyncio.sleep(max(RETRY_SECS, half - time.time()))
        try:
            memberships = await swarm_memberships(client)
        except TorrentdistError:
            continue  # What is held may still be valid, and a master may answer later.
        engine.join(memberships)
