"""The addresses that peers may connect from, told one by one and in ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.model.ids import PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce
from torrentdist.swarm.directory.directory import SwarmDirectory
from torrentdist.swarm.directory.peer_addresses import (
    FEW_HOSTS,
    MANY,
    RENEW_SECS_PER_HOST,
    AddressList,
    AddressRanges,
    Hosts,
    ranges_of,
)
from torrentdist.swarm.engine.connections import admits, clean_addresses, filter_for

LAST_V4, LAST_V6 = int(IPv4Address("255.255.255.254")), int(IPv6Address("ffff::ffff"))
V4 = st.sampled_from([1, int(IPv4Address("10.0.0.250")), LAST_V4 - 20])
V6 = st.sampled_from([1 << 100, LAST_V6 - 20])
NEAR = st.sets(st.integers(0, 20), max_size=21)


@given(v4=st.tuples(V4, NEAR), v6=st.tuples(V6, NEAR))
def test_ranges_admit_exactly_the_addresses_that_they_are_made_of(
    v4: tuple[int, set[int]], v6: tuple[int, set[int]]
) -> None:
    """If this failed, a stranger next to a host could join a swarm, or a host could not."""
    near = [str(IPv4Address(v4[0] + far)) for far in range(21)] + [str(IPv6Address(v6[0] + far)) for far in range(21)]
    meant = {str(IPv4Address(v4[0] + far)) for far in v4[1]} | {str(IPv6Address(v6[0] + far)) for far in v6[1]}
    told = ranges_of(meant)
    allowed = clean_addresses(told)
    assert allowed is not None
    rules = filter_for(allowed)

    assert meant == {address for address in near if not rules.access(address)}
    assert meant == {address for address in near if admits(allowed, address)}
    assert len(told) <= len(meant)
    assert not any(int(ip_address(text.split("-")[-1])) + 1 in {int(ip_address(m)) for m in meant} for text in told)


@pytest.mark.parametrize("text", ["10.0.0.9-10.0.0.1", "10.0.0.1-::2", "10.0.0.1-", "-", "10.0.0.1-10.0.0.2-10.0.0.3"])
def test_a_range_that_makes_no_sense_admits_nobody(text: str) -> None:
    """If this failed, a damaged answer would open the swarm, or end the agent."""
    assert frozenset() == clean_addresses([text])


def announced(directory: SwarmDirectory, number: int, *, ranges: bool, now: float = 0.0) -> list[str]:
    announce = SwarmAnnounce(
        peer=PeerId(f"s{number}"), role=PeerRole.SUPERVISOR, port=7061, host=f"10.0.{number >> 8}.{number & 255}"
    )
    announce = msgspec.structs.replace(announce, ranges=ranges)
    return directory.announce(announce, source_host="", now=now).addresses


def test_a_peer_of_an_older_release_is_told_each_address() -> None:
    """If this failed, hosts of the older release would refuse all others in a rolling upgrade."""
    directory = SwarmDirectory()
    for number in range(1, 4):
        announced(directory, number, ranges=True)

    assert ["10.0.0.1", "10.0.0.2", "10.0.0.3"] == announced(directory, 1, ranges=False)
    assert ["10.0.0.1-10.0.0.3"] == announced(directory, 1, ranges=True)


def test_the_lists_of_a_large_cluster_are_renewed_after_a_while() -> None:
    """If this failed, a wave of a hundred thousand hosts would make a master sort all of them for
    each that comes."""
    hosts, many = Hosts(), 5 * FEW_HOSTS
    for number in range(many):
        hosts.add(f"10.0.{number >> 8}.{number & 255}")
    first = hosts.addresses(frozenset(), 1.0, ranges=True)
    hosts.add("10.9.0.1")
    pause = (many + 1 - FEW_HOSTS) * RENEW_SECS_PER_HOST

    assert first is hosts.addresses(frozenset(), 1.0 + pause - 0.001, ranges=True)
    assert [*first.addresses, "10.9.0.1"] == hosts.addresses(frozenset(), 1.001 + pause, ranges=True).addresses
    assert ["10.0.0.0-10.0.19.135"] == first.addresses


@given(
    base=V4,
    steps=st.lists(
        st.tuples(st.sampled_from(["add", "drop", "register", "unregister"]), st.integers(0, 20)), max_size=60
    ),
    networks=st.sets(st.integers(0, 20), max_size=3),
    out=st.sets(st.integers(0, 20), max_size=5),
)
def test_a_list_of_ranges_follows_who_comes_and_goes(
    base: int, steps: list[tuple[str, int]], networks: set[int], out: set[int]
) -> None:
    """If this failed, a host that left could connect for ever, or one that came could not."""

    def address(far: int) -> str:
        return str(IPv4Address(base + far))

    shut, opened = frozenset(map(address, out)), {address(far) for far in networks}
    hosts, peers, given = Hosts(f"{one}/32" for one in opened), Counter[str](), set[str]()
    hosts.shut_out(shut)
    for turn, (what, far) in enumerate(steps):
        one = address(far)
        if what == "add":
            hosts.add(one)
            peers[one] += 1
        elif what == "drop" and peers[one]:
            hosts.drop(one)
            peers[one] -= 1
        elif what in ("register", "unregister"):
            (given.add if what == "register" else given.discard)(one)
            hosts.addresses(frozenset(given), float(turn), ranges=True)
    told = hosts.addresses(frozenset(given), 1e6, ranges=True).addresses
    single = hosts.addresses(frozenset(given), 1e6, ranges=False)
    known = {one for one, count in peers.items() if count} | given
    let_in = {one for one in map(address, range(21)) if admits(clean_addresses(told) or frozenset(), one)}

    assert known | (opened - shut) == let_in
    assert sorted(known) == single.addresses


@given(first=NEAR, second=NEAR)
def test_lists_have_equal_tags_if_they_are_equal(first: set[int], second: set[int]) -> None:
    """If this failed, a host would keep an old list, or be sent the same one again and again."""

    def told(order: Iterable[int], registered: bool) -> AddressList:
        hosts = Hosts()
        given = frozenset(f"10.0.0.{far}" for far in order) if registered else frozenset()
        for far in () if registered else order:
            hosts.add(f"10.0.0.{far}")
        return hosts.addresses(given, 0.0, ranges=True)

    forth, back, other = told(sorted(first), False), told(sorted(first, reverse=True), True), told(second, False)

    assert forth.tag == back.tag
    assert (forth.tag == other.tag) is (first == second)
    assert forth.addresses == back.addresses


def test_many_that_register_at_once_are_sorted_together() -> None:
    """If this failed, a master of a hundred thousand scattered hosts would stand still for 14 s
    when it starts."""
    some = [f"10.{number % 7}.{number * 37 % 251}.{number % 249}" for number in range(3 * MANY)]
    apart, together = Hosts(), Hosts()
    for one in some:
        apart.add(one)
    together.add("10.200.0.1")
    together.drop("10.200.0.1")

    told = together.addresses(frozenset(some), 0.0, ranges=True)

    assert apart.addresses(frozenset(), 0.0, ranges=True).addresses == told.addresses
    assert AddressRanges(some).texts() == told.addresses


def test_a_network_is_told_without_what_was_shut_out() -> None:
    """If this failed, a revoked host could still connect wherever its network is open."""
    hosts = Hosts(["10.1.0.0/16", "10.1.3.0/24"])
    hosts.add("10.1.0.7")
    hosts.add("10.2.0.1")
    before = hosts.addresses(frozenset(), 0.0, ranges=True)
    hosts.shut_out(frozenset({"10.1.0.5", "10.2.0.9"}))
    after = hosts.addresses(frozenset(), 0.0, ranges=True)

    assert ["10.1.0.0-10.1.255.255", "10.2.0.1"] == before.addresses
    assert ["10.1.0.0-10.1.0.4", "10.1.0.6-10.1.255.255", "10.2.0.1"] == after.addresses
    assert before.tag != after.tag
