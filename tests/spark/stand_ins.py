"""Stand-ins for a Kubernetes API server and a YARN resource manager that record a driver's
requests.

Never: run anything. The executors that a driver asks for never start.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

YARN_SITE = """<configuration>
<property><name>yarn.resourcemanager.address</name><value>127.0.0.1:{port}</value></property>
<property><name>yarn.resourcemanager.connect.max-wait.ms</name><value>1000</value></property>
<property><name>yarn.resourcemanager.connect.retry-interval.ms</name><value>500</value></property>
</configuration>"""


class KubernetesApi:
    """Accepts every object, has no pods, and keeps watchers waiting for as long as they like."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.pods: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.ended = threading.Event()
        self.master = f"k8s://http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        self.asked.append((method, path))
        kind = path.partition("?")[0].rpartition("/")[2]
        if method == "POST":
            made: dict[str, Any] = json.loads(body)
            if kind == "pods":
                self.pods.append(made)
            made["metadata"] |= {"uid": str(len(self.asked)), "resourceVersion": "1"}
            return made
        if method == "GET" and kind in ("pods", "configmaps", "services", "persistentvolumeclaims"):
            name = {"pods": "Pod", "configmaps": "ConfigMap"}.get(kind, kind)
            return {"kind": f"{name}List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                answer = json.dumps(api.answer(self.command, self.path, body)).encode()
                # A client that is refused a web socket watches by plain HTTP.
                watching = "watch=true" in self.path and "upgrade" not in self.headers
                self.send_response(201 if self.command == "POST" else 200)
                self.send_header("content-type", "application/json")
                if watching:
                    self.send_header("transfer-encoding", "chunked")
                    self.end_headers()
                    api.ended.wait()
                    self.close_connection = True
                    return
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = handle_one

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class ResourceManager:
    """Reads the first four bytes of each connection, and hangs up when it is told to."""

    def __init__(self) -> None:
        self.greeting = b""
        self._refusing = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def write_conf(self, directory: Path) -> Path:
        directory.mkdir()
        (directory / "yarn-site.xml").write_text(YARN_SITE.format(port=self.port))
        return directory

    def refuse(self) -> None:
        self._refusing.set()

    def close(self) -> None:
        self.refuse()
        self._listening.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                with client:
                    self.greeting = self.greeting or client.recv(4)
                    self._refusing.wait()
