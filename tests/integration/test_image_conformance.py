"""The OCI distribution specification's own conformance suite against the gateway.

It runs where the suite's program is: `go install
github.com/opencontainers/distribution-spec/conformance@latest`, with Go's `bin` on the PATH or the
program's path in `OCI_CONFORMANCE`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from cluster_fixtures import Cluster
from registry_clients import new_name, token_in, tool

PROGRAM = os.environ.get("OCI_CONFORMANCE") or shutil.which("conformance")
LEFT_OUT = {
    "OCI_DATA_SHA512": "false",  # digests are those of SHA-256
    "OCI_DATA_SPARSE": "false",  # an image is published whole
}


@pytest.mark.skipif(PROGRAM is None, reason="the OCI conformance suite is not installed")
def test_the_conformance_suite_passes(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, a client that keeps to the specification cannot use the gateway. The whole
    suite takes long."""
    settings = {
        "OCI_REGISTRY": cluster.url("supervisor-1").removeprefix("http://"),
        "OCI_TLS": "disabled",
        "OCI_REPO1": new_name(),
        "OCI_REPO2": new_name(),
        "OCI_USERNAME": "me",
        "OCI_PASSWORD": token_in(cluster.dir),
        "OCI_RESULTS_DIR": str(tmp_path / "results"),
        "OCI_VERSION": "1.1",
        "OCI_API_BLOBS_UPLOAD_CANCEL": "true",
        "OCI_API_BLOBS_DIGEST_HEADER": "true",
        "OCI_API_MANIFESTS_DIGEST_HEADER": "true",
    }
    assert PROGRAM is not None

    run = tool(PROGRAM, **settings, **LEFT_OUT)

    for bundle in cluster.run("image", "ls").ok():
        cluster.run("bundle", "rm", bundle["id"]).ok()
    assert (tmp_path / "results" / "results.yaml").exists(), run.stderr
    assert 0 == run.returncode, run.stdout[-6000:] + run.stderr[-6000:]
