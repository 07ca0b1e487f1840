"""Serves one file on a host's own loopback: the baseline for executors that do not wait for a link.

Never: handle a byte of the file in Python, so that only Spark's own costs are measured.
"""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path


def main() -> None:
    path, port = Path(sys.argv[1]), int(sys.argv[2])
    listening = socket.create_server(("127.0.0.1", port))
    print("ready", flush=True)
    while True:
        threading.Thread(target=answer, args=(listening.accept()[0], path), daemon=True).start()


def answer(sock: socket.socket, path: Path) -> None:
    with sock, path.open("rb") as file:
        asked = b""
        while b"\r\n\r\n" not in asked:
            more = sock.recv(65536)
            if not more:
                return
            asked += more
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {path.stat().st_size}\r\nConnection: close\r\n\r\n"
        sock.sendall(head.encode())
        sock.sendfile(file)


if __name__ == "__main__":
    main()
