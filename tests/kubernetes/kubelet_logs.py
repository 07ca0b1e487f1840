"""What `kubectl logs` asks a kubelet for: the output of a container so far, over TLS.

Always: only the API server's certificate opens it.
"""

from __future__ import annotations

import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kubernetes.node_places import NodeSettings

PORT = 10250


class LogServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, node: NodeSettings) -> None:
        super().__init__((node.address, PORT), Answers)
        self.node = node
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=node.ca)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(node.certificate, node.key)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)


class Answers(BaseHTTPRequestHandler):
    server: LogServer

    def do_GET(self) -> None:
        """Answers /containerLogs/NAMESPACE/POD/CONTAINER."""
        parts = self.path.partition("?")[0].strip("/").split("/")
        log = self.server.node.log(*parts[1:]) if parts[0] == "containerLogs" and len(parts) == 4 else None
        content = log.read_bytes() if log is not None and log.exists() else None
        self.send_response(404 if content is None else 200)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        """Says nothing: the kubelet's log has other things."""
