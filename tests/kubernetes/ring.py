"""Runs the tests that need a whole Kubernetes inside a lab, which ends with everything in it.

`python -m kubernetes.ring [arguments of pytest]`. Ends with pytest's code, or with 75 where this
machine can't have such hosts.

Always: all files are below one directory, which goes when the ring ends, however it ends.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from bench.lab import namespaces as labs

CANNOT = 75
PARTS = ("pods", "node_gateway", "network_policies", "attackers", "spark_pods", "chart_on_nodes", "restarts")
"""The last one takes a node away."""
RING = [f"tests/kubernetes/test_{name}.py" for name in PARTS]
INSIDE_LAB = "TORRENTDIST_KUBERNETES"
"""The ring's directory. Set for tests that run inside the lab."""
PROGRAMS = "KUBERNETES_PROGRAMS"
"""The folder of etcd, kube-apiserver and the others, which scripts/kubernetes builds."""


def why_not() -> str:
    """Returns why this machine can't have the nodes; empty if it can."""
    if not Path(os.environ.get(PROGRAMS, ""), "kube-apiserver").exists():
        return f"{PROGRAMS} names no folder with kube-apiserver: scripts/kubernetes builds it"
    missing = [tool for tool in ("java", "nsenter", "iptables", "setpriv") if shutil.which(tool) is None]
    return f"{', '.join(missing)} missing" if missing else labs.why_not()


def main() -> int:
    if os.environ.get(labs.INSIDE):
        labs.enter("kubernetes.ring", sys.argv[1:])
        return pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:], *RING])
    if reason := why_not():
        print(f"kubernetes: this machine can't have nodes: {reason}", file=sys.stderr)
        return CANNOT
    directory = tempfile.mkdtemp(prefix="torrentdist-kubernetes-")
    try:
        os.mkdir(f"{directory}/tmp")
        os.environ.update({INSIDE_LAB: directory, "TMPDIR": f"{directory}/tmp"})
        labs.enter("kubernetes.ring", sys.argv[1:])  # ends this process with pytest's code
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
