"""The network of pods: each has a namespace and an address of its own, and its node carries its
packets. No other node and no other pod can take its address.

Always: what was made for a pod goes with `remove`, and with the lab at the latest.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.lab.namespaces import BRIDGE

NEXT_HOP = "169.254.1.1"
NODE_MAC = "02:00:0a:fe:00:01"
"""The node's end of each cable; it is in the network of one pod only."""
ROUTER = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter"


def subnet(number: int) -> str:
    return f"10.244.{number}.0/24"


def join_nodes(addresses: Mapping[str, tuple[int, str]]) -> None:
    """Tells each node, by name, with its number and address, and the bridge, which node carries
    the packets of which pods."""
    for place in [*addresses, ""]:
        reach_pods(place, addresses)
        if place:
            inside = ["nsenter", f"--net=/run/netns/{place}", "sh", "-c", ROUTER]
            subprocess.run(inside, check=True)


def reach_pods(place: str, addresses: Mapping[str, tuple[int, str]]) -> None:
    """Tells a host, or the bridge (""), which node carries the packets of which pods. A host's
    default route lets it dial Services, whose addresses nobody has."""
    routes = [
        f"route add {subnet(number)} via {address}" for name, (number, address) in addresses.items() if name != place
    ]
    ip([*routes, f"route add default via {BRIDGE}"] if place else routes, place)


class PodNetworks:
    """The pods of one node, whose network namespace is called `node`."""

    def __init__(self, node: str, number: int) -> None:
        self._node = node
        self._number = number
        self._last = 1

    def add(self, uid: str) -> tuple[str, Path]:
        """Makes the network of a pod. Returns its address, and its namespace."""
        self._last += 1
        last, name = self._last, f"pod-{uid[:8]}"
        address, mac, link = f"10.244.{self._number}.{last}", f"02:00:0a:f4:{self._number:02x}:{last:02x}", f"p{last}"
        ip([f"netns add {name}"])
        ip([f"link add {link} address {NODE_MAC} type veth peer name eth0 netns {name} address {mac}"], self._node)
        ip(
            [
                f"link set {link} up",
                f"route add {address}/32 dev {link}",
                f"neigh replace {address} lladdr {mac} dev {link} nud permanent",
            ],
            self._node,
        )
        ip(
            [
                "link set lo up",
                f"addr add {address}/32 dev eth0",
                "link set eth0 up",
                f"neigh replace {NEXT_HOP} lladdr {NODE_MAC} dev eth0 nud permanent",
                f"route add {NEXT_HOP} dev eth0 scope link",
                f"route add default via {NEXT_HOP}",
            ],
            name,
        )
        return address, Path("/run/netns", name)

    def remove(self, uid: str) -> None:
        subprocess.run(["ip", "netns", "del", f"pod-{uid[:8]}"], check=False, capture_output=True)


def ip(commands: Sequence[str], namespace: str = "") -> None:
    where = ["-n", namespace] if namespace else []
    subprocess.run(["ip", *where, "-batch", "-"], input="\n".join(commands), text=True, check=True)
