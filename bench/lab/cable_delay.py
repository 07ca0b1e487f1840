"""Adds delay to the lab's cables where the kernel has no netem: this process passes frames between
two taps.

Run `python -m bench.lab.cable_delay SECONDS`. A line `HOST LINK` on stdin makes a cable from eth0
of the host's namespace to the interface LINK; the answer is `ready`.

Always: every frame is passed on whole and in order, SECONDS after it came.
Never: lose a frame, or limit the rate. tc limits rates.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

from bench.lab.namespaces import within

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
FRAME = 65536


def tap(name: str) -> int:
    """Creates a tap in this thread's network. It exists until its descriptor is closed."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


class Cables:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._far: dict[int, int] = {}
        self._under_way: deque[tuple[float, int, bytes]] = deque()
        self._poll = select.epoll()
        self._poll.register(sys.stdin.fileno(), select.EPOLLIN)

    def run(self) -> None:
        """Passes frames until stdin ends."""
        while True:
            wait = max(0.0, self._under_way[0][0] - time.monotonic()) if self._under_way else -1
            for fd, event in self._poll.poll(wait):
                if fd != sys.stdin.fileno():
                    self._take(fd)
                    if event & ~select.EPOLLIN:
                        self._poll.unregister(fd)  # its host was removed
                elif line := sys.stdin.readline():
                    self._lay(*line.split())
                else:
                    return
            now = time.monotonic()
            while self._under_way and self._under_way[0][0] <= now:
                _, to, frame = self._under_way.popleft()
                with contextlib.suppress(OSError):  # the cable was pulled
                    os.write(to, frame)

    def _lay(self, host: str, link: str) -> None:
        one, other = within(host, lambda: tap("eth0")), tap(link)
        self._far |= {one: other, other: one}
        for fd in (one, other):
            self._poll.register(fd, select.EPOLLIN)
        print("ready", flush=True)

    def _take(self, fd: int) -> None:
        due = time.monotonic() + self._seconds
        with contextlib.suppress(OSError):  # no more frames for now
            while True:
                self._under_way.append((due, self._far[fd], os.read(fd, FRAME)))


if __name__ == "__main__":
    Cables(float(sys.argv[1])).run()
