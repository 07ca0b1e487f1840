"""The volumes of a pod: files of the API server's objects, directories of the node, and what a CSI
driver mounts.

Always: setting up again changes nothing that is there; what cannot be had yet raises NotYet.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kubernetes.api_client import ApiError, KubernetesApi, Resource, namespaced
from kubernetes.containers import BoundVolume
from kubernetes.kubelet_csi import DriverRefused, PodVolume, given_for, inline_handle, publish, unpublish
from kubernetes.node_places import NodeSettings

Sockets = Callable[[str], Path | None]
"""Returns the socket of a driver on this node."""


class NotYet(Exception):
    """What a volume waits for."""


class PodVolumes:
    def __init__(self, node: NodeSettings, api: KubernetesApi, pod: Resource, sockets: Sockets) -> None:
        self._node = node
        self._api = api
        self._pod = pod
        self._namespace = str(pod["metadata"]["namespace"])
        self._uid = str(pod["metadata"]["uid"])
        self._sockets = sockets
        self._paths: dict[str, Path] = {}
        self._mounted: list[tuple[str, PodVolume]] = []

    def set_up(self) -> None:
        """Makes what is not there yet. Raises NotYet, or returns when all is there."""
        for volume in self._pod["spec"].get("volumes", []):
            if volume["name"] not in self._paths:
                try:
                    self._paths[volume["name"]] = self._made(volume)
                except (ApiError, DriverRefused, OSError) as exc:
                    raise NotYet(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {exc}') from exc

    def bound(self, mounts: list[Mapping[str, Any]]) -> list[BoundVolume]:
        """Returns what a container mounts."""
        made = []
        for mount in mounts:
            source = self._paths[mount["name"]]
            if part := mount.get("subPath"):
                source = source / part
            made.append(
                BoundVolume(
                    source,
                    mount["mountPath"].rstrip("/"),
                    bool(mount.get("readOnly")),
                    mount.get("mountPropagation", "None"),
                )
            )
        return made

    def tear_down(self) -> None:
        """Unmounts what drivers have mounted, and removes the rest. Raises NotYet while a driver
        refuses."""
        while self._mounted:
            driver, volume = self._mounted[-1]
            socket = self._sockets(driver)
            try:
                if socket is None:
                    raise NotYet(f"driver name {driver} not found in the list of registered CSI drivers")
                unpublish(socket, volume.handle, volume.target)
            except DriverRefused as exc:
                raise NotYet(str(exc)) from exc
            self._mounted.pop()
        self._paths.clear()
        shutil.rmtree(self._node.on_disk(self._node.pod(self._uid)), ignore_errors=True)

    def _made(self, volume: Mapping[str, Any]) -> Path:
        kinds: dict[str, Callable[[str, Any], Path]] = {
            "configMap": self._config_map,
            "secret": self._secret,
            "emptyDir": self._empty,
            "hostPath": self._host_path,
            "projected": self._projected,
            "downwardAPI": self._downward,
            "persistentVolumeClaim": self._claim,
            "csi": self._inline,
        }
        for kind, make in kinds.items():
            if kind in volume:
                return make(volume["name"], volume[kind])
        raise NotYet(f"the stand-in for the kubelet has no volumes like {sorted(volume)}")

    def _own(self, kind: str, name: str) -> Path:
        path = self._node.on_disk(self._node.volume(self._uid, kind, name))
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _config_map(self, name: str, said: Mapping[str, Any]) -> Path:
        return self._filled("configmap", name, self._config_files(said), said.get("defaultMode", 0o644))

    def _secret(self, name: str, said: Mapping[str, Any]) -> Path:
        return self._filled("secret", name, self._secret_files(said, "secretName"), said.get("defaultMode", 0o644))

    def _projected(self, name: str, said: Mapping[str, Any]) -> Path:
        files: dict[str, bytes] = {}
        for source in said["sources"]:
            if given := source.get("configMap"):
                files |= self._config_files(given)
            elif given := source.get("secret"):
                files |= self._secret_files(given, "name")
            elif given := source.get("serviceAccountToken"):
                token = self.token(given.get("audience", ""), given.get("expirationSeconds", 3600))
                files[given["path"]] = token["token"].encode()
            elif given := source.get("downwardAPI"):
                files |= {item["path"]: self._field(item).encode() for item in given["items"]}
        return self._filled("projected", name, files, said.get("defaultMode", 0o644))

    def _downward(self, name: str, said: Mapping[str, Any]) -> Path:
        files = {item["path"]: self._field(item).encode() for item in said["items"]}
        return self._filled("downward-api", name, files, said.get("defaultMode", 0o644))

    def _field(self, item: Mapping[str, Any]) -> str:
        value: Any = self._pod
        for part in item["fieldRef"]["fieldPath"].split("."):
            value = value.get(part, "")
        if isinstance(value, Mapping):
            return "".join(f'{key}="{each}"\n' for key, each in value.items())
        return str(value)

    def _config_files(self, said: Mapping[str, Any]) -> dict[str, bytes]:
        data = self._read("configmaps", said, "name").get("data", {})
        return _chosen({key: text.encode() for key, text in data.items()}, said)

    def _secret_files(self, said: Mapping[str, Any], key: str) -> dict[str, bytes]:
        data = self._read("secrets", said, key).get("data", {})
        return _chosen({name: base64.b64decode(text) for name, text in data.items()}, said)

    def _read(self, kind: str, said: Mapping[str, Any], key: str) -> Resource:
        try:
            return self._api.get(namespaced(self._namespace, kind, said[key]))
        except ApiError as exc:
            if exc.code == 404 and said.get("optional"):
                return {}
            raise

    def _filled(self, kind: str, name: str, files: Mapping[str, bytes], mode: int) -> Path:
        place = self._own(kind, name)
        for path, content in files.items():
            file = place / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(mode)
        self._give(place)
        return place

    def _give(self, place: Path) -> None:
        """Opens a volume to the pod's group, as fsGroup says."""
        group = self._pod["spec"].get("securityContext", {}).get("fsGroup")
        if group is None:
            return
        for path in [place, *place.rglob("*")]:
            os.chown(path, -1, group, follow_symlinks=False)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o2770 if path.is_dir() else 0o440))

    def _empty(self, name: str, _: Mapping[str, Any]) -> Path:
        place = self._own("empty-dir", name)
        place.chmod(0o777)
        self._give(place)
        return place

    def _host_path(self, _: str, said: Mapping[str, Any]) -> Path:
        path = self._node.on_disk(said["path"])
        kind = said.get("type", "")
        if kind == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            raise NotYet(f"hostPath type check failed: {said['path']} is not a directory")
        return path

    def _claim(self, name: str, said: Mapping[str, Any]) -> Path:
        claim = self._api.get(namespaced(self._namespace, "persistentvolumeclaims", said["claimName"]))
        bound = claim["spec"].get("volumeName")
        if not bound:
            raise NotYet(f"the claim {said['claimName']} is not bound")
        volume = self._api.get(f"/api/v1/persistentvolumes/{bound}")["spec"]
        if given := volume.get("csi"):
            directory = self._node.volume(self._uid, "csi", bound)
            attributes = given.get("volumeAttributes", {})
            wanted = PodVolume(given["volumeHandle"], directory, attributes, ephemeral=False)
            return self._published(given["driver"], wanted, read_only=bool(given.get("readOnly")))
        place = self._node.on_disk((volume.get("local") or volume["hostPath"])["path"])
        place.mkdir(parents=True, exist_ok=True)
        self._give(place)
        return place

    def _inline(self, name: str, said: Mapping[str, Any]) -> Path:
        directory = self._node.volume(self._uid, "csi", name)
        handle = inline_handle(self._uid, name)
        wanted = PodVolume(handle, directory, said.get("volumeAttributes", {}), ephemeral=True)
        return self._published(said["driver"], wanted, read_only=bool(said.get("readOnly")))

    def _published(self, driver: str, volume: PodVolume, *, read_only: bool) -> Path:
        socket = self._sockets(driver)
        if socket is None:
            raise NotYet(f"driver name {driver} not found in the list of registered CSI drivers")
        about = self._api.get(f"/apis/storage.k8s.io/v1/csidrivers/{driver}")
        requests = about["spec"].get("tokenRequests", [])
        tokens = {one["audience"]: self.token(one["audience"], one.get("expirationSeconds", 3600)) for one in requests}
        self._node.on_disk(volume.directory).mkdir(parents=True, exist_ok=True)
        # From the first attempt on, it has to be unmounted, whatever becomes of it.
        if (driver, volume) not in self._mounted:
            self._mounted.append((driver, volume))
        publish(socket, volume, given_for(self._pod, volume, about, tokens), read_only)
        return self._node.on_disk(volume.target)

    def token(self, audience: str, seconds: int) -> dict[str, str]:
        """Asks the API server for a token of the pod's account, bound to the pod."""
        meta = self._pod["metadata"]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        spec: dict[str, Any] = {"expirationSeconds": max(600, seconds), "boundObjectRef": bound}
        spec |= {"audiences": [audience]} if audience else {}
        account = self._pod["spec"]["serviceAccountName"]
        path = namespaced(self._namespace, "serviceaccounts", account) + "/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        status = self._api.create(path, body)["status"]
        return {"token": status["token"], "expirationTimestamp": status["expirationTimestamp"]}


def _chosen(files: Mapping[str, bytes], said: Mapping[str, Any]) -> dict[str, bytes]:
    if "items" not in said:
        return dict(files)
    return {item["path"]: files[item["key"]] for item in said["items"] if item["key"] in files}


def unmount_all(below: Path) -> None:
    """Ends every mount below a directory, as a reboot does."""
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        if (place := line.split()[4]).startswith(f"{below}/"):
            with contextlib.suppress(subprocess.CalledProcessError):
                subprocess.run(["umount", "-l", place], check=True, capture_output=True)
