"""Distinguishes this machine's addresses from others.

Pure: no name is looked up.
"""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether the address can only be on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
