"""Counts the bytes of content that the members of a test's cluster move, as their engines see
them."""

from __future__ import annotations

import re
import time

from cluster_fixtures import Cluster, until

STEADY_SECS = 1.5


def wire(cluster: Cluster, name: str, direction: str = "downloaded") -> int:
    """Returns the payload bytes that a member has moved, as its engine counts them."""
    text = cluster.http.get(cluster.url(name) + "/metrics").text
    found = re.search(rf"^torrentdist_swarm_{direction}_bytes_total(?:{{.*}})? ([0-9.e+]+)$", text, re.MULTILINE)
    assert found, text[:500]
    return int(float(found[1]))


def settled(cluster: Cluster, name: str, direction: str = "downloaded") -> int:
    """Returns the counter once it has not moved for a while: an engine renews it in the background,
    and an upload returns before the last master has the bundle."""
    last, since = -1, time.monotonic()

    def steady() -> bool:
        nonlocal last, since
        now = wire(cluster, name, direction)
        if now != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since > STEADY_SECS

    until(steady, "a steady counter", 60.0)
    return last
