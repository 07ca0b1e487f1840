"""The Helm chart, without helm: its values against their schema, and whether the plain manifests
are those that it makes. tests/kubernetes/test_helm.py renders it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from scripts import manifests
from torrentdist import __version__

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "deploy/helm/torrentdist"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def changed(path: str, value: object) -> dict[str, Any]:
    values = copy.deepcopy(VALUES)
    at = values
    *parents, last = path.split(".")
    for key in parents:
        at = at[key]
    at[last] = value
    return values


def test_the_chart_is_of_this_release_and_its_values_fit_its_schema() -> None:
    """If this fails, `helm install` refuses the chart, or installs another release's image."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)

    assert [__version__] * 2 == [about["version"], about["appVersion"]]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("image.tag", "latest"),
        ("image.tags", "1"),
        ("image.repository", "a b"),
        ("zookeeper.servers", []),
        ("zookeeper.servers", ["zookeeper"]),
        ("masters.replicas", 0),
        ("masters.replicas", "3"),
        ("masters.storage.size", "a lot"),
        ("masters.resources", {"requests": {"cpu": 1, "memory": "1Gi"}}),
        ("masters.secret", "Not/A/Name"),
        ("supervisors.readableBy", "everybody"),
        ("supervisors.maxUnavailable", "0%"),
        ("csi.namespaces", {"team-a": 1}),
        ("csi.namespaces", {"team-a\" = 'x": "*"}),
        ("csi.keys", "http://kubernetes/keys"),
        ("csi.kubeletDir", "/var/lib/kubelet/"),
        ("csi.registrarImage", "registrar:latest"),
        ("csi.registrarImage", "registry.k8s.io/registrar"),
        ("backup.schedule", "nightly"),
        ("backup.keep", 0),
        ("serviceMonitor.interval", "15"),
        ("networkpolicy", {}),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(path: str, value: object) -> None:
    """If this fails, a typing error is found out in a cluster."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed(path, value), SCHEMA)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("image.repository", "registry.example:5000/team/torrentdist"),
        ("masters.replicas", 5),
        ("csi.namespaces", {"team-a": "etl-*", "ml/trainer": ["model-*", "env-*"], "*": "public-*"}),
        ("csi.namespaces", {}),
        ("csi.registrarImage", "registry.example:5000/registrar:v2"),
        ("supervisors.maxUnavailable", 1),
        ("networkPolicy.mastersFrom", [{"ipBlock": {"cidr": "10.0.0.0/8"}}]),
    ],
)
def test_a_value_that_operators_need_is_taken(path: str, value: object) -> None:
    """If this fails, the schema keeps somebody from installing."""
    jsonschema.validate(changed(path, value), SCHEMA)


def test_every_value_is_in_the_schema_and_most_say_what_they_are() -> None:
    """If this fails, an operator has to read templates to learn what a value does."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    words = [line for line in lines if line.strip().startswith("#")]
    values = [key for group in VALUES.values() for key in group]
    obvious = {"resources", "priorityClassName", "storage", "size", "className", "tolerations"}

    assert len(words) >= len([key for key in values if key not in obvious])
    assert VALUES.keys() == SCHEMA["properties"].keys() - {"global"}
    for name, group in VALUES.items():
        assert group.keys() == SCHEMA["properties"][name]["properties"].keys(), name


def test_the_plain_manifests_are_those_of_the_chart() -> None:
    """If this fails, kubectl and helm install different things: run scripts/manifests.py."""
    assert [] == manifests.stale()
    assert {path.name for path in manifests.FOLDER.glob("*.yaml")} == set(manifests.names())
