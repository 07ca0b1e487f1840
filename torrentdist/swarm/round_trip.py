"""How far a master is, as the kernel's TCP saw it.

Always holds: it is the network's time alone. How long an answer took is no measure of that: the work of both ends is in
it, and with busy hosts that is a hundred times the way. Must not do: send anything.
"""

from __future__ import annotations

import math
import socket
import struct

from torrentdist.http.http_values import Answer

_MIN_RTT_AT = 148
"""Of Linux's `struct tcp_info`: tcpi_min_rtt, 32 bits, microseconds; all ones: no packet has been acknowledged yet."""
_UNKNOWN = 0xFFFFFFFF


def round_trip(response: Answer) -> float:
    """Seconds there and back of the quickest packet of the connection that this came over; infinite: not known here."""
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
