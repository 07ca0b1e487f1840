"""deploy/kubernetes and the monitoring profile of compose, without a cluster: schemas, and whether
the files agree with the product and with each other."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from deployment_site import COMPOSE

from torrentdist import __version__
from torrentdist.csi.csi_services import DRIVER
from torrentdist.host.process.health_api import HealthApi
from torrentdist.host.telemetry.metrics import Metrics
from torrentdist.model.configuration.settings import combine, toml_layer, variable_of
from torrentdist.security.authorization import Role

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "deploy/kubernetes"
SCHEMA = json.loads((ROOT / "tests/servicemonitor.schema.json").read_text())
KUBERNETES = "1.29"
FILES = [
    ("masters.yaml", "master.toml"),
    ("supervisors.yaml", "supervisor.toml"),
    ("csi.yaml", "csi.toml"),
    ("backup.yaml", "client.toml"),
]
POD_MAKERS = ("StatefulSet", "DaemonSet", "CronJob")


def documents(name: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all((FOLDER / name).read_text()) if document]


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = (d for f in ("masters.yaml", "supervisors.yaml") for d in documents(f) if d["kind"] == kind)
    return found


def pods_of(name: str) -> list[dict[str, Any]]:
    """Returns the templates of pods in a file."""
    specs = [document["spec"] for document in documents(name) if document["kind"] in POD_MAKERS]
    return [spec.get("jobTemplate", {}).get("spec", spec)["template"] for spec in specs]


def containers_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


@pytest.mark.parametrize("name", [name for name, _ in FILES])
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
    found = [d for f in ("masters.yaml", "supervisors.yaml") for d in documents(f) if d["kind"] == "Service"]
    services = [service for service in found if service["metadata"]["name"] != "torrentdist-gateway"]
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


def test_the_prometheus_operator_gets_the_alerts_that_ship() -> None:
    """If this fails, Kubernetes has other alerts than the page says, or none."""
    (made,) = documents("prometheusrule.yaml")

    assert ("monitoring.coreos.com/v1", "PrometheusRule") == (made["apiVersion"], made["kind"])
    assert yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text()) == made["spec"]


def test_prometheus_calls_a_master_by_a_name_in_its_certificate() -> None:
    """If this fails, Prometheus refuses every master, and the alert for no leader never ends."""
    monitor = next(d for d in documents("servicemonitor.yaml") if d["metadata"]["name"] == "torrentdist-masters")
    (rule,) = monitor["spec"]["endpoints"][0]["relabelings"]
    page = (ROOT / "docs/kubernetes.md").read_text()
    (namespace,) = re.findall(r"^ +namespace=(\S+)$", page, re.MULTILINE)
    labels = {"__meta_kubernetes_pod_name": "torrentdist-master-1", "__meta_kubernetes_namespace": namespace}
    values = ";".join(labels[name] for name in rule["sourceLabels"])
    target = re.sub(rule["regex"], re.sub(r"\$(\d)", r"\\\1", rule["replacement"]), values)
    (command,) = re.findall(r"torrentdist ca issue torrentdist-master-(?:.*\\\n)*.*", page)
    addresses = re.findall(r"--address (\S+)", command.replace("$namespace", namespace).replace("$n", "1"))
    service = next(d for d in documents("masters.yaml") if d["kind"] == "Service")
    name = f"torrentdist-master-1.{service['metadata']['name']}"

    assert "__address__" == rule["targetLabel"]
    assert [name, f"{name}.{namespace}.svc"] == addresses
    assert f"{name}.{namespace}.svc:{service['spec']['ports'][0]['port']}" == target


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
    configs = [
        d for f in ("masters.yaml", "supervisors.yaml", "backup.yaml") for d in documents(f) if d["kind"] == "ConfigMap"
    ]

    for config in configs:
        (text,) = config["data"].values()
        assert names == tomllib.loads(text)["client"]["masters"]


@pytest.mark.parametrize("name", [name for name, _ in FILES])
def test_an_image_has_a_version_and_a_container_has_bounds(name: str) -> None:
    """If this fails, a restart of a pod may bring another release, or one pod takes its node's
    memory."""
    (pod,) = pods_of(name)
    tags = {image.rpartition(":")[0]: image.rpartition(":")[2] for image in (c["image"] for c in containers_of(pod))}

    assert __version__ == tags.pop("torrentdist")
    assert all(re.fullmatch(r"v\d+\.\d+\.\d+", tag) for tag in tags.values())
    for container in containers_of(pod):
        assert {"cpu", "memory"} == container["resources"]["requests"].keys(), container["name"]
        assert {"memory"} == container["resources"]["limits"].keys(), container["name"]


@pytest.mark.parametrize("name", ["supervisors.yaml", "csi.yaml"])
def test_every_node_has_its_daemons_and_keeps_them(name: str) -> None:
    """If this fails, pods on a tainted node find no bundles, or pods of less use push daemons
    out."""
    (pod,) = pods_of(name)

    assert [{"operator": "Exists"}] == pod["spec"]["tolerations"]
    assert "system-node-critical" == pod["spec"]["priorityClassName"]
    assert all(
        "livenessProbe" in c and "startupProbe" in c for c in pod["spec"]["containers"] if "torrentdist:" in c["image"]
    )


def test_masters_stay_apart_and_leave_one_at_a_time() -> None:
    """If this fails, one node or one drain takes the majority of the masters."""
    (pod,) = pods_of("masters.yaml")
    spec, labels = pod["spec"], pod["metadata"]["labels"]
    (budget,) = (d["spec"] for d in documents("masters.yaml") if d["kind"] == "PodDisruptionBudget")
    (apart,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (spread,) = spec["topologySpreadConstraints"]
    selectors = [budget["selector"], apart["labelSelector"], spread["labelSelector"]]

    assert 1 == budget["maxUnavailable"]
    assert [labels] * 3 == [selector["matchLabels"] for selector in selectors]
    assert "system-cluster-critical" == spec["priorityClassName"]
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= spec["containers"][0].keys()


@pytest.mark.parametrize("name", ["masters.yaml", "supervisors.yaml"])
def test_probes_ask_what_needs_no_proof(name: str) -> None:
    """If this fails, a daemon refuses the probes of its pod, which never gets ready."""
    open_paths = {each.path for each in HealthApi(dict, Metrics(list)).operations() if each.role is Role.ANYONE}
    (pod,) = pods_of(name)
    (container,) = pod["spec"]["containers"]
    commands = [said["exec"]["command"] for key, said in container.items() if key.endswith("Probe")]

    assert {"healthcheck"} == {command for command, _ in commands}
    assert {"/livez", "/readyz"} == {urlsplit(url).path for _, url in commands}
    assert {"/livez", "/readyz"} <= open_paths


@pytest.mark.parametrize("name", ["masters.yaml", "backup.yaml"])
def test_pods_off_the_nodes_network_pass_the_strictest_standard_and_are_closed(name: str) -> None:
    """If this fails, a namespace at the Pod Security level `restricted` refuses the pods, or every
    pod of the cluster reaches all of their ports."""
    (pod,) = pods_of(name)
    (policy,) = (d["spec"] for d in documents(name) if d["kind"] == "NetworkPolicy")
    security = pod["spec"]["securityContext"]
    ports = {port["containerPort"] for c in containers_of(pod) for port in c.get("ports", [])}
    opened = [port["port"] for rule in policy.get("ingress", []) for port in rule["ports"]]

    assert ("RuntimeDefault", True) == (security["seccompProfile"]["type"], security["runAsNonRoot"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod["spec"].keys()
    assert not [volume for volume in pod["spec"]["volumes"] if "hostPath" in volume]
    for container in containers_of(pod):
        own = container["securityContext"]
        assert (False, ["ALL"], True) == (
            own["allowPrivilegeEscalation"],
            own["capabilities"]["drop"],
            own["readOnlyRootFilesystem"],
        )
    assert pod["metadata"]["labels"] == policy["podSelector"]["matchLabels"]
    assert sorted(ports) == sorted(opened)
    assert "Ingress" in policy["policyTypes"]


def test_pods_reach_the_gateway_of_their_own_node() -> None:
    """If this fails, the bytes of each pod cross the network, or no pod reaches a gateway."""
    (service,) = (d for d in documents("supervisors.yaml") if d["metadata"]["name"] == "torrentdist-gateway")
    (pod,) = pods_of("supervisors.yaml")
    (config,) = (d for d in documents("supervisors.yaml") if d["kind"] == "ConfigMap")
    settings = combine([toml_layer(tomllib.loads(config["data"]["supervisor.toml"]), "supervisor.toml")]).config
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    (variable,) = (v for v in container["env"] if v["name"] == variable_of("supervisor.pod_listen"))

    assert "Local" == service["spec"]["internalTrafficPolicy"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert [settings.supervisor.pod_port] * 2 == [ports["pods"], service["spec"]["ports"][0]["port"]]
    assert "status.hostIP" == variable["valueFrom"]["fieldRef"]["fieldPath"]
    assert len(set(ports.values())) == len(ports)


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
