"""Clients of a running cluster for tests: of its ZooKeeper, and of its HTTP as one of its hosts."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from cluster_fixtures import Cluster
from kazoo.client import KazooClient


@contextmanager
def zookeeper_of(cluster: Cluster) -> Iterator[KazooClient]:
    client = KazooClient(hosts=cluster.dev.state.zookeeper)
    client.start(10)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def trusting(cluster: Cluster, host: str = "") -> ssl.SSLContext:
    """Trusts the cluster's CA, and shows a host's certificate."""
    made = ssl.create_default_context(cafile=cluster.dir / "ca" / "ca.pem")
    if host:
        files = cluster.dir / "ca" / "hosts" / host
        made.load_cert_chain(files / "certificate.pem", files / "key.pem")
    return made
