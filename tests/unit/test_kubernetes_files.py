"""deploy/kubernetes and the monitoring profile of compose, without a cluster: schemas, and whether
the files agree with the product and with each other."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from deployment_site import COMPOSE

from torrentdist.csi.csi_services import DRIVER
from torrentdist.model.configuration.settings import combine, toml_layer

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "deploy/kubernetes"
SCHEMA = json.loads((ROOT / "tests/servicemonitor.schema.json").read_text())
KUBERNETES = "1.29"
FILES = [("masters.yaml", "master.toml"), ("supervisors.yaml", "supervisor.toml"), ("csi.yaml", "csi.toml")]


def documents(name: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all((FOLDER / name).read_text()) if document]


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = (d for f in ("masters.yaml", "supervisors.yaml") for d in documents(f) if d["kind"] == kind)
    return found


@pytest.mark.parametrize("name", ["masters.yaml", "supervisors.yaml", "csi.yaml"])
def test_the_api_of_kubernetes_takes_the_manifests(name: str) -> None:
    """If this fails, kubectl refuses the file, or silently drops a misspelt field."""
    for document in documents(name):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_the_schema_refuses_a_misspelt_field() -> None:
    """If this fails, the test above checks nothing."""
    wrong = of_kind("StatefulSet")
    wrong["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = "Always"

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


def test_the_prometheus_operator_takes_the_service_monitors() -> None:
    """If this fails, nothing is scraped, and no alert ever fires."""
    monitors = documents("servicemonitor.yaml")
    services = [d for f in ("masters.yaml", "supervisors.yaml") for d in documents(f) if d["kind"] == "Service"]
    watched = []
    for monitor in monitors:
        jsonschema.validate(monitor, SCHEMA)
        (endpoint,) = monitor["spec"]["endpoints"]
        labels = monitor["spec"]["selector"]["matchLabels"]
        found = [service for service in services if labels.items() <= service["metadata"]["labels"].items()]
        watched += [s for s in found if endpoint["port"] in [port["name"] for port in s["spec"]["ports"]]]

    assert services == watched
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**monitors[0], "spec": {**monitors[0]["spec"], "endpoint": []}}, SCHEMA)


def test_prometheus_calls_a_master_by_a_name_in_its_certificate() -> None:
    """If this fails, Prometheus refuses every master, and the alert for no leader never ends."""
    monitor = next(d for d in documents("servicemonitor.yaml") if d["metadata"]["name"] == "torrentdist-masters")
    (rule,) = monitor["spec"]["endpoints"][0]["relabelings"]
    labels = {"__meta_kubernetes_pod_name": "torrentdist-master-1", "__meta_kubernetes_namespace": "default"}
    values = ";".join(labels[name] for name in rule["sourceLabels"])
    target = re.sub(rule["regex"], re.sub(r"\$(\d)", r"\\\1", rule["replacement"]), values)
    page = (ROOT / "docs/kubernetes.md").read_text()
    (command,) = re.findall(r"torrentdist ca issue torrentdist-master-(?:.*\\\n)*.*", page)
    (namespace,) = re.findall(r"^ +namespace=(\S+)$", page, re.MULTILINE)
    addresses = re.findall(r"--address (\S+)", command.replace("$namespace", namespace).replace("$n", "1"))
    service = next(d for d in documents("masters.yaml") if d["kind"] == "Service")
    name = f"torrentdist-master-1.{service['metadata']['name']}"

    assert "__address__" == rule["targetLabel"]
    assert [name, f"{name}.default.svc"] == addresses
    assert f"{name}.default.svc:{service['spec']['ports'][0]['port']}" == target


@pytest.mark.parametrize(("name", "key"), FILES)
def test_the_daemons_accept_their_configuration(name: str, key: str) -> None:
    """If this fails, every pod ends with an unknown key."""
    (config,) = (d for d in documents(name) if d["kind"] == "ConfigMap")
    combine([toml_layer(tomllib.loads(config["data"][key]), key)])


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_a_pod_mounts_what_it_names_and_runs_as_the_images_user(kind: str) -> None:
    """If this fails, the pod does not start, or a hole in a daemon is one in the node."""
    spec = of_kind(kind)["spec"]
    pod = spec["template"]["spec"]
    claims = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])]
    there = {*claims, *(volume["name"] for volume in pod["volumes"])}
    containers = [*pod["initContainers"], *pod["containers"]]

    assert [] == [m["name"] for c in containers for m in c["volumeMounts"] if m["name"] not in there]
    assert 10001 == pod["securityContext"]["runAsUser"]
    assert all(c["securityContext"]["capabilities"]["drop"] == ["ALL"] for c in containers)
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_the_csi_driver_reaches_its_supervisor_and_the_kubelet() -> None:
    """If this fails, no volume is ever mounted, or mounts do not reach the pods."""
    (driver,) = (d for d in documents("csi.yaml") if d["kind"] == "CSIDriver")
    (daemons,) = (d for d in documents("csi.yaml") if d["kind"] == "DaemonSet")
    (config,) = (d for d in documents("csi.yaml") if d["kind"] == "ConfigMap")
    settings = combine([toml_layer(tomllib.loads(config["data"]["csi.toml"]), "csi.toml")]).config
    pod = daemons["spec"]["template"]["spec"]
    container, registrar = pod["containers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}

    assert (DRIVER, settings.kubernetes.audience) == (
        driver["metadata"]["name"],
        driver["spec"]["tokenRequests"][0]["audience"],
    )
    assert "Bidirectional" == mounts[settings.kubernetes.kubelet_dir]["mountPropagation"]
    assert settings.kubernetes.kubelet_dir == paths[mounts[settings.kubernetes.kubelet_dir]["name"]]
    assert settings.supervisor.data_dir == paths[mounts[settings.supervisor.data_dir]["name"]]
    assert f"--kubelet-registration-path={paths['socket']}/csi.sock" in registrar["args"]
    assert (True, "http://127.0.0.1:7070") == (pod["hostNetwork"], settings.client.supervisor)
    assert not registrar["securityContext"].get("privileged")


def test_a_node_holds_no_secret_of_the_masters() -> None:
    """If this fails, a pod that is taken over on one node is an operator, or writes assignments."""
    pod = of_kind("DaemonSet")["spec"]["template"]["spec"]
    (config,) = (d for d in documents("supervisors.yaml") if d["kind"] == "ConfigMap")
    settings = tomllib.loads(config["data"]["supervisor.toml"])

    assert ["torrentdist-invitations"] == [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v]
    assert "token_file" not in settings["api"] | settings["client"]
    assert settings["zookeeper"]["auth_file"].startswith(settings["supervisor"]["data_dir"])


def test_masters_are_called_by_the_names_in_their_certificates() -> None:
    """If this fails, nobody trusts the masters: the name of the service is in no certificate."""
    service = of_kind("StatefulSet")["spec"]["serviceName"]
    names = [
        f"https://torrentdist-master-{n}.{service}:7060" for n in range(of_kind("StatefulSet")["spec"]["replicas"])
    ]
    configs = [d for f in ("masters.yaml", "supervisors.yaml") for d in documents(f) if d["kind"] == "ConfigMap"]

    for config in configs:
        (text,) = config["data"].values()
        assert names == tomllib.loads(text)["client"]["masters"]


def test_compose_has_a_profile_that_watches_the_cluster() -> None:
    """If this fails, the alerts and the dashboard that ship are not the ones that run."""
    services = {name: s for name, s in COMPOSE["services"].items() if "monitoring" in s.get("profiles", [])}
    folder = ROOT / "docker/compose"
    mounted = [m.split(":")[0] for s in services.values() for m in s["volumes"] if m.startswith(".")]
    scrape = yaml.safe_load((folder / "monitoring/prometheus.yaml").read_text())
    targets = [t for job in scrape["scrape_configs"] for s in job["static_configs"] for t in s["targets"]]
    addresses = [
        s["networks"]["cluster"]["ipv4_address"] for n, s in COMPOSE["services"].items() if n.startswith("master-")
    ]

    assert {"prometheus", "grafana"} == set(services)
    assert [] == [path for path in mounted if "secrets" not in path and not (folder / path).exists()]
    assert set(addresses) <= {target.partition(":")[0] for target in targets}
