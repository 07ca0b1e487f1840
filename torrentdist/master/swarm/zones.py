"""Tells where a host of the cluster is: its zone, by its label `zone` or by a table of networks,
and its rack, by its label `rack`.

Always: the label of a supervisor precedes the table. Of several networks that contain an address,
the smallest counts.
Pure: no I/O and no clock.
"""

import ipaddress
from collections.abc import Callable, Mapping

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId, PeerId, SupervisorId
from torrentdist.swarm.plan import border
from torrentdist.swarm.plan.zoned_crowds import NOWHERE

ZONE, RACK = "zone", "rack"
"""The labels that count."""


class Zones:
    def __init__(self, networks: Mapping[str, str], snapshot: Callable[[], ClusterSnapshot]) -> None:
        """`networks` maps networks, such as 10.1.0.0/16, to the names of zones. Raises
        `config_invalid` for text that is no network."""
        self._networks = sorted(
            ((_network(text), zone) for text, zone in networks.items()), key=lambda row: -row[0].prefixlen
        )
        self._snapshot = snapshot

    def of(self, peer: PeerId) -> str:
        """Returns the zone of a master or supervisor; empty: it is in none."""
        return border.zone_of(self.place(peer))

    def place(self, peer: PeerId) -> str:
        """Returns the zone and the rack of a master or supervisor, such as `east/r1`, or what is
        known of them."""
        snapshot = self._snapshot()
        supervisor = snapshot.supervisors.get(SupervisorId(peer))
        if supervisor is not None:
            zone, rack = (supervisor.labels.get(label, "").replace("/", "_") for label in (ZONE, RACK))
            zone = zone or self._of_address(supervisor.host)
            return f"{zone}/{rack}" if zone and rack else zone
        master = snapshot.masters.get(MasterId(peer))
        return NOWHERE if master is None else self._of_address(master.host)

    def _of_address(self, host: str) -> str:
        if not self._networks:
            return NOWHERE
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return NOWHERE
        return next((zone for network, zone in self._networks if address in network), NOWHERE)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        detail = f"swarm.zones names {text!r}, which is no network: {error}"
        raise TorrentdistError("config_invalid", origin="the configuration", detail=detail) from None
