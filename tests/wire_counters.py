"""Counts the bytes of content that the members of a test's cluster move, as their engines see
them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from cluster_fixtures import Cluster, until

STEADY_SECS = 1.5


def wire(cluster: Cluster, name: str, direction: str = "downloaded") -> int:
    """Returns the payload bytes that a member has moved, as its engine counts them."""
    text = cluster.http.get(cluster.url(name) + "/metrics").text
    found = re.search(rf"^torrentdist_swarm_{direction}_bytes_total(?:{{.*}})? ([0-9.e+]+)$", text, re.MULTILINE)
    assert found, text[:500]
    return int(float(found[1]))


def all_settled(cluster: Cluster, names: Iterable[str], direction: str = "downloaded") -> dict[str, int]:
    """Returns the members' counters once none has moved for a while: an engine renews its counter
    in the background, and an upload returns before the last master has the bundle."""
    members = tuple(names)
    last: dict[str, int] = {}
    since = time.monotonic()

    def steady() -> bool:
        nonlocal last, since
        now = {name: wire(cluster, name, direction) for name in members}
        if now != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since > STEADY_SECS

    until(steady, "steady counters", 60.0)
    return last


def settled(cluster: Cluster, name: str) -> int:
    """Returns what one member has downloaded, once that has not grown for a while."""
    return all_settled(cluster, [name])[name]
