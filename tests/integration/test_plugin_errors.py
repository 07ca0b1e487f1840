"""What a cluster does with a plug-in that raises an error of Python."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, make_source, running_cluster, until

FAILING = "acme_plugins.failing:FailsTo"
THIRD_PARTY = Path(__file__).parents[1] / "contract" / "thirdparty"


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder whose files say what the plug-in fails to do; it writes its calls into them."""
    return tmp_path_factory.mktemp("failing")


@pytest.fixture(scope="module")
def cluster(failing: Path) -> Iterator[Cluster]:
    plugin = {"class": FAILING, "options": {"folder": str(failing)}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(THIRD_PARTY))
        with running_cluster({"codedistributor": plugin}, masters=1, supervisors=1) as cluster:
            yield cluster


def test_an_upload_is_tried_again_after_a_pause(cluster: Cluster, failing: Path, tmp_path: Path) -> None:
    """If this fails, a plug-in whose storage is away makes a master ask it without a pause, and
    the uploader waits without a word."""
    calls = failing / "fails-to-upload"
    calls.touch()
    source = make_source(tmp_path / "source", 5)
    upload = cluster.begin("upload", source, "--id", "etl-1", "--min-replicas", 1)
    until(lambda: calls.read_text(), "the plug-in is asked")
    time.sleep(3.0)
    tried = len(calls.read_text().splitlines())
    calls.unlink()
    done = upload.end()
    log = (cluster.dir / f"{cluster.masters()[0]}.log").read_text()

    assert 2 <= tried <= 8
    assert 0 == done.code
    assert "FailsTo: this plug-in fails-to-upload" in log
    assert "never retrieved" not in log


def test_a_bundle_is_removed_although_the_plug_in_cannot_forget_it(
    cluster: Cluster, failing: Path, tmp_path: Path
) -> None:
    """If this fails, one removal ends every master, and each again at its next start."""
    calls = failing / "fails-to-cleanup"
    digest = cluster.upload(make_source(tmp_path / "source", 6), "etl-2", replicas=1)["digest"]
    cluster.run("bundle", "distribute", "etl-2", "--wait", "100%").ok()
    calls.touch()
    cluster.run("bundle", "rm", "etl-2").ok()
    members = [*cluster.masters(), *cluster.supervisors()]
    until(lambda: not any((cluster.store(one) / "objects" / digest).exists() for one in members), "it is gone", 30.0)
    until(lambda: len(calls.read_text().splitlines()) >= len(members), "every member's plug-in is asked", 30.0)
    time.sleep(1.0)

    assert all(cluster.alive(one) for one in members)
