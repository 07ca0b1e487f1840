"""The template of Spark's pods, by which driver and executors on Kubernetes start with bundles as
volumes of the CSI driver.

Always: such a pod passes Pod Security admission at the level `restricted`, and reads bundles where
a host has them too.
Pure: no I/O.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from torrentdist.model.ids import BundleId

CSI_DRIVER: Final = "torrentdist"
READERS: Final = 10002
"""The group that may read bundles, as the manifests say it (`store.readable_by`)."""


def pod_template(bundles: Sequence[BundleId], ids_dir: str) -> str:
    """Returns a template with these bundles below `ids_dir`. JSON is YAML, too."""
    volumes = [
        {"name": f"bundle-{n}", "csi": {"driver": CSI_DRIVER, "readOnly": True, "volumeAttributes": {"bundle": bundle}}}
        for n, bundle in enumerate(bundles)
    ]
    base = ids_dir.rstrip("/")
    mounts = [
        {"name": f"bundle-{n}", "mountPath": f"{base}/{bundle}", "readOnly": True} for n, bundle in enumerate(bundles)
    ]
    container: dict[str, Any] = {
        "name": "spark",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts,
    }
    security = {
        "runAsNonRoot": True,
        "supplementalGroups": [READERS],
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec = {"securityContext": security, "containers": [container], "volumes": volumes}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "spec": spec}, indent=1)


def template_path(folder: str, text: str) -> str:
    """Returns where a template lies. Another text has another path."""
    return f"{folder}/spark-pod-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
