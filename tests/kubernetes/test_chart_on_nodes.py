"""The real helm and the real API server: an operator goes over from the files to the chart,
upgrades, and goes back."""

from __future__ import annotations

import json
import os

import pytest
from kubernetes.kubernetes_site import SPACE, KubernetesSite
from kubernetes.ring import INSIDE_LAB
from kubernetes.user_pods import BUNDLE, daemon_images, reading_pod

from bench.lab.namespaces import ROOT

HELM = os.environ.get("HELM", "")
pytestmark = pytest.mark.skipif(
    INSIDE_LAB not in os.environ or not HELM, reason="helm and the nodes are there in: make kubernetes"
)
STEP_SECS = 600.0


def test_the_chart_takes_over_from_the_files_and_comes_back_from_an_upgrade(site: KubernetesSite) -> None:
    """If this fails, the chart's objects are no valid successors of the files', or helm's rollback
    leaves the cluster without daemons. It restarts all daemons twice, so it takes long: minutes."""
    values = {
        "zookeeper": {"servers": [site.zookeeper]},
        "csi": {"namespaces": {"team-a": "env-*"}},
        "serviceMonitor": {"enabled": True, "rules": True},
    }
    (site.home / "mine.json").write_text(json.dumps(values))
    chart = f"torrentdist {ROOT}/deploy/helm/torrentdist --namespace {SPACE} --values mine.json --wait --timeout 9m"
    site.shell(f"{HELM} install {chart} --take-ownership", STEP_SECS)
    before = daemon_images(site)
    site.shell(f"{HELM} upgrade {chart} --set image.tag=0.1.1", STEP_SECS)
    upgraded = daemon_images(site)
    site.shell(f"{HELM} rollback torrentdist 1 --namespace {SPACE} --wait --timeout 9m", STEP_SECS)
    site.create(reading_pod("by-chart", bundle=BUNDLE))

    assert "Succeeded" == site.ended("by-chart")
    assert [{"torrentdist:0.1.0"}, {"torrentdist:0.1.1"}, {"torrentdist:0.1.0"}] == [
        before,
        upgraded,
        daemon_images(site),
    ]
    site.delete("by-chart")
