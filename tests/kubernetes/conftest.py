"""A whole Kubernetes with torrentdist on it, for all tests inside the lab."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes.kubernetes_site import KubernetesSite
from kubernetes.ring import INSIDE_LAB


@pytest.fixture(scope="session")
def site() -> Iterator[KubernetesSite]:
    directory = Path(os.environ[INSIDE_LAB])
    site = KubernetesSite(directory)
    try:
        site.up()
        site.install()
        yield site
    finally:
        site.down()
        if kept := os.environ.get("KUBERNETES_LOGS"):
            left = shutil.ignore_patterns("tmp", "keys", "etcd", "*.sock")
            shutil.copytree(directory, kept, ignore=left, dirs_exist_ok=True)
