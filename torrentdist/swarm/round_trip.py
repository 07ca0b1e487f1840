"""Measures the network distance to a master, from the kernel's TCP statistics.

Always: only the network's time counts. The time until an answer arrives is no measure of it: it
includes work at both ends, which on busy hosts takes a hundred times longer.
Never: send anything.
"""

import math
import socket
import struct

from torrentdist.http.http_values import Answer

_MIN_RTT_AT = 148
"""Offset of tcpi_min_rtt in Linux's `struct tcp_info`: 32 bits, in microseconds."""
_UNKNOWN = 0xFFFFFFFF
"""The value of tcpi_min_rtt before a packet has been acknowledged."""


def round_trip(response: Answer) -> float:
    """Returns the round-trip time in seconds of the fastest packet on the answer's connection;
    infinite if unknown."""
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
