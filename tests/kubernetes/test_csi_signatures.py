"""Signatures are enforced before a bundle is mounted for a pod, as they are for jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, Settings, make_source, picture, running_cluster
from kubernetes.csi_node import csi_node, refused

from torrentdist.security.signing.signing_keys import NewKeyView, generate_key

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root"), pytest.mark.case("F12")]

ENV = {"bundle": "env-43"}


@pytest.fixture
def key(tmp_path: Path) -> NewKeyView:
    return generate_key(tmp_path / "release")


@pytest.fixture
def strict(tmp_path: Path, key: NewKeyView) -> Iterator[Cluster]:
    """One master and one supervisor, which uses nothing that `key` has not signed."""
    trust = {"cluster": "prod", "bundles": {"*": {"mode": "enforce", "keys": [key.public_key]}}}
    settings: Settings = {"trust": trust}
    with running_cluster(settings, work=tmp_path / "cluster", masters=1, supervisors=1) as cluster:
        yield cluster


def test_a_pod_gets_no_bundle_that_nobody_has_signed(strict: Cluster, key: NewKeyView, tmp_path: Path) -> None:
    """If this fails, whoever may upload brings a program into every pod of the cluster. It starts a
    cluster, so it takes long: 7 s."""
    source = make_source(tmp_path / "env", seed=43)
    host = strict.supervisors()[0]
    digest = strict.upload(source, "env-43", replicas=1)["digest"]
    settings: dict[str, dict[str, object]] = {
        "client": {"supervisor": strict.dev.member(host).gateway},
        "supervisor": {"id": "node-1", "data_dir": str(strict.store(host))},
        "kubernetes": {"namespaces": {"team-a": "env-*"}},
    }
    (tmp_path / "node").mkdir()
    with csi_node(tmp_path / "node", settings) as node:
        code, words = refused(lambda: node.publish("p1", ENV))
        assert ("PERMISSION_DENIED", True) == (code, "is not signed" in words), words
        assert ([], False) == (node.mounts(), strict.published(host, digest))

        strict.run("bundle", "sign", "env-43", "--key", key.key_file, "--path", source).ok()
        node.publish("p1", ENV)
        assert picture(source) == picture(node.seen(node.target("p1")))
        node.unpublish("p1")
