"""A Maven repository over the gateway, for Spark's --packages and for Ivy and Maven: the files of
one bundle, with checksums and lists of versions where the bundle has none.

Always: a file of the bundle comes before what is made for it.
"""

import hashlib
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.bundle.bundle_tree import BundleTree
from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.operation import FILE
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.model import ids
from torrentdist.model.errors import required
from torrentdist.security.authorization import Role
from torrentdist.supervisor.bundles.host_content import HostContent
from torrentdist.supervisor.gateway.bundle_reader import BundleReader
from torrentdist.supervisor.repositories.file_facts import FileFacts, hashed_by
from torrentdist.supervisor.repositories.made_answers import made_answer
from torrentdist.supervisor.repositories.maven_layout import CHECKSUMS, found_file, split_checksum, version_list

_HASHES: Final = {kind: hashed_by(kind) for kind in CHECKSUMS}


class MavenApi(DeclaredRoutes):
    def __init__(self, reader: BundleReader, facts: FileFacts) -> None:
        self._reader = reader
        self._facts = facts

    @operation("GET", "/maven/{id}/{path:any_path}", None, Role.JOB, statuses=FILE)
    async def artifact(self, request: Request) -> Response:
        """A file of the bundle as a Maven repository; checksums and maven-metadata.xml are made if
        need be."""
        bundle, path = ids.bundle_id(request.path_params["id"]), request.path_params["path"]
        content = await self._reader.content(bundle)
        tree = await self._reader.tree(content)
        file = found_file(tree, path)
        if file is not None:
            return await self._reader.file(request, bundle, file.path)
        if (versions := await in_heavy_thread(version_list, tree, path)) is not None:
            return made_answer(request, versions, "text/xml", content.meta.digest)
        text = required(await self._checksum(content, tree, path), "not_found", what=f"{path!r} in this bundle")
        return made_answer(request, text.encode(), "text/plain", content.meta.digest)

    async def _checksum(self, content: HostContent, tree: BundleTree, path: str) -> str | None:
        split = split_checksum(path)
        if split is None:
            return None
        base, kind = split
        if (file := found_file(tree, base)) is not None:
            return await self._facts.get(content, file, kind, _HASHES[kind])
        versions = await in_heavy_thread(version_list, tree, base)
        return None if versions is None else hashlib.new(kind, versions, usedforsecurity=False).hexdigest()
