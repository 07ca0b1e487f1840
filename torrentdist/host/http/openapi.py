"""The OpenAPI document of a daemon.

Always: it is made from the operations and the types of the views, so that it cannot lag behind
them.
"""

import asyncio
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist import __version__
from torrentdist.host.http.operation import Operation
from torrentdist.host.http.web import json_response
from torrentdist.model.wire.headers import REQUEST_ID, ZXID
from torrentdist.security.authorization import Role

MOST_PAGE: Final = 1000
"""Entries of the longest page of a list."""
_REF = "#/components/schemas/{name}"
_ZXID = {"type": "integer", "minimum": 0}
_SEEN = {
    "name": ZXID, "in": "header", "schema": _ZXID,
    "description": "the highest ZooKeeper transaction that the sender has seen: the answer is no older",
}  # fmt: skip
_SHOWN = {ZXID: {"schema": _ZXID, "description": "a ZooKeeper transaction no older than what the answer shows"}}
_REQUEST_ID = {
    "name": REQUEST_ID, "in": "header", "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    "description": "names this mutation: however often it is sent under one id, it is made once",
}  # fmt: skip
_PAGE = [
    {
        "name": "after", "in": "query", "schema": {"type": "string"},
        "description": "the last id of the page before: this page begins after it",
    },
    {
        "name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": MOST_PAGE},
        "description": "entries of the page, which is in the order of ids; without it the list is whole",
    },
]  # fmt: skip
_ERROR = {
    "type": "object", "required": ["error", "message", "hint", "fields"],
    "properties": {
        "error": {"type": "string"}, "message": {"type": "string"}, "hint": {"type": "string"},
        "fields": {"type": "object"},
    },
}  # fmt: skip
_ERRORS = {
    "description": "an error of the error table",
    "content": {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}},
}
_FOREIGN_ERRORS = {"description": "an error in the form of the protocol that the path is for", "content": {"*/*": {}}}
_WITHOUT_BODY = (204, 304, 307)


def with_description(operations: Sequence[Operation], title: str) -> list[Operation]:
    """Returns these operations, and the one that describes them all."""

    async def openapi(_: Request) -> Response:
        return json_response(await asyncio.to_thread(openapi_document, whole, title))

    whole = [*operations, Operation("GET", "/openapi.json", openapi, None, "this document", Role.READER)]
    return whole


def openapi_document(operations: Sequence[Operation], title: str) -> dict[str, Any]:
    """Returns the document that describes these operations of a daemon.

    `x-role` names the role that each needs, and `x-roles` is the whole table.
    """
    types = [t for op in operations for t in (op.answer, op.body) if t is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = {repr(t): s for t, s in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for op in operations:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", op.path)
        paths.setdefault(path, {})[op.method.lower()] = _operation(op, path, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
        "x-roles": {role.value: [op.request for op in operations if op.role is role] for role in Role},
    }


def _operation(op: Operation, path: str, by_type: dict[str, Any]) -> dict[str, Any]:
    def content(kind: Any) -> dict[str, Any]:
        return {"content": {"application/json": {"schema": by_type[repr(kind)]}}}

    def answer(status: int) -> dict[str, Any]:
        body = content(op.answer) if op.answer is not None else {"content": {"*/*": {}}}
        return {
            "description": HTTPStatus(status).phrase,
            "headers": _SHOWN,
            **({} if status in _WITHOUT_BODY else body),
        }

    document: dict[str, Any] = {
        "operationId": f"{op.name}_{op.method.lower()}",
        "summary": op.summary,
        "x-role": op.role,
        **({"x-dry-run": True} if op.dry_runs else {}),
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in re.findall(r"\{(\w+)\}", path)
            ),
            *(_PAGE if op.paged else []),
            *([_SEEN] if path.startswith("/v1/") else []),
            *([_REQUEST_ID] if op.changes else []),
        ],
        "responses": {
            **{str(status): answer(status) for status in op.statuses},
            **dict.fromkeys(("4XX", "5XX"), _FOREIGN_ERRORS if op.foreign_errors else _ERRORS),
        },
    }
    if op.max_body:
        body = content(op.body) if op.body is not None else {"content": {"application/octet-stream": {}}}
        document["requestBody"] = {**body, "x-max-bytes": op.max_body}
    return document
