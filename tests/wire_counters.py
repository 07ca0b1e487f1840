"""Counts the bytes of content that the members of a test's cluster move, as their engines see
them."""

from __future__ import annotations

import re

from cluster_fixtures import Cluster, until


def wire(cluster: Cluster, name: str, direction: str = "downloaded") -> int:
    """Returns the payload bytes that a member has moved, as its engine counts them."""
    text = cluster.http.get(cluster.url(name) + "/metrics").text
    found = re.search(rf"^torrentdist_swarm_{direction}_bytes_total(?:{{.*}})? ([0-9.e+]+)$", text, re.MULTILINE)
    assert found, text[:500]
    return int(float(found[1]))


def settled(cluster: Cluster, name: str, direction: str = "downloaded") -> int:
    """Returns the counter once two looks agree: an engine renews it in the background."""
    seen = [-2, -1]

    def same() -> bool:
        seen[:] = [seen[1], wire(cluster, name, direction)]
        return seen[0] == seen[1]

    until(same, "a steady counter")
    return seen[1]
