"""A daemon's client for what any master can answer: metafiles, and the holders and signatures of a
bundle.

Always: a dead or slow master delays a request by its own short deadline only. A metafile is checked
against its digest before it is used; after a wrong one the next master is asked.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from torrentdist.bundle.metafile import Metafile, metafile_of
from torrentdist.bundle.reuse.recipe import recipe_hash
from torrentdist.distributor.protocol import Holder
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.host.received_updates import ReceivedUpdates
from torrentdist.http.access import AccessRule
from torrentdist.http.api_calls import decode, error_in
from torrentdist.http.asking_in_turn import first_sound
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import Answer, HttpError, Patience
from torrentdist.model.access.envelope import Envelope
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.rendezvous import rendezvous
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.cluster_messages import ClusterView
from torrentdist.model.wire.headers import DIGEST, UPDATE_TYPE, age_in

T = TypeVar("T")

CONNECT_SECS = 1.0
ANSWER_SECS = 10.0
GIVER_SECS = 3.0
"""How long a host that a master named may take to start its answer, or to continue it: the host may
be gone."""
_GIVERS = Patience(CONNECT_SECS, GIVER_SECS)


def http_client(access: AccessRule, *, only_https: bool = False) -> Http:
    """Returns the connection pool for all of a daemon's requests to masters."""
    return Http(access=access, connect_secs=CONNECT_SECS, silence_secs=ANSWER_SECS, only_https=only_https)


class DatedMetafile(NamedTuple):
    meta: Metafile
    zxid: int
    """The newest ZooKeeper transaction that the master had seen. 0: it did not say."""


class MasterLinks:
    """Asks the masters. `me` is this host's id: each host asks in its own order, which spreads the
    requests over the masters."""

    def __init__(self, http: Http, urls: Callable[[], Sequence[str]], me: str) -> None:
        self._http = http
        self._me = me
        self._urls: Callable[[], list[str]] = lambda: rendezvous(urls(), me)

    async def metafile(self, bundle: BundleId) -> Metafile:
        """Returns the metafile of an available bundle. Raises what `dated_metafile` raises."""
        return (await self.dated_metafile(bundle)).meta

    async def dated_metafile(self, bundle: BundleId, updates: ReceivedUpdates | None = None) -> DatedMetafile:
        """Returns the metafile of an available bundle. Raises `bundle_not_found` if no master gives
        it and one that reaches ZooKeeper says so.

        A busy master sends us to another host. If that host does not deliver in time, a master
        must. With `updates`, an update to an older version of this host may come instead, or the
        metafile of a small bundle with its files.
        """
        path = f"/v1/bundles/{bundle}/metafile"
        bases = updates.bases() if updates is not None else []
        wanted = ("&whole=true" if updates is not None else "") + ("&have=" if bases else "") + ",".join(bases)
        told = await self._answer(f"{path}?for={self._me}{wanted}", self._urls(), _metafile_or_answer)
        if isinstance(told, DatedMetafile):
            return told
        meta = await self._through(told, updates)
        return DatedMetafile(meta, _zxid(told)) if meta else await self._answer(path, self._urls(), _metafile_in)

    async def _through(self, told: Answer, updates: ReceivedUpdates | None) -> Metafile | None:
        """Returns the metafile to which a master's answer leads: one that names a host, or an
        update."""
        digest, answer = _digest(told), told
        with contextlib.suppress(HttpError, TorrentdistError):
            if told.is_redirect:
                where = told.headers["location"]
                answer = await self._http.request("GET", where, patience=_GIVERS, anonymously=True)
            if answer.status_code == 200 and updates is not None and _is_update(answer):
                return await updates.take(answer.content, Digest(digest), by_master=answer is told)
            if answer.status_code == 200:
                return await in_heavy_thread(metafile_of, answer.content, digest)
        return None

    async def metafile_of(self, digest: Digest, first: Iterable[str] = ()) -> Metafile:
        """Returns the metafile with this digest from any master. Asks the URLs in `first` first."""
        urls = list(dict.fromkeys([*first, *self._urls()]))
        return await self._answer(f"/v1/metafiles/{digest}", urls, lambda told: metafile_of(told.content, digest))

    async def recipe(self, bundle: BundleId) -> bytes | None:
        """Returns the recipe of a bundle, as its record names it, from a master or from a host that
        a master names. None: there is none, or nobody gives it."""
        path = f"/v1/bundles/{bundle}/recipe"
        with contextlib.suppress(TorrentdistError):
            told = await self._answer(f"{path}?for={self._me}", self._urls(), _recipe_or_where)
            if isinstance(told, bytes):
                return told
            with contextlib.suppress(HttpError, TorrentdistError):
                where = told.headers["location"]
                response = await self._http.request("GET", where, patience=_GIVERS, anonymously=True)
                if response.status_code == 200 and recipe_hash(response.content) == _digest(told):
                    return response.content
            return await self._answer(path, self._urls(), _recipe_in)
        return None

    async def recipe_of(self, digest: Digest) -> bytes:
        """Returns the recipe of a digest that another master has."""
        return await self._first(f"/v1/recipes/{digest}", self._urls())

    async def flow_source(self, digest: Digest, flow: int, attempt: int) -> str:
        """Returns the URL at which a host outside this zone gives the pieces of a flow."""
        path = f"/v1/flows/{digest}/{flow}?for={self._me}&attempt={attempt}"
        return await self._answer(path, self._urls(), lambda told: told.headers["location"])

    async def pieces(self, url: str) -> bytes:
        """Returns what the host at this URL gives of a flow. Raises what it answers instead."""
        answer = await self._http.request("GET", url, patience=_GIVERS, anonymously=True)
        if (refusal := error_in(answer)) is not None:
            raise refusal
        return answer.content

    async def plugin_metafile(self, digest: Digest, first: Iterable[str] = ()) -> bytes:
        urls = list(dict.fromkeys([*first, *self._urls()]))
        return await self._first(f"/v1/metafiles/{digest}/plugin", urls)

    async def offer_metafile(self, digest: Digest, raw: bytes) -> None:
        """Sends a metafile to every master, for masters that have lost it."""
        for url in self._urls():
            with contextlib.suppress(HttpError):
                await self._http.request("PUT", f"{url}/v1/metafiles/{digest}", content=raw)

    async def exists(self, bundle: BundleId) -> bool:
        """Whether a bundle can be downloaded, as the first master says that answers."""

        async def read(told: Answer) -> bool:
            return True

        try:
            return await first_sound(self._http, self._urls(), f"/v1/bundles/{bundle}", read, _is_unknown)
        except TorrentdistError as error:
            if _is_unknown(error):
                return False
            raise

    async def bundles(self, after: str, limit: int) -> list[BundleView]:
        """Returns the bundles of the cluster that follow this id, as one master lists them."""
        path = f"/v1/bundles?limit={limit}&after={after}"
        return await self._answer(path, self._urls(), lambda told: decode(told, list[BundleView]))

    async def holders(self, bundle: BundleId) -> list[Holder]:
        """Returns the live masters that hold a bundle, according to any one master."""
        view = await self._answer(f"/v1/bundles/{bundle}", self._urls(), lambda told: decode(told, BundleView))
        cluster = await self._answer("/v1/cluster", self._urls(), lambda told: decode(told, ClusterView))
        return [Holder(m.id, m.url) for m in cluster.masters if m.id in view.holders]

    async def signatures(
        self, bundle: BundleId, accept: Callable[[Sequence[Envelope]], object]
    ) -> tuple[Envelope, ...]:
        """Returns the signatures that a master has of a bundle, from the first master whose
        signatures do not make `accept` raise an error."""

        def read(told: Answer) -> tuple[Envelope, ...]:
            found = tuple(decode(told, BundleView).signatures)
            accept(found)
            return found

        return await self._answer(f"/v1/bundles/{bundle}?uploading=true", self._urls(), read)

    async def _first(self, path: str, urls: Sequence[str]) -> bytes:
        return await self._answer(path, urls, lambda told: told.content)

    async def _answer(self, path: str, urls: Sequence[str], read: Callable[[Answer], T]) -> T:
        """Returns the first answer that `read` accepts. `read` runs in a thread, because a metafile
        may be large."""
        return await first_sound(self._http, urls, path, lambda answer: in_heavy_thread(read, answer))


def _is_unknown(error: TorrentdistError) -> bool:
    return error.code == "bundle_not_found"


def _metafile_or_answer(response: Answer) -> DatedMetafile | Answer:
    return response if response.is_redirect or _is_update(response) else _metafile_in(response)


def _is_update(response: Answer) -> bool:
    return response.headers.get("content-type") == UPDATE_TYPE


def _recipe_or_where(response: Answer) -> bytes | Answer:
    return response if response.is_redirect else _recipe_in(response)


def _recipe_in(response: Answer) -> bytes:
    if recipe_hash(response.content) != _digest(response):
        raise TorrentdistError("corrupt", path="a recipe", detail="it is not the one that the record names")
    return response.content


def _metafile_in(response: Answer) -> DatedMetafile:
    return DatedMetafile(metafile_of(response.content, _digest(response)), _zxid(response))


def _zxid(response: Answer) -> int:
    return age_in(response.headers).zxid or 0


def _digest(response: Answer) -> str:
    """Returns the digest that a master's answer names."""
    return str(response.headers.get(DIGEST, ""))
