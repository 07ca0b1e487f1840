"""The life of one pod on a node: volumes, network, containers, probes, status, and its end.

Always: a container starts after all volumes are there, and volumes go after all containers have
ended. What is reported is what is.
"""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kubernetes.api_client import ApiError, KubernetesApi, Resource, namespaced
from kubernetes.cluster_names import PodNames
from kubernetes.container_lives import ContainerLife
from kubernetes.containers import BoundVolume, ContainerPlan, RunningContainer
from kubernetes.node_places import NodeSettings
from kubernetes.pod_networks import PodNetworks
from kubernetes.pod_status import environment, expanded, moment, status
from kubernetes.pod_volumes import NotYet, PodVolumes, Sockets

LOOK_SECS = 0.3
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""Pauses between attempts, which double. The kubelet's own grow to two minutes."""
ENTRYPOINTS: Mapping[str, Sequence[str]] = {
    "torrentdist": ["torrentdist"],
    "spark": ["sh", str(Path(__file__).parent / "spark_entrypoint.sh")],
}
"""What an image runs when a pod names only arguments."""
REGISTRAR = "csi-node-driver-registrar"
"""Its container only sleeps: the kubelet of the lab looks for drivers' sockets itself."""
USERS = {"torrentdist": (10001, 10001), "spark": (185, 185)}
"""The user and the group of an image."""


class PodWorker(threading.Thread):
    def __init__(
        self, node: NodeSettings, api: KubernetesApi, networks: PodNetworks, pod: Resource, sockets: Sockets
    ) -> None:
        self.uid = str(pod["metadata"]["uid"])
        super().__init__(name=f"pod {pod['metadata']['name']}", daemon=True)
        self._node = node
        self._api = api
        self._networks = networks
        self.pod = pod
        self._volumes = PodVolumes(node, api, pod, sockets)
        self._address = ""
        self._network = Path("/run/netns", node.name)
        names = node.names_of(pod["metadata"]["namespace"])
        self._names = PodNames(names, node.on_disk(f"/run/containers/{self.uid}/hosts"))
        self._first = [ContainerLife(said) for said in pod["spec"].get("initContainers", [])]
        self._main = [ContainerLife(said) for said in pod["spec"]["containers"]]
        self._reported: dict[str, Any] = {}

    @property
    def _meta(self) -> Mapping[str, Any]:
        return self.pod["metadata"]  # type: ignore[no-any-return]

    @property
    def _path(self) -> str:
        return namespaced(self._meta["namespace"], "pods", self._meta["name"])

    @property
    def _hostname(self) -> str:
        return self._node.name if self.pod["spec"].get("hostNetwork") else str(self._meta["name"])

    def _leaves(self) -> bool:
        return "deletionTimestamp" in self._meta

    def run(self) -> None:
        with contextlib.suppress(InterruptedError):
            self._retried(self._volumes.set_up, "FailedMount")
            self._connect()
            for life in self._first:
                self._run_first(life)
            while not self._is_over():
                for life in self._main:
                    self._advance(life, self.pod["spec"].get("restartPolicy", "Always"))
                self._report()
                self._pause()
        self._end()

    def _pause(self, seconds: float = LOOK_SECS) -> None:
        time.sleep(seconds)
        self._names.look()
        if self._leaves():
            raise InterruptedError

    def _retried(self, act: Callable[[], None], reason: str) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                return act()
            except NotYet as exc:
                self._report()
                self._tell(reason, str(exc))
                self._pause(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _connect(self) -> None:
        if self.pod["spec"].get("hostNetwork"):
            self._address = self._node.address
        else:
            self._address, self._network = self._networks.add(self.uid)
        self._names.follow(self._address, self._hostname)

    def _run_first(self, life: ContainerLife) -> None:
        while life.code != 0:
            self._advance(life, "OnFailure")
            self._report()
            self._pause()

    def _is_over(self) -> bool:
        policy = self.pod["spec"].get("restartPolicy", "Always")
        codes = [life.code for life in self._main]
        return None not in codes and (policy == "Never" or (policy == "OnFailure" and not any(codes)))

    def _advance(self, life: ContainerLife, policy: str) -> None:
        now = time.monotonic()
        if life.process is None:
            if life.code is None and now >= life.again_at:
                life.process = RunningContainer(self._plan(life.said), self._root(life))
                life.began = moment()
                life.arm()
            return
        if life.process.exit_code() is None and life.look(now):
            self._tell("Unhealthy", f"Container {life.said['name']} failed its probe and is restarted")
            life.process.stop(self._grace())
        code = life.process.exit_code()
        if code is not None:
            life.process, life.ended, life.is_ready = None, moment(), False
            if policy == "Always" or (policy == "OnFailure" and code):
                life.restarts += 1
                life.again_at = now + min(FIRST_PAUSE * 2**life.restarts, LONGEST_PAUSE)
            else:
                life.code = code

    def _grace(self) -> float:
        return float(self._meta.get("deletionGracePeriodSeconds", self.pod["spec"]["terminationGracePeriodSeconds"]))

    def _root(self, life: ContainerLife) -> Path:
        return self._node.on_disk(f"/run/containers/{self.uid}/{life.said['name']}")

    def _plan(self, said: Mapping[str, Any]) -> ContainerPlan:
        image = said["image"].rpartition("/")[2].partition(":")[0]
        spec, own = self.pod["spec"], said.get("securityContext", {})
        context = {**spec.get("securityContext", {}), **own}
        user, group = USERS.get(image, (0, 0))
        groups = {*context.get("supplementalGroups", []), *([context["fsGroup"]] if "fsGroup" in context else [])}
        command = [*(said.get("command") or ENTRYPOINTS.get(image, [])), *said.get("args", [])]
        if image == REGISTRAR:
            command = ["sh", "-c", "trap exit TERM; sleep infinity & wait"]
        volumes = [BoundVolume(self._names.path, "/etc/hosts"), *self._volumes.bound(said.get("volumeMounts", []))]
        env = environment(self.pod, said, self._fields(), self._looked_up)
        return ContainerPlan(
            name=said["name"],
            command=[expanded(word, env) for word in command],
            env=env,
            volumes=volumes,
            network=self._network,
            hostname=self._hostname,
            log=self._node.log(self._meta["namespace"], self._meta["name"], said["name"]),
            etc=Path(self._node.etc),
            workdir=said.get("workingDir", "/"),
            user=context.get("runAsUser", user),
            group=context.get("runAsGroup", group if context.get("runAsUser", user) == user else 0),
            groups=sorted(groups),
            read_only=bool(context.get("readOnlyRootFilesystem")),
            privileged=bool(context.get("privileged")),
            drops_all="ALL" in context.get("capabilities", {}).get("drop", []),
        )

    def _fields(self) -> dict[str, str]:
        return {"status.hostIP": self._node.address, "status.podIP": self._address, "spec.nodeName": self._node.name}

    def _looked_up(self, kind: str, said: Mapping[str, Any]) -> str:
        kinds = "secrets" if kind.startswith("secret") else "configmaps"
        data = self._api.get(namespaced(self._meta["namespace"], kinds, said["name"])).get("data", {})
        plain = {key: base64.b64decode(text).decode() if kinds == "secrets" else text for key, text in data.items()}
        if "key" in said:
            return plain[said["key"]]
        return "\0".join(f"{key}={text}" for key, text in plain.items())

    def _report(self) -> None:
        first, main = ([life.report() for life in lives] for lives in (self._first, self._main))
        made = status(self.pod, self._node.address, self._address, first, main)
        if made != self._reported:
            try:
                self._api.patch(f"{self._path}/status", {"metadata": {"uid": self.uid}, "status": made})
                self._reported = made
            except (ApiError, OSError) as exc:
                print(f"status of {self.name}: {exc}", flush=True)

    def _tell(self, reason: str, message: str) -> None:
        """Makes an event of the pod."""
        meta = self._meta
        about = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "namespace": meta["namespace"]}
        event = {
            "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
            "involvedObject": {**about, "uid": self.uid},
            "reason": reason,
            "message": message[:1000],
            "type": "Warning",
            "count": 1,
            "firstTimestamp": moment(),
            "lastTimestamp": moment(),
            "source": {"component": "kubelet", "host": self._node.name},
        }
        print(f"{self.name}: {reason}: {message}", flush=True)
        with contextlib.suppress(ApiError, OSError):
            self._api.create(namespaced(meta["namespace"], "events"), event)

    def _end(self) -> None:
        """Ends containers, then volumes, then the network. The pod goes once it is deleted."""
        running = [life for life in [*self._first, *self._main] if life.process is not None]
        threads = [threading.Thread(target=self._stop, args=(life,)) for life in running]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._report()
        pause = FIRST_PAUSE
        while True:
            try:
                self._volumes.tear_down()
                break
            except (NotYet, OSError) as exc:
                self._tell("FailedUnMount", str(exc))
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        if not self.pod["spec"].get("hostNetwork"):
            self._networks.remove(self.uid)
        while not self._leaves():
            time.sleep(LOOK_SECS)
        with contextlib.suppress(ApiError):
            self._api.delete(self._path, {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}})

    def _stop(self, life: ContainerLife) -> None:
        assert life.process is not None
        life.process.stop(self._grace())
        life.code, life.ended, life.process, life.is_ready = life.process.exit_code(), moment(), None, False
