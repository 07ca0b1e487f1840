"""Metafiles: of a bundle, of a digest, what a plug-in made, and one that the masters have lost.

Always: a metafile is accepted only under the digest that it has.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Iterator

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from torrentdist.bundle.metafile import parse_metafile, with_trackers
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.file_answers import FILE_TYPE, path_response
from torrentdist.host.http.http_conditions import Representation
from torrentdist.host.http.operation import FILE, Operation, body_of
from torrentdist.host.http.web import flag_parameter
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.host.runtime import HostRuntime
from torrentdist.master.bundles import bundle_views
from torrentdist.master.bundles.raw_metafiles import RawMetafiles
from torrentdist.master.http.mutation_requests import bundle_of, bundle_target, digest_of, records_for
from torrentdist.master.reads.saved_records import Records
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.headers import DIGEST
from torrentdist.security.authorization import may_read_content
from torrentdist.security.passes import PARAMETER
from torrentdist.security.principal import Role

ARRIVES_SECS = 2
"""Seconds for which a host waits for a metafile at the host that it was sent to."""


class MetafileApi:
    """`retry` fetches a bundle again whose metafile has come back.

    `max_body`: bytes of the largest metafile.
    """

    def __init__(
        self,
        records: Records,
        runtime: HostRuntime,
        swarms: Swarms,
        raw_metafiles: RawMetafiles,
        retry: Callable[[Digest], None],
        max_body: int,
    ) -> None:
        self._records = records
        self._runtime = runtime
        self._swarms = swarms
        self._raw_metafiles = raw_metafiles
        self._retry = retry
        self._max_body = max_body

    def operations(self) -> Iterator[Operation]:
        of_bundle, of_digest = "/v1/bundles/{id}/metafile", "/v1/metafiles/{digest}"
        yield Operation(
            "GET",
            of_bundle,
            self.metafile,
            None,
            "the BitTorrent v2 metafile",
            Role.JOB,
            statuses=(200, 307),
            hands_out=bundle_target,
        )
        summary = "the metafile of a digest"
        yield Operation(
            "GET", of_digest, self.metafile_by_digest, None, summary, Role.READER, hands_out=self._names_of_digest
        )
        summary = "a metafile that the masters have lost"
        yield Operation(
            "PUT",
            of_digest,
            self.restore_metafile,
            None,
            summary,
            Role.READER,
            max_body=self._max_body,
            statuses=(204,),
        )
        summary = "what the plug-in's upload() made"
        yield Operation(
            "GET",
            f"{of_digest}/plugin",
            self.plugin_metafile,
            None,
            summary,
            Role.READER,
            statuses=FILE,
            hands_out=self._names_of_digest,
        )

    async def _names_of_digest(self, request: Request) -> list[BundleId]:
        return self._swarms.names(digest_of(request))

    def _may_read(self, request: Request) -> bool:
        return may_read_content(principal_of(request), self._swarms.names(digest_of(request)))

    async def metafile(self, request: Request) -> Response:
        entry = bundle_views.entry_of(records_for(request, self._records), bundle_of(request), *bundle_views.LISTED)
        digest = entry.record.digest
        raw = await self._raw_metafiles.of(digest)
        asker = request.query_params.get("for", "")
        if asker and (giver := self._swarms.giver(digest, len(raw), asker)) is not None:
            path = f"/v1/metafiles/{digest}"
            where = (
                f"{giver.url}{path}?wait={ARRIVES_SECS}&{PARAMETER}={self._records.secrets.new_pass(giver.id, path)}"
            )
            return RedirectResponse(where, headers={DIGEST: digest})
        if flag_parameter(request, "tracker"):
            raw = await in_heavy_thread(with_trackers, raw, self._swarms.tracker_urls(digest))
        return await _metafile_response(request, raw, digest)

    async def metafile_by_digest(self, request: Request) -> Response:
        digest = digest_of(request)
        raw = await self._runtime.store.raw_metafile(digest) if self._may_read(request) else None
        if raw is None:
            raise TorrentdistError("not_found", what=f"a metafile of {digest} on this master")
        return await _metafile_response(request, raw, digest)

    async def restore_metafile(self, request: Request) -> Response:
        """Takes a metafile back from a peer of the swarm.

        The digest proves that it is the right one.
        """
        digest = digest_of(request)
        entries = records_for(request, self._records).bundles.values()
        if not any(e.record.digest == digest and e.record.state in bundle_views.ALIVE for e in entries):
            raise TorrentdistError("not_found", what=f"a bundle with digest {digest}")
        meta = await in_heavy_thread(parse_metafile, await body_of(request))
        if meta.digest != digest:
            raise TorrentdistError("corrupt", path=f"the metafile of {digest}", detail=f"it belongs to {meta.digest}")
        await self._runtime.store.begin(meta)
        self._swarms.got_metafile(digest)
        self._retry(digest)
        return Response(status_code=204)

    async def plugin_metafile(self, request: Request) -> Response:
        digest = digest_of(request)
        path = self._runtime.store.object_dir(digest) / "distributor-metafile"
        if not self._may_read(request) or not await asyncio.to_thread(path.is_file):
            raise TorrentdistError("not_found", what=f"a plug-in's metafile of {digest} on this master")
        shown = await asyncio.to_thread(lambda: Representation(f"{digest}.plugin", path.stat().st_size))
        return path_response(request, path, shown, digest, FILE_TYPE)


async def _metafile_response(request: Request, raw: bytes, digest: str) -> Response:
    headers = {DIGEST: digest, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        raw = await in_heavy_thread(gzip.compress, raw, 3)
        headers["Content-Encoding"] = "gzip"
    return Response(raw, media_type="application/x-bittorrent", headers=headers)
