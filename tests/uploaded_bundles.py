"""Bundles that a test puts into the shared cluster.

Always: they are gone after the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_fixtures import Cluster

from torrentdist import Client

Put = Callable[[str, Path], str]
"""Uploads a directory under an id, and returns the id."""


@pytest.fixture
def put(cluster: Cluster) -> Iterator[Put]:
    """Uploads directories as bundles, and removes the bundles afterwards."""
    client, made = Client(config_file=cluster.dir / "client.toml"), []

    def upload(name: str, path: Path) -> str:
        client.upload(path, id=name)
        made.append(name)
        return name

    yield upload
    for name in made:
        client.remove(name)
