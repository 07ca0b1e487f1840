"""A daemon's way to the masters for what any of them may answer: metafiles.

Always holds: a dead or slow master delays by its own short deadline and no more; the answer's
digest is checked before it is believed, and after a damaged one the next master is asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from torrentdist.bundle.metafile import Metafile, metafile_of
from torrentdist.distributor.protocol import Holder
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.http.access import with_token
from torrentdist.http.asking_in_turn import first_sound
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_errors import HttpError
from torrentdist.http.http_values import Answer
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.rendezvous import rendezvous
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.cluster_messages import ClusterView
from torrentdist.model.wire.headers import DIGEST

T = TypeVar("T")

CONNECT_SECS = 1.0
ANSWER_SECS = 10.0
GIVER_SECS = 3.0
"""A host that a master has named may be gone: it is given this long to begin, or to go on."""


def http_client(token: str | None) -> Http:
    """Returns the one pool for everything that a daemon asks of masters."""
    return Http(access=with_token(token), connect_secs=CONNECT_SECS, silence_secs=ANSWER_SECS)


class MasterLinks:
    """`me`: who asks. Each host asks the masters in its own order, so that no master has all of the
    questions."""

    def __init__(self, http: Http, urls: Callable[[], Sequence[str]], me: str) -> None:
        self._http = http
        self._me = me
        self._urls: Callable[[], list[str]] = lambda: rendezvous(urls(), me)

    async def metafile(self, bundle: BundleId) -> Metafile:
        """The metafile of a bundle that is available; `bundle_not_found` as soon as one master says
        so. A master that many ask sends us to another host; if that doesn't have it in time, the
        master must give it."""
        path = f"/v1/bundles/{bundle}/metafile"
        told = await self._answer(f"{path}?for={self._me}", self._urls(), _metafile_or_where)
        if isinstance(told, Metafile):
            return told
        meta = await self._from_host(told.headers["location"], _digest(told))
        return meta if meta is not None else await self._answer(path, self._urls(), _metafile_in)

    async def _from_host(self, url: str, digest: str) -> Metafile | None:
        with contextlib.suppress(HttpError, TorrentdistError):
            response = await self._http.request("GET", url, silence_secs=GIVER_SECS)
            if response.status_code == 200:
                return await in_heavy_thread(metafile_of, response.content, digest)
        return None

    async def metafile_of(self, digest: Digest, first: Iterable[str] = ()) -> Metafile:
        """The metafile of this very content, from whoever has it, `first` before the others."""
        urls = list(dict.fromkeys([*first, *self._urls()]))
        return await self._answer(f"/v1/metafiles/{digest}", urls, lambda told: metafile_of(told.content, digest))

    async def plugin_metafile(self, digest: Digest, first: Iterable[str] = ()) -> bytes:
        urls = list(dict.fromkeys([*first, *self._urls()]))
        return await self._first(f"/v1/metafiles/{digest}/plugin", urls)

    async def offer_metafile(self, digest: Digest, raw: bytes) -> None:
        """Give every master a metafile that they have lost; who has it already doesn't mind."""
        for url in self._urls():
            with contextlib.suppress(HttpError):
                await self._http.request("PUT", f"{url}/v1/metafiles/{digest}", content=raw)

    async def holders(self, bundle: BundleId) -> list[Holder]:
        """The live masters that hold it, as any master knows them."""
        view = msgspec.json.decode(await self._first(f"/v1/bundles/{bundle}", self._urls()), type=BundleView)
        cluster = msgspec.json.decode(await self._first("/v1/cluster", self._urls()), type=ClusterView)
        return [Holder(m.id, m.url) for m in cluster.masters if m.id in view.holders]

    async def _first(self, path: str, urls: Sequence[str]) -> bytes:
        return await self._answer(path, urls, lambda told: told.content)

    async def _answer(self, path: str, urls: Sequence[str], read: Callable[[Answer], T]) -> T:
        """Returns the first answer that `read` finds sound. A thread reads it, because a metafile
        may be large."""
        return await first_sound(self._http, urls, path, lambda answer: in_heavy_thread(read, answer))


def _metafile_or_where(response: Answer) -> Metafile | Answer:
    return response if response.is_redirect else _metafile_in(response)


def _metafile_in(response: Answer) -> Metafile:
    return metafile_of(response.content, _digest(response))


def _digest(response: Answer) -> str:
    """Returns the digest of the metafile that a master means to give."""
    return str(response.headers.get(DIGEST, ""))
