"""Who has seen a change sees it at every master: answers carry the ZooKeeper transaction that they show, requests bring
the highest one that their sender has seen.

Always holds: a request is answered from records that show at least what it brings, or is told that this master is
behind; nothing is called missing by records that may be old. Must not do: hold up a mutation at a standby, which
refuses it anyway and says where to go.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.session.arrival import lacks_cluster
from torrentdist.host.http.web import json_response
from torrentdist.master.reads.saved_records import Records
from torrentdist.model.errors import TorrentdistError

ZXID = "X-Zxid"
CLUSTER = "X-Cluster"
CATCH_UP_SECS = 0.6
"""Less than a client waits for an answer, so that it can ask another master, or for old records. A master that has been
cut off from ZooKeeper for longer does not try."""
_MAX_ZXID = 2**63 - 1
_GATED = "/v1/"
_LEADERS = "/v1/uploads/"
_NOT_THERE = ("bundle_not_found", "job_not_found")

Handler = Callable[[Request], Awaitable[Response]]


def seen(header: str | None) -> int:
    """The transaction that a sender says it has seen; 0 if it says nothing."""
    if header is None:
        return 0
    if not (header.isascii() and header.isdigit() and len(header) <= 19 and int(header) <= _MAX_ZXID):
        raise TorrentdistError("invalid_request", detail=f"{ZXID}: {header[:40]!r} is no ZooKeeper transaction id")
    return int(header)


def answered_here(method: str, path: str, leads: bool) -> bool:
    """Whether this master answers it from its records."""
    return path.startswith(_GATED) and (leads or (method in ("GET", "HEAD") and not path.startswith(_LEADERS)))


def confirmed(handler: Handler, mirror: Mirror, records: Records) -> Handler:
    """Whoever is about to say that something is not there looks at the newest records first: who asks may have seen
    nothing, and heard of it from somebody else. What would change something is not begun twice, but asked for again."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except TorrentdistError as error:
            if error.code not in _NOT_THERE or (records.from_file() and not lacks_cluster(mirror)):
                raise
            missing, knew = error, _knows(mirror, error)
        try:
            if records.cut_off_secs() > CATCH_UP_SECS:
                raise TorrentdistError("zookeeper_unavailable", detail="this master is cut off")
            await mirror.sync(CATCH_UP_SECS)
            incomplete = await mirror.incomplete()
        except TorrentdistError as error:
            raise TorrentdistError("not_ready", detail=f"it cannot tell whether that exists: {error.message}") from None
        if incomplete is not None and not _knows(mirror, missing):
            raise incomplete
        if request.method == "GET":
            return await handler(request)
        if _knows(mirror, missing) and not knew:
            raise TorrentdistError("not_ready", detail="the records have only just come")
        raise missing

    return handle


def _knows(mirror: Mirror, missing: TorrentdistError) -> bool:
    """Whether there is a record, be it a tombstone."""
    id_ = missing.fields.get("id")
    return id_ in mirror.snapshot.bundles or id_ in mirror.snapshot.jobs


class Fresh:
    """`leads`: whether this master leads now."""

    def __init__(self, app: ASGIApp, mirror: Mirror, records: Records, leads: Callable[[], bool]) -> None:
        self._app = app
        self._mirror = mirror
        self._records = records
        self._leads = leads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_zxid(message: Message) -> None:
            # At least what the answer shows: a higher one than that asks for more than is needed, never for less.
            if message["type"] == "http.response.start" and (shown := self._records.zxid()):
                headers = MutableHeaders(scope=message)
                headers[ZXID] = str(shown)
                if cluster := self._records.snapshot().cluster:
                    headers[CLUSTER] = cluster.id
            await send(message)

        headers = Headers(scope=scope)
        try:
            if answered_here(scope["method"], scope["path"], self._leads()):
                await self._catch_up(seen(headers.get(ZXID)), headers.get(CLUSTER))
        except TorrentdistError as error:
            await json_response(error.to_wire(), status=error.http_status)(scope, receive, with_zxid)
            return
        await self._app(scope, receive, with_zxid)

    async def _catch_up(self, zxid: int, cluster: str | None) -> None:
        """After a sync all is there that anybody has seen; what is asked for beyond is of another, lost ensemble."""
        own = self._records.snapshot().cluster
        if zxid <= self._records.zxid() or (cluster and own and cluster != own.id):
            return
        try:
            if self._records.cut_off_secs() > CATCH_UP_SECS:
                raise TorrentdistError("zookeeper_unavailable", detail="this master is cut off")
            await self._mirror.sync_to(zxid, CATCH_UP_SECS)
        except TorrentdistError as error:
            detail = f"it is behind what you have seen: {error.message}"
            raise TorrentdistError("not_ready", extra={"behind": True}, detail=detail) from None
