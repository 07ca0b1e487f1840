"""What a kubelet reports of a pod, and the environment that it gives to containers. Values only."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes.api_client import Resource

_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
Lookup = Callable[[str, Mapping[str, Any]], str]
"""Returns a value of a config map or secret, by the kind of reference and what it names."""


def moment() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class ContainerReport:
    """What has become of a container. `code`: how it ended; None: it runs, or has not begun."""

    name: str
    image: str
    began: str = ""
    ended: str = ""
    code: int | None = None
    is_ready: bool = False
    restarts: int = 0
    waits: str = "ContainerCreating"
    """Why it has not begun, or not begun again."""

    @property
    def has_never_run(self) -> bool:
        return not self.began and self.code is None and not self.restarts

    def as_status(self, pod: str) -> dict[str, Any]:
        container = f"lab://{pod}/{self.name}/{self.restarts}"
        state: dict[str, Any] = {"waiting": {"reason": self.waits}}
        if self.code is not None:
            reason = "Completed" if self.code == 0 else "Error"
            state = {"terminated": {"exitCode": self.code, "reason": reason, "containerID": container}}
            state["terminated"] |= {"startedAt": self.began, "finishedAt": self.ended}
        elif self.began:
            state = {"running": {"startedAt": self.began}}
        return {
            "name": self.name,
            "image": self.image,
            "imageID": self.image,
            "containerID": container if self.began else "",
            "ready": self.is_ready,
            "started": self.code is None and bool(self.began),
            "restartCount": self.restarts,
            "state": state,
        }


def phase(reports: Sequence[ContainerReport], policy: str, *, began: bool) -> str:
    """Returns the pod's phase. `began`: whether all init containers have ended well."""
    if not began or any(report.has_never_run for report in reports):
        return "Pending"
    codes = [report.code for report in reports]
    if any(code is None for code in codes) or policy == "Always":
        return "Running"
    if policy == "OnFailure":
        return "Succeeded" if not any(codes) else "Running"
    return "Succeeded" if not any(codes) else "Failed"


def status(
    pod: Resource,
    node_address: str,
    address: str,
    first: Sequence[ContainerReport],
    main: Sequence[ContainerReport],
) -> dict[str, Any]:
    """Returns the status of a pod. `first`: its init containers."""
    spec, uid = pod["spec"], pod["metadata"]["uid"]
    began = all(report.code == 0 for report in first) and bool(address)
    now = phase(main, spec.get("restartPolicy", "Always"), began=began)
    ready = began and all(report.is_ready for report in main)
    conditions = {"PodReadyToStartContainers": bool(address), "Initialized": began}
    conditions |= {"ContainersReady": ready, "Ready": ready}
    made: dict[str, Any] = {
        "phase": now,
        "hostIP": node_address,
        "hostIPs": [{"ip": node_address}],
        "conditions": [{"type": kind, "status": str(value)} for kind, value in conditions.items()],
        "containerStatuses": [report.as_status(uid) for report in main],
        "initContainerStatuses": [report.as_status(uid) for report in first],
    }
    if address:
        made |= {"podIP": address, "podIPs": [{"ip": address}]}
    return made


def environment(
    pod: Resource, container: Mapping[str, Any], found: Mapping[str, str], look_up: Lookup
) -> dict[str, str]:
    """Returns a container's environment. `found`: what fields name that the pod does not have."""
    env: dict[str, str] = {}
    for source in container.get("envFrom", []):
        for kind in ("configMapRef", "secretRef"):
            if kind in source:
                env |= dict(pair.split("=", 1) for pair in look_up(kind, source[kind]).split("\0") if pair)
    for variable in container.get("env", []):
        env[variable["name"]] = _value(pod, variable, found, env, look_up)
    return env


def _value(
    pod: Resource, variable: Mapping[str, Any], found: Mapping[str, str], env: Mapping[str, str], look_up: Lookup
) -> str:
    source = variable.get("valueFrom", {})
    if field := source.get("fieldRef"):
        return found.get(field["fieldPath"]) or field_of(pod, field["fieldPath"])
    for kind in ("secretKeyRef", "configMapKeyRef"):
        if kind in source:
            return look_up(kind, source[kind])
    return expanded(variable.get("value", ""), env)


def field_of(pod: Resource, path: str) -> str:
    value: Any = pod
    for part in re.split(r"\.(?![^\[]*\])", path):
        name, _, key = part.partition("['")
        value = value.get(name, {}) if isinstance(value, Mapping) else {}
        if key:
            value = value.get(key.removesuffix("']"), "")
    return str(value or "")


def expanded(text: str, env: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` by a variable's value; what is unknown stays."""
    return _REFERENCE.sub(lambda found: env.get(found[1], found[0]), text)
