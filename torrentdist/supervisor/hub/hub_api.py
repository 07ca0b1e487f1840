"""The gateway as a Hugging Face Hub: with HF_ENDPOINT=http://127.0.0.1:7070/hub, the library
`huggingface_hub` reads bundles as repositories.

Always: hub_names.py says which bundle a repository is, and a job reads the bundles of its jobs
only. What is sent comes from bundle_reader.py, so that a file streams while its bundle arrives. An
error carries the header by which the library tells a missing repository, revision and file apart.
Never: upload, or ask the internet.
"""

from itertools import islice
from typing import Final
from urllib.parse import quote

import msgspec
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.bundle.bundle_tree import BundleTree
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.file_answers import select
from torrentdist.host.http.http_conditions import Representation
from torrentdist.host.http.operation import FILE
from torrentdist.host.http.web import json_response, on_torrentdist_error
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.host.runtime import HostRuntime
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.model.ids import BundleId
from torrentdist.security.authorization import Principal, Role, check_own, check_readable, may_read
from torrentdist.supervisor.bundles.host_content import HostContent
from torrentdist.supervisor.gateway.bundle_reader import BundleReader, sent
from torrentdist.supervisor.hub import hub_listing
from torrentdist.supervisor.hub.hub_listing import HubBranch, HubEntry, HubRefs, RepositoryView
from torrentdist.supervisor.hub.hub_names import MAIN, Repository, RepositoryKind, commit_of, is_commit

HUB_PATH: Final = "/hub/"
_REPOSITORY: Final = "/hub/api/{kind:hub_kind}/{repo:hub_repository}"
_FILE: Final = "/{repo:hub_repository}/resolve/{revision}/{path:any_path}"
PAGE_ENTRIES: Final = 1000
"""Most entries of one answer about a directory. Its Link header leads to the next ones."""
_COMMIT: Final = "torrentdist.hub_commit"
"""Key in a request's scope: the commit that the request is about, once it is known."""


class RepositoryName(Convertor[str]):
    """A path parameter that is `org/name`, or a name alone."""

    regex = "[^/]+(?:/[^/]+)?"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class KindName(RepositoryName):
    regex = "|".join(RepositoryKind)


class OtherKind(RepositoryName):
    """A kind of repository that a file's URL names before the repository. A model's URL does
    not."""

    regex = "|".join(kind for kind in RepositoryKind if kind is not RepositoryKind.MODEL)


register_url_convertor("hub_repository", RepositoryName())
register_url_convertor("hub_kind", KindName())
register_url_convertor("hub_other_kind", OtherKind())


class Snapshot(msgspec.Struct, frozen=True):
    """A repository at one commit: the bundle that stands for it."""

    bundle: BundleId
    commit: str
    content: HostContent
    tree: BundleTree


class HubApi(DeclaredRoutes):
    def __init__(self, runtime: HostRuntime, reader: BundleReader) -> None:
        self._store = runtime.store
        self._reader = reader

    @operation("GET", _REPOSITORY + "/refs", HubRefs, Role.JOB)
    async def hub_refs(self, request: Request) -> Response:
        """The revisions that this host knows of a repository."""
        found = await self._snapshot(request)
        return json_response(HubRefs([HubBranch(MAIN, f"refs/heads/{MAIN}", found.commit)]))

    @operation("GET", _REPOSITORY + "/revision/{revision}", RepositoryView, Role.JOB)
    async def hub_revision(self, request: Request) -> Response:
        """A repository, which is a bundle, with its files."""
        return await self._view(request)

    @operation("GET", _REPOSITORY + "/tree/{revision}/{path:any_path}", list[HubEntry], Role.JOB)
    async def hub_directory(self, request: Request) -> Response:
        """The files of a directory of a repository; a Link header leads to the next page."""
        return await self._entries(request, request.path_params["path"].strip("/"))

    @operation("GET", _REPOSITORY + "/tree/{revision}", list[HubEntry], Role.JOB)
    async def hub_tree(self, request: Request) -> Response:
        """The files of a directory of a repository; a Link header leads to the next page."""
        return await self._entries(request, "")

    @operation("GET", _REPOSITORY, RepositoryView, Role.JOB)
    async def hub_repository(self, request: Request) -> Response:
        """A repository at main."""
        return await self._view(request)

    @operation("GET", "/hub/{kind:hub_other_kind}" + _FILE, None, Role.JOB, statuses=FILE)
    async def hub_kind_file(self, request: Request) -> Response:
        """One file of a data set or a Space; a bundle that is not here is fetched."""
        return await self._file(request)

    @operation("GET", "/hub" + _FILE, None, Role.JOB, statuses=FILE)
    async def hub_file(self, request: Request) -> Response:
        """One file of a model; a bundle that is not here is fetched."""
        return await self._file(request)

    async def _view(self, request: Request) -> Response:
        found, name = await self._snapshot(request), request.path_params["repo"]
        author = name.partition("/")[0] if "/" in name else None
        files = await in_heavy_thread(hub_listing.files, found.tree)
        view = RepositoryView(id=name, model_id=name, author=author, sha=found.commit, siblings=files)
        return await in_heavy_thread(json_response, view)

    async def _entries(self, request: Request, path: str) -> Response:
        found = await self._snapshot(request)
        after = request.query_params.get("cursor", "")
        recursive = request.query_params.get("recursive", "").lower() in ("true", "1")
        page = await in_heavy_thread(_page, found.tree, path, after, recursive=recursive)
        if page is None:
            raise TorrentdistError("not_found", what=f"the directory {path!r} in this bundle")
        if len(page) <= PAGE_ENTRIES:
            return json_response(page)
        last = page[PAGE_ENTRIES - 1].path.removeprefix(path).lstrip("/")
        url = request.url.replace(path=quote(request.url.path)).include_query_params(cursor=last)
        more = {"link": f'<{url}>; rel="next"'}
        return json_response(page[:PAGE_ENTRIES], headers=more)

    async def _file(self, request: Request) -> Response:
        """Answers with one file, or its head, by which the library finds its size, its tag and its
        commit."""
        found, path = await self._snapshot(request), request.path_params["path"]
        file = required(hub_listing.file_at(found.tree, path), "not_found", what=f"{path!r} in this bundle")
        tag, digest = file.tag, found.content.meta.digest
        chosen = select(request, Representation(tag, file.size), digest)
        chosen.headers.update(
            {"x-repo-commit": found.commit, "x-linked-size": str(file.size), "x-linked-etag": f'"{tag}"'}
        )
        if isinstance(chosen, Response):
            return chosen
        if found.content.published():
            await self._store.touch(digest)
        return await sent(request, found.content, file, chosen)

    async def _snapshot(self, request: Request) -> Snapshot:
        """Returns what the request is about. A bundle that is not here is fetched."""
        named, principal = request.path_params, principal_of(request)
        repository = Repository(RepositoryKind(named.get("kind", RepositoryKind.MODEL)), named["repo"])
        revision = named.get("revision", MAIN)
        bundle = self._bundle(repository, revision, principal)
        check_own(principal, {"id": bundle})
        check_readable(principal, bundle)
        content = await self._reader.content(bundle)
        commit = revision if is_commit(revision) else commit_of(content.meta.digest)
        request.scope[_COMMIT] = commit
        return Snapshot(bundle, commit, content, await self._reader.tree(content))

    def _bundle(self, repository: Repository, revision: str, principal: Principal) -> BundleId:
        found = repository.bundles_at(revision, self._store.bindings()) if is_commit(revision) else []
        readable = [bundle for bundle in found if may_read(principal, bundle)]
        return next(iter(readable), None) or repository.bundle(revision)


def _page(tree: BundleTree, path: str, after: str, *, recursive: bool) -> list[HubEntry] | None:
    """Returns the entries of one answer, and the next one if there is one."""
    found = hub_listing.entries(tree, path, recursive=recursive, after=after)
    return None if found is None else list(islice(found, PAGE_ENTRIES + 1))


async def on_hub_error(request: Request, exc: Exception) -> Response:
    """Answers with the error, and with the headers from which the library makes its own."""
    assert isinstance(exc, TorrentdistError)
    answer = await on_torrentdist_error(request, exc)
    sentence = f"{exc.message}. {exc.hint}".encode("ascii", "replace").decode()
    answer.headers["x-error-message"] = " ".join(sentence.split())[:1000]
    match exc.code:
        case "bundle_not_found":
            is_main = request.path_params.get("revision", MAIN) == MAIN
            answer.headers["x-error-code"] = "RepoNotFound" if is_main else "RevisionNotFound"
        case "not_found":
            answer.headers["x-error-code"] = "EntryNotFound"
    if _COMMIT in request.scope:
        answer.headers["x-repo-commit"] = request.scope[_COMMIT]
    return answer
