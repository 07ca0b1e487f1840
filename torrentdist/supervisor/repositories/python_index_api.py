"""A package index for pip and uv over the gateway: the wheels and sdists of one bundle.

Always: a page tells the SHA-256 of each of its files, so it waits until the files of its project
have arrived. Until then it sends blanks, which HTML and JSON allow. The other files of the bundle
may arrive later. A file comes from bundle_reader.py, as under /bundles/.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.file_answers import FILE_TYPE
from torrentdist.host.http.operation import FILE
from torrentdist.host.http.web import StreamedAnswer
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.host.recent_results import RecentResults
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authorization import Role
from torrentdist.supervisor.bundles.host_content import HostContent
from torrentdist.supervisor.gateway.bundle_reader import BundleReader
from torrentdist.supervisor.repositories.distribution_metadata import DistributionMetadata
from torrentdist.supervisor.repositories.file_facts import FileFacts, hashed_by
from torrentdist.supervisor.repositories.made_answers import made_answer
from torrentdist.supervisor.repositories.python_index import (
    METADATA,
    DistributionFacts,
    PythonDistribution,
    PythonIndex,
    chosen_type,
    normalized,
    project_page,
    projects_page,
    python_index,
)

FIRST_SECS: Final = 5.0
"""Seconds until a page that still waits for files begins with blanks. pip gives up after 15 s of
silence."""
BATCH: Final = 64
"""Files of a page whose facts are looked for at once. file_facts.py reads fewer of them at once."""
_SHA256: Final = hashed_by("sha256")


class PythonIndexApi(DeclaredRoutes):
    def __init__(self, reader: BundleReader, facts: FileFacts) -> None:
        self._reader = reader
        self._facts = facts
        self._metadata = DistributionMetadata()
        self._indexes: RecentResults[PythonIndex] = RecentResults()

    @operation("GET", "/simple/{id}/", None, Role.JOB, statuses=(200, 304))
    async def projects(self, request: Request) -> Response:
        """The bundle as a package index: its projects (PEP 503, PEP 691)."""
        content, index = await self._open(request)
        kind = _chosen_type(request)
        return made_answer(request, await in_heavy_thread(projects_page, index, kind), kind, content.meta.digest)

    @operation("GET", "/simple/{id}/{project}/", None, Role.JOB, statuses=(200, 304, 206))
    async def project(self, request: Request) -> Response:
        """The wheels and sdists of one project."""
        content, index = await self._open(request)
        project, kind = normalized(request.path_params["project"]), _chosen_type(request)
        files = [*_files_of(index, project, request).values()]

        async def page() -> bytes:
            listed: list[tuple[PythonDistribution, DistributionFacts]] = []
            for start in range(0, len(files), BATCH):
                batch = files[start : start + BATCH]
                facts = await asyncio.gather(*(self._facts_of(content, one) for one in batch))
                listed += zip(batch, facts, strict=True)
            return await in_heavy_thread(project_page, project, listed, kind)

        made = asyncio.ensure_future(page())
        await asyncio.wait({made}, timeout=FIRST_SECS)
        if made.done():
            return await in_heavy_thread(made_answer, request, made.result(), kind, content.meta.digest)
        return StreamedAnswer(_after_blanks(made), media_type=kind, headers={"vary": "accept"})

    @operation("GET", "/simple/{id}/{project}/{filename}", None, Role.JOB, statuses=FILE)
    async def distribution(self, request: Request) -> Response:
        """A wheel or an sdist, or with .metadata its metadata (PEP 658)."""
        content, index = await self._open(request)
        filename = request.path_params["filename"]
        files = _files_of(index, normalized(request.path_params["project"]), request)
        if (one := files.get(filename)) is not None:
            return await self._reader.file(request, ids.bundle_id(request.path_params["id"]), one.file.path)
        wheel = files.get(filename.removesuffix(METADATA))
        data = None if wheel is None or not wheel.is_wheel else await self._metadata.of(content, wheel.file)
        if data is None:
            raise TorrentdistError("not_found", what=f"{filename!r} in this bundle")
        return made_answer(request, data, FILE_TYPE, content.meta.digest)

    async def _open(self, request: Request) -> tuple[HostContent, PythonIndex]:
        content = await self._reader.content(ids.bundle_id(request.path_params["id"]))
        meta = content.meta
        return content, await self._indexes.get(meta.digest, lambda: in_heavy_thread(python_index, meta))

    async def _facts_of(self, content: HostContent, one: PythonDistribution) -> DistributionFacts:
        file, facts = one.file, self._facts
        return DistributionFacts(
            sha256=await facts.get(content, file, "sha256", _SHA256),
            metadata_sha256=await facts.get(content, file, "wheel-metadata", self._metadata.sha256)
            if one.is_wheel
            else "",
            requires_python=await facts.get(content, file, "requires-python", self._metadata.requires_python),
        )


def _chosen_type(request: Request) -> str:
    return chosen_type(",".join(request.headers.getlist("accept")))


def _files_of(index: PythonIndex, project: str, request: Request) -> Mapping[str, PythonDistribution]:
    files = index.get(project)
    if files is None:
        raise TorrentdistError(
            "not_found", what=f"a wheel or sdist of {request.path_params['project']!r} in this bundle"
        )
    return files


async def _after_blanks(made: Awaitable[bytes]) -> AsyncIterator[bytes]:
    task = asyncio.ensure_future(made)
    try:
        while not task.done():
            yield b" "
            await asyncio.wait({task}, timeout=FIRST_SECS)
        yield task.result()
    finally:
        task.cancel()
