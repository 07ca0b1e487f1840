"""A real control plane on the bridge of a lab: etcd, kube-apiserver with RBAC, the node authorizer
and Pod Security admission, kube-controller-manager and kube-scheduler.

Always: nobody is admitted without a certificate or a token of this cluster, and no request leaves
the lab.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kubernetes.api_client import KubernetesApi
from kubernetes.cluster_keys import ClusterKeys
from kubernetes.ring import PROGRAMS

from bench.lab.namespaces import BRIDGE, Lab, wait_until

PORT = 6443
SERVER = f"https://{BRIDGE}:{PORT}"
SERVICES = "10.96.0.0/16"
FIRST_SERVICE = "10.96.0.1"
"""The address of the Service `kubernetes`."""
PODS = "10.244.0.0/16"
STORE = "http://127.0.0.1:2379"
START_SECS = 180.0
"""A bound for a busy machine; the API server starts within 15 seconds on a quiet one."""
KUBECTL_SECS = 120.0
ISSUER = "https://kubernetes.default.svc"
EVICTS_AFTER_SECS = 15
NAMES = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]


class ControlPlane:
    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._programs = Path(os.environ[PROGRAMS])
        self.keys = ClusterKeys(lab.dir / "keys", SERVER)
        self._admin = self.keys.issue("admin", ["system:masters"])
        self.kubeconfig = self.keys.kubeconfig("operator", ["system:masters"])
        self.api = KubernetesApi.of(SERVER, self._admin)

    def start(self) -> None:
        addresses = ["--listen-client-urls", STORE, "--advertise-client-urls", STORE]
        addresses += ["--listen-peer-urls", "http://127.0.0.1:2380"]
        self._run("etcd", ["--data-dir", str(self._lab.dir / "etcd"), "--unsafe-no-fsync", *addresses])
        self._run("kube-apiserver", self._api_options())
        wait_until(self._answers, "the API server", START_SECS)
        for name, options in {
            "kube-controller-manager": self._controller_options(),
            "kube-scheduler": ["--leader-elect=false", "--bind-address=127.0.0.1"],
        }.items():
            config = self.keys.kubeconfig(f"system:{name}")
            self._run(name, [f"--kubeconfig={config}", *options])

    def program(self, name: str) -> str:
        return str(self._programs / name)

    def _run(self, name: str, options: Sequence[str]) -> None:
        self._lab.spawn(None, [self.program(name), *options], name=name)

    def _api_options(self) -> list[str]:
        server = self.keys.issue("kube-apiserver", (), [BRIDGE, FIRST_SERVICE, "127.0.0.1", *NAMES])
        values = {
            "etcd-servers": STORE,
            "bind-address": BRIDGE,
            "advertise-address": BRIDGE,
            "secure-port": PORT,
            "service-cluster-ip-range": SERVICES,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "allow-privileged": "true",
            "kubelet-client-certificate": server.certificate,
            "kubelet-client-key": server.key,
            "kubelet-certificate-authority": self.keys.ca,
            "kubelet-preferred-address-types": "InternalIP",
            "client-ca-file": self.keys.ca,
            "tls-cert-file": server.certificate,
            "tls-private-key-file": server.key,
            "service-account-issuer": ISSUER,
            "service-account-key-file": self.keys.accounts_public,
            "service-account-signing-key-file": self.keys.accounts_key,
            "default-not-ready-toleration-seconds": EVICTS_AFTER_SECS,
            "default-unreachable-toleration-seconds": EVICTS_AFTER_SECS,
            "profiling": "false",
        }
        return [f"--{name}={value}" for name, value in values.items()]

    def _controller_options(self) -> list[str]:
        values = {
            "leader-elect": "false",
            "bind-address": "127.0.0.1",
            "use-service-account-credentials": "true",
            "service-account-private-key-file": self.keys.accounts_key,
            "root-ca-file": self.keys.ca,
            "node-monitor-grace-period": "20s",
        }
        return [f"--{name}={value}" for name, value in values.items()]

    def _answers(self) -> bool:
        if (self._lab._processes["kube-apiserver"].poll()) is not None:
            raise RuntimeError(self._lab.log_of("kube-apiserver")[-3000:])
        # Not before the system has its roles: a controller manager without any ends after 10 s.
        return self.kubectl("get", "--raw=/readyz", works=False).returncode == 0

    def kubectl(
        self, *arguments: str, namespace: str = "default", stdin: str | None = None, works: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl as the operator. `works`: whether it raises an error when it fails."""
        command = [self.program("kubectl"), f"--kubeconfig={self.kubeconfig}", f"--namespace={namespace}", *arguments]
        ended = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=KUBECTL_SECS, env=self.environment()
        )
        if works and ended.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {ended.stdout}{ended.stderr}")
        return ended

    def environment(self) -> Mapping[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self._lab.dir)}
