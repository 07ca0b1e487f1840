"""Content whose only bundle was just removed is uploaded again under another id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, make_source, running_cluster

from torrentdist.api.blocking_client import Client

TIMES = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(work=tmp_path_factory.mktemp("again"), masters=1, supervisors=0) as running:
        yield running


def test_content_is_opened_again_while_its_removal_is_carried_out(cluster: Cluster, tmp_path: Path) -> None:
    """An upload would fail because the master deletes what it has just prepared. It takes long:
    uploads and removals go on for seconds."""
    client = Client(config_file=cluster.dir / "client.toml")
    source = make_source(tmp_path / "source", seed=5)
    for number in range(TIMES):
        client.upload(source, id=f"again-{number}")
        client.remove(f"again-{number}")
    client.upload(source, id="kept")

    assert 1 == client.bundle("kept").replicas
