"""Keeps a master's answers as new as their reader needs, and says in each answer how old it is.

An answer carries the newest ZooKeeper transaction that it shows; a request carries the newest that
its sender has seen.
Always: a request is answered from records that show what its sender has seen, or is refused with
`not_ready`. This master checks the newest records before it calls something missing.
Never: delay a change on a standby, which refuses it at once and names the leader.
"""

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
from torrentdist.model.wire.headers import CLUSTER, ZXID, AnswerAge, zxid_in

CATCH_UP_SECS = 0.6
"""Longest time to wait for newer records. It is shorter than a client's patience, so the client can
still ask another master or ask for old records. A master that has been cut off from ZooKeeper for
longer does not try."""
_GATED = "/v1/"
_LEADERS = "/v1/uploads/"
_NOT_THERE = ("bundle_not_found", "job_not_found", "not_for_host")

Handler = Callable[[Request], Awaitable[Response]]


def require_zookeeper(records: Records) -> None:
    """Raises `zookeeper_unavailable` at once, where asking ZooKeeper would only wait in vain."""
    secs = records.cut_off_secs()
    if secs > CATCH_UP_SECS:
        raise TorrentdistError("zookeeper_unavailable", detail=f"this master has been cut off from it for {secs:.0f} s")


def seen(header: str | None) -> int:
    """Returns the transaction that a sender says it has seen; 0 if it says nothing."""
    if header is None:
        return 0
    zxid = zxid_in(header)
    if zxid is None:
        raise TorrentdistError("invalid_request", detail=f"{ZXID}: {header[:40]!r} is no ZooKeeper transaction id")
    return zxid


def answered_here(method: str, path: str, leads: bool) -> bool:
    """Whether this master answers the request from its records, rather than refusing it."""
    return path.startswith(_GATED) and (leads or (method in ("GET", "HEAD") and not path.startswith(_LEADERS)))


def confirmed(handler: Handler, mirror: Mirror, records: Records) -> Handler:
    """Wraps a handler so that it calls something missing only after a look at the newest records.

    The sender may have heard of it from somebody else, without having seen any record itself. A
    read is then handled again. A change is never begun twice: its sender is told to repeat it.
    """

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
    """Whether the mirror has a record of it, a tombstone included."""
    id_ = missing.fields.get("id")
    return id_ in mirror.snapshot.bundles or id_ in mirror.snapshot.jobs


class Fresh:
    """Refuses requests that these records are too old for, and adds the age of the records to every
    answer.
    """

    def __init__(self, app: ASGIApp, mirror: Mirror, records: Records, leads: Callable[[], bool]) -> None:
        self._app = app
        self._mirror = mirror
        self._records = records
        self._leads = leads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        stale_secs = self._records.stale_secs() if scope["path"].startswith(_GATED) else None

        async def with_age(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._age(stale_secs).to_headers())
            await send(message)

        headers = Headers(scope=scope)
        try:
            if answered_here(scope["method"], scope["path"], self._leads()):
                await self._catch_up(seen(headers.get(ZXID)), headers.get(CLUSTER))
        except TorrentdistError as error:
            await json_response(error.to_wire(), status=error.http_status)(scope, receive, with_age)
            return
        await self._app(scope, receive, with_age)

    def _age(self, stale_secs: float | None) -> AnswerAge:
        """Returns the age of the records now.

        Its transaction may be newer than the answer, never older.
        """
        cluster = self._records.snapshot().cluster
        return AnswerAge(
            zxid=self._records.zxid() or None, cluster=cluster.id if cluster else None, stale_secs=stale_secs
        )

    async def _catch_up(self, zxid: int, cluster: str | None) -> None:
        """Waits until the records show `zxid`.

        After a sync they show all that this cluster's clients have seen, so a higher number comes
        from another ensemble, which was lost.
        """
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
