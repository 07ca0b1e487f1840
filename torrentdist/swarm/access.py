"""Which addresses connections are accepted from and made to, as libtorrent's filter.

Always holds: what is not named is blocked, unless nothing was ever named at all.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import libtorrent as lt

_BLOCKED = 1


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


def filter_for(allowed: frozenset[str] | None) -> lt.ip_filter:
    rules = lt.ip_filter()
    if allowed is None:
        return rules
    rules.add_rule("0.0.0.0", "255.255.255.255", _BLOCKED)
    rules.add_rule("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", _BLOCKED)
    for address in sorted(allowed):
        rules.add_rule(address, address, 0)
    return rules
