"""Which addresses connections are accepted from and made to, as libtorrent's filter.

Always holds: what is not named is blocked, unless nothing was ever named at all.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Collection, Iterable

import libtorrent as lt

_BLOCKED = 1
_FILTERED = 89


def clean_addresses(addresses: Iterable[str] | None) -> frozenset[str] | None:
    """Canonical forms; what is no IP address is left out, because nobody can connect from it."""
    if addresses is None:
        return None
    return frozenset(canonical for address in addresses if (canonical := canonical_address(address)) is not None)


def canonical_address(text: str) -> str | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


async def resolve(host: str) -> str:
    """What is an address is not looked up: the first time costs a command 4 ms and a thread."""
    if (address := canonical_address(host)) is not None:
        return address
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return str(found[0][4][0])


def why(error: lt.error_code, host: str, allowed: frozenset[str] | None) -> str:
    """Why a peer was disconnected. Whoever may connect was blocked for that moment alone."""
    filtered = error.category().name() == "libtorrent" and error.value() == _FILTERED
    return "connecting anew" if filtered and (allowed is None or host in allowed) else str(error.message())


def part_from(session: lt.session, hosts: Collection[str], allowed: frozenset[str] | None) -> None:
    """End all connections to these hosts, which may come back at once. libtorrent has no other way to do it, and knows
    nothing of them when they are dialled right after."""
    session.set_ip_filter(filter_for(allowed, but=hosts))
    session.set_ip_filter(filter_for(allowed))


def filter_for(allowed: frozenset[str] | None, *, but: Iterable[str] = ()) -> lt.ip_filter:
    """`but`: these are blocked all the same."""
    rules = lt.ip_filter()
    if allowed is not None:
        rules.add_rule("0.0.0.0", "255.255.255.255", _BLOCKED)
        rules.add_rule("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", _BLOCKED)
        for address in sorted(allowed):
            rules.add_rule(address, address, 0)
    for address in but:
        rules.add_rule(address, address, _BLOCKED)
    return rules
