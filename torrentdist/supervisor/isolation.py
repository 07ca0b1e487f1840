"""Whether workers may run on without ZooKeeper: only while nobody can have been given their places.

Always holds: the proof needs every master that this host knows, each of them saying now that it sees no ZooKeeper; one
that doesn't answer may be leading elsewhere. docs/decisions/0008-isolation.md has the argument.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

import httpx
import msgspec

from torrentdist.model.views import HealthView

PROOF_SECS = 2.0
"""How long a proof is good for, from before it was asked for. Less than any silence after which a leader moves work."""
ASK_AGAIN_SECS = 0.5
ANSWER_SECS = 1.0
WITHIN_SECS = 0.3
"""A master that gets no answer from ZooKeeper for so long sees none: a frozen server keeps every connection open."""


def is_proof(known: Collection[str], blind: Mapping[str, bool]) -> bool:
    """`blind`: of those that answered, whether they see no ZooKeeper."""
    return bool(known) and all(blind.get(url, False) for url in known)


class Isolation:
    """`masters`: the URLs of all that were registered when this host last knew."""

    def __init__(self, http: httpx.AsyncClient, masters: Callable[[], Sequence[str]]) -> None:
        self._http = http
        self._masters = masters

    async def may_run_isolated(self) -> bool:
        known = list(self._masters())
        answers = await asyncio.gather(*(self._is_blind(url) for url in known))
        return is_proof(known, {url: blind for url, blind in zip(known, answers, strict=True) if blind is not None})

    async def _is_blind(self, url: str) -> bool | None:
        try:
            async with asyncio.timeout(ANSWER_SECS):
                response = await self._http.get(f"{url}/readyz", params={"within": f"{WITHIN_SECS:g}"})
            return "zookeeper" in msgspec.json.decode(response.content, type=HealthView).failing
        except (httpx.HTTPError, msgspec.MsgspecError, TimeoutError):
            return None
