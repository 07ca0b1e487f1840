"""The HTTP API of a master: which request is answered by what. docs/protocol.md is its text, /openapi.json its schema.

Any master answers reads from its mirror; mutations go through the leader's operations and are refused elsewhere.
Must not do: decide anything. Handlers check what comes in, call one thing, and render a view.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from torrentdist.bundle.metafile import parse_metafile, with_trackers
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.arrival import lacks_cluster
from torrentdist.host.http.file_answers import FILE_TYPE, file_response, path_response
from torrentdist.host.http.http_conditions import Representation
from torrentdist.host.http.web import (
    BearerAuth,
    decode_body,
    json_response,
    number_parameter,
    on_http_error,
    on_torrentdist_error,
    on_unexpected_error,
    read_body,
)
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.master.bundles import bundle_views
from torrentdist.master.bundles.bundle_operations import targets
from torrentdist.master.http.job_api import JOB_OPERATIONS, JobApi
from torrentdist.master.http.mutation_requests import answered, mutation_of, page_of
from torrentdist.master.http.openapi import Operation, openapi_document
from torrentdist.master.leading.leader_transfer import transfer
from torrentdist.master.leading.roles import dial
from torrentdist.master.reads.answer_freshness import CATCH_UP_SECS, Fresh, confirmed
from torrentdist.model import ids
from torrentdist.model.backup import Backup
from torrentdist.model.errors import EXIT_DISK, NO_CLUSTER, TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.bundle_messages import BundleView, UploadOffset
from torrentdist.model.wire.cluster_messages import ClusterView, HealthView
from torrentdist.model.wire.fleet_messages import DistributeBody, FleetView
from torrentdist.model.wire.ha_views import (
    DialView,
    FailoverView,
    LeaderTransferView,
    LeaderView,
    RoleView,
    TransferBody,
)
from torrentdist.model.wire.headers import DIGEST
from torrentdist.model.wire.swarm_messages import SwarmAnnounce, SwarmAnswer

if TYPE_CHECKING:
    from torrentdist.master.daemon import Master

Handler = Callable[[Request], Awaitable[Response]]
ALIVE = (BundleState.UPLOADING, BundleState.AVAILABLE, BundleState.LOST)
MAX_ANNOUNCE_BYTES = 8 * 1024 * 1024
LONGEST_POLL = 2.0
"""A client that hears nothing for longer takes this master for frozen."""
MOST_POLL = 30.0
"""What it may ask for all the same."""
ARRIVES_SECS = 2
"""A host that was told who else gives it a metafile waits so long for that one to have it."""
DEFAULT_FAILOVERS = 10


def _bundle(request: Request) -> BundleId:
    return ids.bundle_id(request.path_params["id"])


class MasterApi:
    def __init__(self, master: Master) -> None:
        self._m = master

    async def on_error(self, request: Request, exc: Exception) -> Response:
        """What old records lack may be there all the same: another master is asked."""
        if isinstance(exc, TorrentdistError) and exc.code == "bundle_not_found" and self._m.records.from_file():
            detail = (
                f"{exc.message} in the records that this master saved {self._m.records.stale_secs() or 0:.0f} s ago"
            )
            exc = TorrentdistError("zookeeper_unavailable", detail=detail)
        return await on_torrentdist_error(request, exc)

    # health

    async def livez(self, _: Request) -> Response:
        return Response("ok\n")

    async def readyz(self, _: Request) -> Response:
        failing = self._m.failing_checks()
        return json_response(HealthView(ok=not failing, failing=failing), status=503 if failing else 200)

    async def leaderz(self, _: Request) -> Response:
        leads = self._m.leadership.is_leader()
        return Response("leader\n" if leads else "standby\n", status_code=200 if leads else 503)

    async def metrics(self, _: Request) -> Response:
        return Response(self._m.metrics.render(), media_type="text/plain; version=0.0.4")

    async def openapi(self, _: Request) -> Response:
        return json_response(openapi_document((*OPERATIONS, *JOB_OPERATIONS)))

    # reads

    async def cluster(self, _: Request) -> Response:
        snapshot = self._m.snapshot()
        silent = self._m.jobs.silent_secs(snapshot)
        view = bundle_views.cluster_view(
            snapshot, self._m.leadership.leader_id(), time.time(), silent, self._m.swarms.held
        )
        problem = NO_CLUSTER if lacks_cluster(self._m.mirror) else ""
        return json_response(msgspec.structs.replace(view, stale_secs=self._m.records.stale_secs(), problem=problem))

    async def leader(self, _: Request) -> Response:
        view = self._m.leadership.leader_view()
        return json_response(msgspec.structs.replace(view, stale_secs=self._m.records.stale_secs()))

    async def role(self, _: Request) -> Response:
        return json_response(self._m.role())

    async def roles(self, _: Request) -> Response:
        return json_response(await self._m.roles.all())

    async def dial(self, request: Request) -> Response:
        """Nobody's address but the sender's own, so that it helps nobody to look at other hosts."""
        port = int(number_parameter(request, "port", 0, low=1, high=65535))
        return json_response(await dial(_source(request), port))

    async def failovers(self, request: Request) -> Response:
        count = int(number_parameter(request, "n", DEFAULT_FAILOVERS, low=1, high=1000))
        self._require_zookeeper()
        try:
            async with asyncio.timeout(CATCH_UP_SECS):
                found = await self._m.leadership.failovers(count)
        except TimeoutError:
            raise TorrentdistError("zookeeper_unavailable", detail="no answer about the failovers") from None
        return json_response([bundle_views.failover_view(r) for r in found])

    async def saved(self, _: Request) -> Response:
        return Response(await asyncio.to_thread(self._m.records.file), media_type="application/octet-stream")

    def _require_zookeeper(self) -> None:
        """Who asks is told at once, instead of when ZooKeeper has not answered in time."""
        secs = self._m.records.cut_off_secs()
        if secs > CATCH_UP_SECS:
            detail = f"this master has been cut off from it for {secs:.0f} s"
            raise TorrentdistError("zookeeper_unavailable", detail=detail)

    async def backup(self, _: Request) -> Response:
        self._require_zookeeper()
        return Response(await self._m.backup(), media_type="application/json")

    async def bundles(self, request: Request) -> Response:
        return json_response(bundle_views.bundle_list(self._m.snapshot(), self._m.server_now(), page_of(request)))

    async def bundle(self, request: Request) -> Response:
        bundle, snapshot = _bundle(request), self._m.snapshot()
        states = ALIVE if request.query_params.get("uploading") == "true" else bundle_views.LISTED
        bundle_views.entry_of(snapshot, bundle, *states)
        view = bundle_views.bundle_view(snapshot, bundle)
        return json_response(bundle_views.with_stuck(view, self._m.swarms.members(view.digest)))

    async def wait(self, request: Request) -> Response:
        bundle = _bundle(request)
        replicas = int(number_parameter(request, "replicas", 1, low=0, high=1000))
        timeout = min(LONGEST_POLL, number_parameter(request, "timeout", LONGEST_POLL, low=0, high=MOST_POLL))
        bundle_views.entry_of(self._m.snapshot(), bundle, *ALIVE)
        with contextlib.suppress(TorrentdistError):  # the time is over: what is there is the answer
            await self._m.mirror.wait_for(lambda s: bundle_views.replicated(s, bundle, replicas), timeout)
        snapshot = self._m.snapshot()
        entry = bundle_views.entry_of(snapshot, bundle, *ALIVE)
        failure = self._m.runtime.failure(entry.record.digest)
        alone = not snapshot.holders(bundle) and len(snapshot.masters) == 1
        if alone and failure is not None and failure.exit_code == EXIT_DISK:
            raise failure  # there is nobody else who could take it
        view = bundle_views.bundle_view(snapshot, bundle)
        said = self._m.swarms.members(view.digest)
        return json_response(msgspec.structs.replace(view, lacking=bundle_views.lacking(snapshot, bundle, said)))

    async def metafile(self, request: Request) -> Response:
        entry = bundle_views.entry_of(self._m.snapshot(), _bundle(request), *bundle_views.LISTED)
        raw = await self._m.raw_metafile(entry.record.digest)
        digest = entry.record.digest
        asker = request.query_params.get("for", "")
        if asker and (giver := self._m.swarms.giver(digest, len(raw), asker)) is not None:
            where = f"{giver}/v1/metafiles/{digest}?wait={ARRIVES_SECS}"
            return RedirectResponse(where, headers={DIGEST: digest})
        if request.query_params.get("tracker") == "true":
            raw = await in_heavy_thread(with_trackers, raw, self._m.swarms.tracker_urls(digest))
        return await _metafile_response(request, raw, digest)

    async def metafile_by_digest(self, request: Request) -> Response:
        digest = ids.digest(request.path_params["digest"])
        raw = await asyncio.to_thread(self._m.runtime.store.raw_metafile, digest)
        if raw is None:
            raise TorrentdistError("not_found", what=f"a metafile of {digest} on this master")
        return await _metafile_response(request, raw, digest)

    async def restore_metafile(self, request: Request) -> Response:
        """From a peer of the swarm, when the masters have lost it: the digest says that it is the right one."""
        digest = ids.digest(request.path_params["digest"])
        known = any(e.record.digest == digest and e.record.state in ALIVE for e in self._m.snapshot().bundles.values())
        if not known:
            raise TorrentdistError("not_found", what=f"a bundle with digest {digest}")
        meta = await in_heavy_thread(parse_metafile, await read_body(request, self._m.config.api.max_request_bytes))
        if meta.digest != digest:
            raise TorrentdistError("corrupt", path=f"the metafile of {digest}", detail=f"it belongs to {meta.digest}")
        await asyncio.to_thread(self._m.runtime.store.begin, meta)
        self._m.swarms.got_metafile(digest)
        self._m.replicator.retry(digest)
        return Response(status_code=204)

    async def plugin_metafile(self, request: Request) -> Response:
        digest = ids.digest(request.path_params["digest"])
        path = self._m.runtime.object_dir(digest) / "distributor-metafile"
        if not await asyncio.to_thread(path.is_file):
            raise TorrentdistError("not_found", what=f"a plug-in's metafile of {digest} on this master")
        shown = await asyncio.to_thread(lambda: Representation(f"{digest}.plugin", path.stat().st_size))
        return path_response(request, path, shown, digest, FILE_TYPE)

    async def file(self, request: Request) -> Response:
        bundle = _bundle(request)
        entry = bundle_views.entry_of(self._m.snapshot(), bundle, *ALIVE)
        stored = self._m.runtime.store.get(entry.record.digest)
        if stored is None:
            raise TorrentdistError("bundle_unavailable", id=bundle, detail="this master does not hold it")
        path = await self._m.hand_outs.file(stored.digest, request.path_params["path"])
        if path is None:
            raise TorrentdistError("bundle_unavailable", id=bundle, detail="this master's copy is being fetched again")
        return await asyncio.to_thread(file_response, request, stored.content, path, stored.digest, stored.published_at)

    async def hosts(self, request: Request) -> Response:
        bundle, snapshot = _bundle(request), self._m.snapshot()
        bundle_views.entry_of(snapshot, bundle, *bundle_views.LISTED)
        return json_response(self._m.fleet(snapshot, bundle))

    # mutations

    async def transfer(self, request: Request) -> Response:
        m, raw = self._m, await read_body(request, 64 * 1024)
        target = ids.master_id(decode_body(raw, TransferBody).master)
        mutation = await mutation_of(request, raw)
        return answered(await transfer(m.id, target, mutation, m.leadership, m.mirror, m.roles, m.changes))

    async def open_upload(self, request: Request) -> Response:
        bundle = _bundle(request)
        wanted = int(number_parameter(request, "min_replicas", 0, low=0, high=1000))
        self._m.leadership.fence()  # refuse before the body is read
        body = await read_body(request, self._m.config.api.max_request_bytes)
        meta = await in_heavy_thread(parse_metafile, body)
        return answered(await self._m.intake.open(await mutation_of(request, body), bundle, meta, wanted or None))

    async def remove(self, request: Request) -> Response:
        bundle = _bundle(request)
        return answered(await self._m.operations.remove(await mutation_of(request), bundle))

    async def pin(self, request: Request) -> Response:
        bundle = _bundle(request)
        mutation = await mutation_of(request)
        return answered(await self._m.operations.set_pinned(mutation, bundle, request.method == "PUT"))

    async def distribute(self, request: Request) -> Response:
        bundle = _bundle(request)
        raw = await read_body(request, self._m.config.api.max_request_bytes)
        body = decode_body(raw or b"{}", DistributeBody)
        named = None if body.supervisors is None else [ids.supervisor_id(s) for s in body.supervisors]

        def render(snapshot: ClusterSnapshot) -> FleetView:
            meant = targets(snapshot, named, body.labels)
            fleet = self._m.fleet(snapshot, bundle)
            hosts = [host for host in fleet.hosts if host.supervisor in meant]
            return msgspec.structs.replace(fleet, hosts=hosts)

        mutation = await mutation_of(request, raw)
        return answered(await self._m.operations.distribute(mutation, bundle, named, body.labels, render))

    async def upload_bytes(self, request: Request) -> Response:
        digest = ids.digest(request.path_params["digest"])
        offset = int(number_parameter(request, "offset", 0, low=0, high=2**62))
        self._m.leadership.fence()
        data = await read_body(request, self._m.config.api.max_request_bytes)
        return json_response(UploadOffset(await self._m.intake.append(digest, offset, data)))

    async def upload_offset(self, request: Request) -> Response:
        self._m.leadership.fence()
        return json_response(UploadOffset(await self._m.intake.offset(ids.digest(request.path_params["digest"]))))

    async def upload_finish(self, request: Request) -> Response:
        self._m.leadership.fence()
        digest = ids.digest(request.path_params["digest"])
        return answered(await self._m.intake.finish(await mutation_of(request), digest))

    # swarms

    async def swarm(self, request: Request) -> Response:
        announce = decode_body(await read_body(request, MAX_ANNOUNCE_BYTES), SwarmAnnounce)
        await self._m.newer.wait_for_those_of(announce)
        return json_response(self._m.swarms.hear(announce, _source(request)))

    async def tracker(self, request: Request) -> Response:
        body = self._m.swarms.hear_stock(request.scope["query_string"], request.path_params["key"], _source(request))
        return Response(body, media_type="text/plain")


def _source(request: Request) -> str:
    return request.client.host if request.client else "127.0.0.1"


async def _metafile_response(request: Request, raw: bytes, digest: str) -> Response:
    headers = {DIGEST: digest, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        raw = await in_heavy_thread(gzip.compress, raw, 3)
        headers["Content-Encoding"] = "gzip"
    return Response(raw, media_type="application/x-bittorrent", headers=headers)


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/livez", "livez", None, "the process answers"),
    Operation("GET", "/readyz", "readyz", HealthView, "whether it can do its work; failing checks by name"),
    Operation("GET", "/leaderz", "leaderz", None, "200 if it leads, else 503"),
    Operation("GET", "/metrics", "metrics", None, "Prometheus text"),
    Operation("GET", "/openapi.json", "openapi", None, "this document"),
    Operation("GET", "/v1/cluster", "cluster", ClusterView, "masters, supervisors and counts"),
    Operation("GET", "/v1/leader", "leader", LeaderView, "who leads, since when, in which epoch"),
    Operation("GET", "/v1/role", "role", RoleView, "this master's state, epoch and lag"),
    Operation("GET", "/v1/roles", "roles", list[RoleView], "the same of every registered master, asked now"),
    Operation("GET", "/v1/failovers", "failovers", list[FailoverView], "the last changes of leader, the newest first"),
    Operation("GET", "/v1/dial", "dial", DialView, "whether this master can connect back to a port of the sender"),
    Operation("GET", "/v1/snapshot", "saved", None, "the records that this master has saved, for another master"),
    Operation("GET", "/v1/backup", "backup", Backup, "every persistent record, checksummed"),
    Operation("POST", "/v1/transfer", "transfer", LeaderTransferView, "hand the leadership to a master",
              body=TransferBody),
    Operation("GET", "/v1/bundles", "bundles", list[BundleView], "every bundle that can be downloaded, or is lost",
              paged=True),
    Operation("GET", "/v1/bundles/{id}", "bundle", BundleView, "one bundle"),
    Operation("GET", "/v1/bundles/{id}/wait", "wait", BundleView, "long poll until so many masters hold it"),
    Operation("GET", "/v1/bundles/{id}/metafile", "metafile", None, "the BitTorrent v2 metafile"),
    Operation("GET", "/v1/metafiles/{digest}", "metafile_by_digest", None, "the metafile of a digest"),
    Operation("PUT", "/v1/metafiles/{digest}", "restore_metafile", None, "a metafile that the masters have lost"),
    Operation("GET", "/v1/metafiles/{digest}/plugin", "plugin_metafile", None, "what the plug-in's upload() made"),
    Operation("GET", "/v1/bundles/{id}/files/{path:any_path}", "file", None, "one file of a bundle held here"),
    Operation("GET", "/v1/bundles/{id}/hosts", "hosts", FleetView, "how far each host is that is told to keep it"),
    Operation("POST", "/v1/bundles/{id}", "open_upload", BundleView, "open an upload; the body is the metafile"),
    Operation("DELETE", "/v1/bundles/{id}", "remove", BundleView, "remove the bundle everywhere"),
    Operation("PUT", "/v1/bundles/{id}/pin", "pin", BundleView, "never remove it nor drop it for room"),
    Operation("DELETE", "/v1/bundles/{id}/pin", "pin", BundleView, "undo pin"),
    Operation("POST", "/v1/bundles/{id}/distribute", "distribute", FleetView, "tell hosts to fetch and keep it",
              body=DistributeBody),
    Operation("PUT", "/v1/uploads/{digest}", "upload_bytes", UploadOffset, "append bytes at an offset"),
    Operation("GET", "/v1/uploads/{digest}", "upload_offset", UploadOffset, "where to go on"),
    Operation("POST", "/v1/uploads/{digest}/finish", "upload_finish", BundleView, "verify and publish"),
    Operation("POST", "/v1/swarm", "swarm", SwarmAnswer, "a peer tells which swarms it is in", body=SwarmAnnounce),
    Operation("GET", "/announce/{key}", "tracker", None, "the BitTorrent announce"),
)  # fmt: skip


def master_app(master: Master, token: str | None) -> ASGIApp:
    api, jobs = MasterApi(master), JobApi(master)
    handlers = [(op, getattr(api, op.handler)) for op in OPERATIONS]
    handlers += [(op, getattr(jobs, op.handler)) for op in JOB_OPERATIONS]
    looks = [(op, confirmed(handler, master.mirror, master.records)) for op, handler in handlers]
    routes = [Route(op.path, handler, methods=[op.method]) for op, handler in looks]
    app = Starlette(
        routes=routes,
        exception_handlers={
            TorrentdistError: api.on_error,
            404: on_http_error,
            405: on_http_error,
            Exception: on_unexpected_error,
        },
    )
    fresh = Fresh(app, master.mirror, master.records, master.leadership.is_leader)
    return BearerAuth(fresh, token, ("/livez", "/announce/")) if token is not None else fresh
