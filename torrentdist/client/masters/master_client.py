"""The calls of the masters' API that commands make, with their types.

Always: a call survives the loss of any master (master_requests.py).
Never: take part in a swarm.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from torrentdist.client.masters.list_pages import all_pages
from torrentdist.client.masters.master_requests import ANSWER_SECS, MasterRequests
from torrentdist.client.masters.read_race import LEADER_SECS, READ_SECS
from torrentdist.http.api_calls import Broken, Request, result_of
from torrentdist.http.http_values import Answer
from torrentdist.model.access.envelope import Envelope
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, MasterId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.bundle_messages import BundleView, ReuseView, UploadOffset
from torrentdist.model.wire.cluster_messages import ClusterView
from torrentdist.model.wire.fleet_messages import DistributeBody, DistributionSummary, FleetView
from torrentdist.model.wire.ha_views import FailoverView, LeaderTransferView, LeaderView, RoleView, TransferBody
from torrentdist.model.wire.headers import DIGEST
from torrentdist.traces.spans import TRACEPARENT

if TYPE_CHECKING:  # Most commands start faster without it.
    from torrentdist.bundle.metafile import Metafile

BACKUP_SECS = 10.0
"""How long a backup's answer may take to begin: the master reads all records from ZooKeeper."""
MOST_BACKUP_BYTES = 1024**3
CHUNK_SECS = 60.0
"""How long one part of an upload, or one metafile, may take."""
REUSE_SECS = 10.0
"""How long a master may look for what it has of a bundle."""
RECIPE_SECS = 5.0
"""How long to look for a recipe, without which a download works as well."""
LONGEST_POLL_SECS = 2.0
"""Longest wait at a master for news. Each new request also learns what the wait is for."""
POLL_PAUSE_SECS = 0.2
"""Pause between polls if a master answers at once without news."""


class MasterClient(MasterRequests):
    """The masters of one cluster, as a command uses them."""

    async def cluster(self) -> ClusterView:
        """Returns the cluster as the leader sees it, if the leader answers at once: only the leader
        hears from supervisors."""
        clock = asyncio.get_running_loop().time
        end = clock() + READ_SECS
        view = await self.read("GET", "/v1/cluster", ClusterView)
        self.learn(master.url for master in view.masters)
        leader = next((master.url for master in view.masters if master.is_leader), None)
        left = min(LEADER_SECS, end - clock())
        if leader is not None and left > 0 and any(supervisor.silent_secs is None for supervisor in view.supervisors):
            with contextlib.suppress(Broken, TorrentdistError):
                request = Request("GET", "/v1/cluster", timeout=left)
                response, _ = await self.send_once(leader, request, takes_old=False)
                view = result_of(response, ClusterView)
        return view

    async def leader(self) -> LeaderView:
        return await self.read("GET", "/v1/leader", LeaderView)

    async def roles(self) -> list[RoleView]:
        return await self.read("GET", "/v1/roles", list[RoleView])

    async def failovers(self, count: int) -> list[FailoverView]:
        return await self.read("GET", "/v1/failovers", list[FailoverView], params={"n": str(count)})

    async def distributions(self, bundle: BundleId | None) -> list[DistributionSummary]:
        """Returns what distributions did, of one bundle or of all, the newest first."""
        params = {} if bundle is None else {"bundle": bundle}
        return await self.read("GET", "/v1/distributions", list[DistributionSummary], params=params)

    async def transfer(self, master: MasterId) -> LeaderTransferView:
        request = Request("POST", "/v1/transfer", content=msgspec.json.encode(TransferBody(master)))
        return await self.mutate(request, LeaderTransferView)

    async def backup(self) -> bytes:
        """Returns every persistent record of the cluster, as a file that decode_backup() checks."""
        request = Request("GET", "/v1/backup", timeout=CHUNK_SECS, silence=BACKUP_SECS, most_bytes=MOST_BACKUP_BYTES)
        return await self.read_patiently(request, lambda response: response.content, BACKUP_SECS)

    async def bundles(self) -> list[BundleView]:
        return await all_pages(
            lambda page: self.read("GET", "/v1/bundles", list[BundleView], params=page), lambda bundle: bundle.id
        )

    async def bundle(self, bundle_id: BundleId) -> BundleView:
        return await self.read("GET", f"/v1/bundles/{bundle_id}", BundleView)

    async def hosts(self, bundle_id: BundleId) -> FleetView:
        return await self.read("GET", f"/v1/bundles/{bundle_id}/hosts", FleetView)

    async def metafile(self, bundle_id: BundleId) -> Metafile:
        """Returns a bundle's metafile from a master whose copy is intact. Raises `corrupt` if no
        copy is."""
        from torrentdist.bundle.metafile import metafile_of

        damaged: list[TorrentdistError] = []

        def parse(response: Answer) -> Metafile:
            try:
                return metafile_of(response.content, response.headers.get(DIGEST, ""))
            except TorrentdistError as exc:
                damaged[:] = [exc]
                raise Broken(exc.message, sent=True) from exc

        request = Request("GET", f"/v1/bundles/{bundle_id}/metafile", timeout=CHUNK_SECS, silence=ANSWER_SECS)
        try:
            return await self.read_patiently(request, parse, self.config.deadline_secs)
        except TorrentdistError as error:
            if error.code != "unreachable" or not damaged:
                raise
            damaged[0].extra.update(error.extra)
            raise damaged[0] from None

    async def wait_replicas(
        self,
        bundle_id: BundleId,
        replicas: int,
        timeout: float,
        progress: Callable[[BundleView], None] = lambda view: None,
        seen: int = -1,
    ) -> BundleView:
        """Waits until that many live masters hold the bundle and it can be downloaded, or for
        `timeout` seconds. `seen`: how many held it in the last answer; -1: there was none."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        while True:
            asked_at = clock()
            secs = max(0.0, min(LONGEST_POLL_SECS, deadline - asked_at))
            # Ask for one more than there are, in order to show each new replica.
            params = {"replicas": str(min(replicas, seen + 1)), "timeout": f"{secs:.3f}"}
            view = await self.ask_patiently("GET", f"/v1/bundles/{bundle_id}/wait", BundleView, params=params)
            progress(view)
            usable = view.state is not BundleState.UPLOADING or replicas == 0
            if (view.replicas >= replicas and usable) or clock() >= deadline:
                return view
            if view.replicas <= seen and clock() - asked_at < POLL_PAUSE_SECS:
                await asyncio.sleep(min(POLL_PAUSE_SECS, deadline - clock()))
            seen = view.replicas

    async def recipe(self, bundle_id: BundleId) -> bytes | None:
        """Returns the recipe of a bundle from any master that has it. None: there is none, or no
        master gives it."""
        request = Request("GET", f"/v1/bundles/{bundle_id}/recipe", timeout=CHUNK_SECS, silence=ANSWER_SECS)
        with contextlib.suppress(TorrentdistError):
            return await self.read_patiently(request, lambda response: response.content, RECIPE_SECS)
        return None

    async def offer_recipe(self, bundle_id: BundleId, raw: bytes) -> str:
        """Gives the leader the recipe of an upload that is opened next. Returns its hash; empty if
        the leader takes none."""
        from torrentdist.bundle.reuse.recipe import recipe_hash

        request = Request("PUT", f"/v1/bundles/{bundle_id}/recipe", content=raw, timeout=CHUNK_SECS)
        with contextlib.suppress(TorrentdistError):
            await self.mutate(request, UploadOffset)
            return recipe_hash(raw)
        return ""

    async def open_upload(
        self,
        bundle_id: BundleId,
        raw_metafile: bytes,
        min_replicas: int | None,
        recipe: str = "",
        traceparent: str = "",
        *,
        again: bool = False,
    ) -> BundleView:
        """`recipe`: the hash of the recipe that was offered before. `traceparent`: names the span
        of the upload. `again`: it was opened before, and ends if the bundle was removed since."""
        params = {} if min_replicas is None else {"min_replicas": str(min_replicas)}
        params |= ({"recipe": recipe} if recipe else {}) | ({"again": "true"} if again else {})
        headers = {"Content-Type": "application/x-bittorrent"}
        headers |= {TRACEPARENT: traceparent} if traceparent else {}
        path = f"/v1/bundles/{bundle_id}"
        request = Request("POST", path, params=params, content=raw_metafile, headers=headers, timeout=CHUNK_SECS)
        return await self.mutate(request, BundleView)

    async def add_signature(self, bundle_id: BundleId, envelope: Envelope) -> BundleView:
        path = f"/v1/bundles/{bundle_id}/signatures"
        return await self.mutate(Request("POST", path, content=msgspec.json.encode(envelope)), BundleView)

    async def file(self, bundle_id: BundleId, name: str) -> bytes:
        """Returns one small file of a bundle from any master that holds it, without verifying
        it."""
        request = Request("GET", f"/v1/bundles/{bundle_id}/files/{name}", timeout=CHUNK_SECS, silence=ANSWER_SECS)
        return await self.read_patiently(request, lambda response: response.content, self.config.deadline_secs)

    async def reuse(self, meta: Metafile, recipe: bytes | None) -> ReuseView:
        """Returns what a master has already of this bundle. Each is asked once: one of an older
        release cannot tell."""
        from torrentdist.bundle.reuse.recipe import with_recipe

        headers = {"Content-Type": "application/x-bittorrent"}
        request = Request("POST", "/v1/reuse", content=with_recipe(meta.raw, recipe), headers=headers)
        return await self._race(request, ReuseView, REUSE_SECS, rounds=1)

    async def remove(self, bundle_id: BundleId) -> BundleView:
        return await self.mutate(Request("DELETE", f"/v1/bundles/{bundle_id}"), BundleView)

    async def pin(self, bundle_id: BundleId) -> BundleView:
        return await self.mutate(Request("PUT", f"/v1/bundles/{bundle_id}/pin"), BundleView)

    async def unpin(self, bundle_id: BundleId) -> BundleView:
        return await self.mutate(Request("DELETE", f"/v1/bundles/{bundle_id}/pin"), BundleView)

    async def distribute(self, bundle_id: BundleId, body: DistributeBody) -> FleetView:
        """Tells supervisors to fetch and keep the bundle."""
        content = msgspec.json.encode(body)
        return await self.mutate(Request("POST", f"/v1/bundles/{bundle_id}/distribute", content=content), FleetView)

    async def upload_offset(self, digest: Digest) -> UploadOffset:
        return await self.mutate(Request("GET", f"/v1/uploads/{digest}"), UploadOffset)

    async def put_bytes(self, digest: Digest, offset: int, data: bytes) -> UploadOffset:
        """Appends to an open upload. Returns where to continue, which may be earlier after a
        failover."""
        params = {"offset": str(offset)}
        headers = {"Content-Type": "application/octet-stream"}
        path = f"/v1/uploads/{digest}"
        request = Request("PUT", path, params=params, content=data, headers=headers, timeout=CHUNK_SECS)
        try:
            return await self.mutate(request, UploadOffset)
        except TorrentdistError as error:
            if error.code != "invalid_request" or "offset" not in error.extra:
                raise
            return await self.upload_offset(digest)

    async def prove(self, bundle_id: BundleId, digest: Digest, offset: int, data: bytes) -> UploadOffset:
        """Shows the masters the next bytes of content that they have already."""
        params = {"digest": digest, "offset": str(offset)}
        headers = {"Content-Type": "application/octet-stream"}
        path = f"/v1/bundles/{bundle_id}/proof"
        request = Request("PUT", path, params=params, content=data, headers=headers, timeout=CHUNK_SECS)
        return await self.mutate(request, UploadOffset)

    async def finish_upload(self, digest: Digest) -> BundleView:
        return await self.mutate(Request("POST", f"/v1/uploads/{digest}/finish", timeout=CHUNK_SECS), BundleView)
