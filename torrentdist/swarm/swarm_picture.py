"""Combines the answers of several masters to an announce into one picture of the swarms.

Always: a pin counts if any master reports it, and a tombstone if one does that reaches ZooKeeper.
Without an answer the last picture stays, because peers continue without masters. All members of a
swarm follow the same master's plan.
Pure: no I/O and no clock.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from torrentdist.model.ids import Digest
from torrentdist.model.rendezvous import rendezvous
from torrentdist.model.wire.headers import UNKNOWN_AGE, AnswerAge
from torrentdist.model.wire.swarm_messages import PeerAddress, SwarmAnswer, SwarmPeers
from torrentdist.swarm.directory.peer_addresses import address_of, holds_one_of

FIRST_INTERVAL_SECS: Final = 0.5
ADDRESS_LINGER_SECS: Final = 120.0
"""How long an address stays known that no master names. A restarted master knows few."""
_NO_AGES: Final[Mapping[str, AnswerAge]] = MappingProxyType({})


class SwarmPicture(msgspec.Struct, frozen=True, kw_only=True):
    """What all masters together say."""

    masters: tuple[str, ...] = ()
    """URLs of the registered masters."""
    addresses: frozenset[str] = frozenset()
    """Addresses from which peers may connect."""
    shut_out: frozenset[str] = frozenset()
    """Addresses that were shut out a moment ago."""
    swarms: Mapping[Digest, SwarmPeers] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    wanted: frozenset[Digest] = frozenset()
    """Digests whose metafile a master asks for."""
    interval: float = FIRST_INTERVAL_SECS
    """Seconds until the next announce."""
    answered: int = 0
    """Number of masters that answered the last announce. If it is 0, the other fields are older."""
    rtt: float = 0.0
    """Round-trip time to the nearest master in seconds; 0 if unknown."""
    removed: Mapping[Digest, int] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """Contents that masters call removed, each with the newest transaction that one of these
    masters has seen; 0 if unknown."""
    unknown: frozenset[Digest] = frozenset()
    """Contents that no master has a record of."""


def merge(
    by_master: Mapping[str, SwarmAnswer], before: SwarmPicture, ages: Mapping[str, AnswerAge] = _NO_AGES
) -> SwarmPicture:
    """Returns one picture from the answers by master, or `before` if there are none. `ages`: those
    of the answers, as far as they are known."""
    if not by_master:
        return msgspec.structs.replace(before, answered=0)
    answers = list(by_master.values())
    swarms: dict[Digest, SwarmPeers] = {}
    for answer in answers:
        for digest, said in answer.swarms.items():
            swarms[digest] = _both(swarms[digest], said) if digest in swarms else said
    for digest in [digest for digest, said in swarms.items() if said.place or said.flows]:
        plan = _plan(digest, by_master)
        swarms[digest] = msgspec.structs.replace(swarms[digest], place=plan.place, flows=plan.flows)
    return SwarmPicture(
        masters=tuple(dict.fromkeys(url for answer in answers for url in answer.masters)),
        addresses=frozenset(host for answer in answers for host in answer.addresses),
        shut_out=frozenset(filter(None, (address_of(out) for answer in answers for out in answer.shut_out))),
        swarms=MappingProxyType(swarms),
        wanted=frozenset(digest for answer in answers for digest in answer.wanted),
        interval=min(answer.interval for answer in answers),
        answered=len(answers),
        removed=MappingProxyType(_removed(by_master, ages)),
        unknown=_unknown(by_master, ages),
    )


def lingers(addresses: str, secs: float, picture: SwarmPicture) -> bool:
    """Whether an address or a range of them is still known, `secs` after a master named it. One
    that was shut out is not, unless a master names it now."""
    if addresses in picture.addresses:
        return True
    return secs <= ADDRESS_LINGER_SECS and not (picture.shut_out and holds_one_of(addresses, picture.shut_out))


def _removed(by_master: Mapping[str, SwarmAnswer], ages: Mapping[str, AnswerAge]) -> dict[Digest, int]:
    """Returns what masters call removed. One that is cut off from ZooKeeper cannot know whether it
    was uploaded again."""
    found: dict[Digest, int] = {}
    for url, answer in by_master.items():
        age = ages.get(url, UNKNOWN_AGE)
        for digest, said in answer.swarms.items() if age.stale_secs is None else ():
            if said.removed:
                found[digest] = max(found.get(digest, 0), age.zxid or 0)
    return found


def _unknown(by_master: Mapping[str, SwarmAnswer], ages: Mapping[str, AnswerAge]) -> frozenset[Digest]:
    """Returns what no master that reaches ZooKeeper has a record of. One of them may be late."""
    fresh = [answer for url, answer in by_master.items() if ages.get(url, UNKNOWN_AGE).stale_secs is None]
    said = {digest for answer in fresh for digest, peers in answer.swarms.items() if peers.unknown}
    known = {digest for answer in fresh for digest, peers in answer.swarms.items() if not peers.unknown}
    return frozenset(said - known)


def _plan(digest: Digest, by_master: Mapping[str, SwarmAnswer]) -> SwarmPeers:
    """Returns the answer whose plan all members follow: that of the first master, by rendezvous
    order, that has one."""
    said = (by_master[url].swarms.get(digest) for url in rendezvous(by_master, digest))
    return next(peers for peers in said if peers and (peers.place or peers.flows))


def _both(one: SwarmPeers, other: SwarmPeers) -> SwarmPeers:
    peers: dict[tuple[str, int], PeerAddress] = {(peer.host, peer.port): peer for peer in one.peers}
    for peer in other.peers:
        known = peers.setdefault((peer.host, peer.port), peer)
        if peer.complete and not known.complete:
            peers[peer.host, peer.port] = peer
    return SwarmPeers(
        peers=list(peers.values()),
        pinned=one.pinned or other.pinned,
        replicas=max(one.replicas, other.replicas),
        place=one.place or other.place,
        flows=one.flows or other.flows,
    )
