"""The tags of an image as a registry lists them, page by page."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from torrentdist.bundle.images.image_names import Image
from torrentdist.bundle.store.store import Store
from torrentdist.host.host_store import HostStore
from torrentdist.host.http.web import PRINCIPAL
from torrentdist.security.authorization import LOCAL
from torrentdist.supervisor.gateway.cluster_bundles import ClusterBundles
from torrentdist.supervisor.images.checked_blobs import CheckedBlobs
from torrentdist.supervisor.images.image_store import ImageStore
from torrentdist.supervisor.images.registry_api import RegistryApi
from torrentdist.supervisor.images.staged_blobs import StagedBlobs

pytestmark = pytest.mark.anyio
TAGS = ["1", "2", "3", "4", "5"]


async def known_to_masters(after: str, most: int) -> list[Any]:
    return [SimpleNamespace(id=Image("app", tag).bundle) for tag in TAGS] if not after else []


def asked_for(query: str) -> Request:
    scope = {"type": "http", "method": "GET", "path": "/v2/app/tags/list", "query_string": query.encode()}
    return Request(scope | {"headers": [], "path_params": {"name": "app"}, PRINCIPAL: LOCAL})


async def test_a_client_that_follows_the_pages_of_tags_gets_each_tag_once(tmp_path: Path) -> None:
    """If this fails, a client that lists the tags of an image gets the first page for ever."""
    store = HostStore(Store.open(tmp_path / "store"))
    unused: Any = None
    parts: Any = SimpleNamespace(store=store)
    images = ImageStore(parts, unused, StagedBlobs(tmp_path), unused, CheckedBlobs())
    registry = RegistryApi(store, images, CheckedBlobs(), unused, ClusterBundles(known_to_masters, store))
    pages: list[list[str]] = []
    link = "<?n=2>"
    while link and len(pages) < len(TAGS):
        answer = await registry.image_tags(asked_for(link.partition("?")[2].partition(">")[0]))
        pages.append(json.loads(bytes(answer.body))["tags"])
        link = answer.headers.get("link", "")
    await store.close()

    assert [["1", "2"], ["3", "4"], ["5"]] == pages
