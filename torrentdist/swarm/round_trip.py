"""Measures how far away a master is, from what the kernel's TCP has seen.

Always: it is the network's time alone. The time until an answer comes is no measure of that: it
includes the work of both ends, which on busy hosts is a hundred times the way.
Never: send anything.
"""

from __future__ import annotations

import math
import socket
import struct

from torrentdist.http.http_values import Answer

_MIN_RTT_AT = 148
"""Offset of tcpi_min_rtt in Linux's `struct tcp_info`: 32 bits, in microseconds."""
_UNKNOWN = 0xFFFFFFFF
"""The value of tcpi_min_rtt before a packet has been acknowledged."""


def round_trip(response: Answer) -> float:
    """Seconds there and back of the quickest packet of the answer's connection. Infinite if
    unknown."""
    connection = response.stream.get_extra_info("socket") if response.stream is not None else None
    option = getattr(socket, "TCP_INFO", None)
    if connection is None or option is None:
        return math.inf
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, option, _MIN_RTT_AT + 4)
    except OSError:
        return math.inf
    if len(info) < _MIN_RTT_AT + 4:
        return math.inf
    (micros,) = struct.unpack_from("=I", info, _MIN_RTT_AT)
    return math.inf if micros == _UNKNOWN else micros / 1e6
