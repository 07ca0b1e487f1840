"""A relay in front of a Spark driver that counts the bytes that leave the driver. Executors know
only the relay's address.

Always: every byte between driver and executors passes, file server and broadcasts included.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

DRIVER, RELAY = "127.0.0.1", "127.0.0.2"
STEP = 256 * 1024


class Relay:
    """The driver listens at two ports, for messages and for blocks. Each has a relay with the same
    number."""

    def __init__(self) -> None:
        self.sent = 0
        """Bytes that left the driver."""
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._ports = [self._listen() for _ in range(2)]

    def options(self) -> list[str]:
        """Returns the options for spark-submit."""
        ports = dict(zip(("driver.port", "driver.blockManager.port"), self._ports, strict=True))
        conf = {"driver.host": RELAY, "driver.bindAddress": DRIVER, "port.maxRetries": 0, **ports}
        return [part for key, value in conf.items() for part in ("--conf", f"spark.{key}={value}")]

    def close(self) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _listen(self) -> int:
        while True:
            listening = socket.create_server((RELAY, 0))
            port = int(listening.getsockname()[1])
            with contextlib.suppress(OSError), socket.create_server((DRIVER, port)):
                break
            listening.close()  # another process has this port at the driver's address
        self._sockets.append(listening)
        threading.Thread(target=self._accept, args=(listening, port), daemon=True).start()
        return port

    def _accept(self, listening: socket.socket, port: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._connect(listening.accept()[0], port)

    def _connect(self, executor: socket.socket, port: int) -> None:
        try:
            driver = socket.create_connection((DRIVER, port))
        except OSError:
            executor.close()
            return
        self._sockets += executor, driver
        for source, target, weight in ((executor, driver, 0), (driver, executor, 1)):
            threading.Thread(target=self._pass_on, args=(source, target, weight), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, weight: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(STEP):
                with self._lock:
                    self.sent += weight * len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def relay() -> Iterator[Relay]:
    made = Relay()
    try:
        yield made
    finally:
        made.close()
