"""`kubectl exec`, stood in for: runs a command in a container of the lab, with the container's
rights and environment. `python -m kubernetes.pod_exec DISKS KUBECTL [arguments of kubectl]`.

The kubelet of the lab has no server for it; everything else of kubectl is real.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from kubernetes.containers import child_of, entering


def main(disks: Path, kubectl: str, words: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", "--namespace")
    parser.add_argument("-c", "--container")
    parser.add_argument("-i", action="store_true")
    parser.add_argument("pod")
    split = words.index("--")
    asked = parser.parse_args([word for word in words[:split] if word != "exec"])
    where = ["--namespace", asked.namespace] if asked.namespace else []
    said = subprocess.run([kubectl, *where, "get", "pod", asked.pod, "-o", "json"], capture_output=True, check=True)
    pod = json.loads(said.stdout)
    name = asked.container or pod["spec"]["containers"][0]["name"]
    node = pod["spec"]["nodeName"]
    about = json.loads((disks / node / "run/containers" / pod["metadata"]["uid"] / f"{name}.json").read_text())
    command = [*entering(child_of(about["pid"])), *about["as_user"], *words[split + 1 :]]
    return subprocess.run(
        command, stdin=None if asked.i else subprocess.DEVNULL, check=False, env=os.environ
    ).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
