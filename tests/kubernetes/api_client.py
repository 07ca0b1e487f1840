"""Calls of the Kubernetes API, with the identity of a certificate.

Always: an answer that is no success raises ApiError with the server's own words; every call has a
deadline, and a watch ends by itself.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from kubernetes.cluster_keys import Identity

CALL_SECS = 20.0
WATCH_SECS = 60
MERGE = "application/strategic-merge-patch+json"
Resource = dict[str, Any]


class ApiError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True)
class KubernetesApi:
    server: str
    identity: Identity | None
    """None: a caller without a certificate, who may have a token."""
    ca: str
    token: str = ""

    @classmethod
    def of(cls, server: str, identity: Identity) -> KubernetesApi:
        return cls(server, identity, str(identity.ca))

    def get(self, path: str, **query: str) -> Resource:
        return self.call("GET", path, query=query)

    def items(self, path: str, **query: str) -> list[Resource]:
        return list(self.get(path, **query)["items"])

    def create(self, path: str, body: Mapping[str, Any], **query: str) -> Resource:
        return self.call("POST", path, body, query=query)

    def patch(self, path: str, body: Mapping[str, Any]) -> Resource:
        return self.call("PATCH", path, body, content_type=MERGE)

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> Resource:
        return self.call("DELETE", path, body)

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Resource:
        connection = self._connection(CALL_SECS)
        try:
            answer = self._ask(connection, method, path, body, query or {}, content_type)
            return dict(json.loads(answer.read()))
        finally:
            connection.close()

    def watch(self, path: str, version: str, **query: str) -> Iterator[Resource]:
        """Yields changes since a version, until the server ends the watch."""
        more = {**query, "watch": "1", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECS)}
        connection = self._connection(WATCH_SECS + CALL_SECS)
        try:
            answer = self._ask(connection, "GET", path, None, more, "application/json")
            while line := answer.readline():
                yield dict(json.loads(line))
        finally:
            connection.close()

    def _connection(self, seconds: float) -> HTTPSConnection:
        context = ssl.create_default_context(cafile=self.ca)
        if self.identity is not None:
            context.load_cert_chain(self.identity.certificate, self.identity.key)
        address = urlsplit(self.server)
        return HTTPSConnection(address.hostname or "", address.port, timeout=seconds, context=context)

    def _ask(
        self,
        connection: HTTPSConnection,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str],
        content_type: str,
    ) -> HTTPResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        content = None if body is None else json.dumps(body)
        connection.request(method, f"{path}?{urlencode(query)}" if query else path, content, headers)
        answer = connection.getresponse()
        if answer.status >= 300:
            text = answer.read().decode(errors="replace")
            raise ApiError(answer.status, _message(text))
        return answer


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:500]


def namespaced(namespace: str, kind: str, name: str = "", group: str = "") -> str:
    """Returns the path of an object, or of all of a kind. `group`: such as apps/v1."""
    base = f"/apis/{group}" if group else "/api/v1"
    return f"{base}/namespaces/{namespace}/{kind}" + (f"/{name}" if name else "")
