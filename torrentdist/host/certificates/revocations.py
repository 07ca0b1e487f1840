"""The revoked certificates, as a host hears of them from the masters.

Always: what was heard stays true: a revocation is never taken back, and a host that hears of none
for a while keeps those that it knows. Never: ask ZooKeeper.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from torrentdist.http.asking_in_turn import first_sound
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import Answer
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json
from torrentdist.security.tls_contexts import PeerCertificate

LOOK_SECS: Final = 5.0


class Revocations:
    def __init__(self, http: Http, masters: Callable[[], Sequence[str]]) -> None:
        self._http = http
        self._masters = masters
        self._until: Mapping[str, float] = {}
        """The newest moment up to which certificates of an id are revoked."""

    def covers(self, peer: PeerCertificate) -> bool:
        """Whether this certificate was revoked."""
        return peer.begins_at <= self._until.get(peer.identity.id, 0.0)

    async def follow(self) -> None:
        """Asks the masters again and again, at a pace of its own."""
        while True:
            with contextlib.suppress(TorrentdistError):
                heard = await first_sound(self._http, self._masters(), "/v1/revocations", _read)
                later = {id_: max(until, self._until.get(id_, 0.0)) for id_, until in heard.items()}
                self._until = {**self._until, **later}
            await asyncio.sleep(LOOK_SECS * random.uniform(0.8, 1.2))


async def _read(answer: Answer) -> dict[str, float]:
    try:
        return decode_json(answer.content, dict[str, float])
    except msgspec.MsgspecError as exc:
        raise TorrentdistError("invalid_request", detail=str(exc)) from exc
