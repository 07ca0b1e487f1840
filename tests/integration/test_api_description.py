"""The API description of a real master that has no ZooKeeper: every operation, its role and its
limits.
"""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from torrentdist.host.http.operation import operations_of
from torrentdist.master.daemon import Master
from torrentdist.model.configuration.config import ApiConfig, Config, MasterConfig, ZooKeeperConfig
from torrentdist.security.authorization import BOUND_ROLES

pytestmark = pytest.mark.anyio

OF_ROLES = {
    "uploader": {
        "POST /v1/bundles/{}",
        "POST /v1/bundles/{}/distribute",
        "PUT /v1/bundles/{}/proof",
        "DELETE /v1/bundles/{}/distribution",
        "POST /v1/bundles/{}/signatures",
        "PUT /v1/bundles/{}/recipe",
        "GET /v1/uploads/{}",
        "PUT /v1/uploads/{}",
        "POST /v1/uploads/{}/finish",
        "POST /ui/bundles/{}/distribute",
        "POST /ui/bundles/{}/cancel",
    },
    "submitter": {
        "POST /v1/jobs",
        "POST /v1/jobs/{}/activate",
        "POST /v1/jobs/{}/deactivate",
        "POST /v1/jobs/{}/rebalance",
        "DELETE /v1/jobs/{}",
        "POST /ui/jobs/{}/activate",
        "POST /ui/jobs/{}/deactivate",
        "POST /ui/jobs/{}/rebalance",
        "POST /ui/jobs/{}/kill",
    },
    "job": {
        "GET /v1/bundles/{}",
        "GET /v1/bundles/{}/files/{}",
        "GET /v1/bundles/{}/metafile",
        "GET /v1/jobs/{}",
        "GET /v1/whoami",
    },
    "host": {
        "GET /v1/snapshot",
        "GET /v1/distributions/copy",
        "POST /v1/heartbeat",
        "GET /v1/revocations",
        "GET /v1/urls/trust",
        "GET /v1/issuing-key",
        "POST /v1/hosts/{}/place",
        "GET /v1/zookeeper-auth",
    },
    "anyone": {
        "GET /livez",
        "GET /readyz",
        "GET /announce/{}",
        "GET /v1/ca",
        "GET /v1/proof",
        "POST /v1/invitations/{}/redeem",
        "POST /v1/hosts/{}/renew",
        "GET /ui/assets/{}",
        "POST /ui/sign-in",
    },
    "reader": {
        "POST /ui/sign-out",
        "POST /v1/reuse",
        "POST /v1/swarm",
        "POST /v1/swarm-certificates",
        "POST /v1/urls",
        "PUT /v1/metafiles/{}",
    },
}
"""Operations with another role than the usual one, which is reader for reads and operator for the
rest."""
OF_OPERATOR = {"GET /v1/backup", "GET /v1/groups/{}/identity"}
"""Reads that only the operator may do."""
WITHOUT_ID = {
    "POST /v1/heartbeat",
    "POST /v1/reuse",
    "POST /v1/swarm",
    "POST /v1/swarm-certificates",
    "PUT /v1/bundles/{}/recipe",
    "PUT /v1/metafiles/{}",
    "PUT /v1/bundles/{}/proof",
    "PUT /v1/uploads/{}",
    "POST /ui/sign-in",
    "POST /ui/sign-out",
}
"""Requests with a body that change no record of the cluster."""
PROTOCOL = Path(__file__).parent.parent.parent / "docs" / "protocol.md"
LARGEST_REQUEST = 123_456


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Master]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        silent = f"127.0.0.1:{taken.getsockname()[1]}"
        config = Config(
            master=MasterConfig(id="m1", data_dir=str(tmp_path)),
            api=ApiConfig(port=0, max_request_bytes=LARGEST_REQUEST),
            zookeeper=ZooKeeperConfig(servers=[silent]),
        )
        master = Master(config, repair_acls=False)
        await master.start()
        try:
            yield master
        finally:
            await master.stop()


@pytest.fixture
async def operations(master: Master) -> dict[str, Any]:
    """The operations that a master describes, by method and path."""
    async with httpx.AsyncClient(trust_env=False, timeout=60.0) as http:
        described = (await http.get(f"{master.core.url}/openapi.json")).json()
    return {
        f"{method.upper()} {unnamed(path)}": operation
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }


def unnamed(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def role_of(request: str) -> str:
    """Returns the role that the design's table gives to a request."""
    for role, requests in OF_ROLES.items():
        if request in requests:
            return role
    return "reader" if request.startswith("GET ") and request not in OF_OPERATOR else "operator"


def documented() -> dict[str, str]:
    """Returns the role of each request in the first table of docs/protocol.md."""
    of_masters = PROTOCOL.read_text(encoding="utf-8").partition("## HTTP, on every supervisor")[0]
    rows = [line.split("|")[1:3] for line in of_masters.splitlines() if line.startswith("| `")]
    return {
        unnamed(re.split(r"[\[?]", request)[0]): role.strip()
        for requests, role in rows
        for request in re.findall(r"`([^`]+)`", requests)
    }


async def test_every_operation_has_the_role_of_the_table(operations: dict[str, Any]) -> None:
    """An operation with a lower role would let a reader change the cluster once roles are
    enforced."""
    assert {name: role_of(name) for name in operations} == {name: op["x-role"] for name, op in operations.items()}


async def test_the_protocol_page_names_every_operation_and_its_role(operations: dict[str, Any]) -> None:
    """If this fails, a request is missing from the page, or its role is wrong there, and the author
    of a client is misled."""
    assert documented() == {name: op["x-role"] for name, op in operations.items()}


@pytest.mark.case("F5")
async def test_every_operation_that_a_pattern_binds_names_its_bundle(master: Master) -> None:
    """A token for one team's bundles could change those of another team by this operation."""
    bound = [operation for operation in operations_of(*master.routers) if operation.role in BOUND_ROLES]

    assert OF_ROLES["uploader"] | OF_ROLES["submitter"] == {unnamed(operation.request) for operation in bound}
    assert [] == [operation.request for operation in bound if operation.target is None]


async def test_each_route_has_one_operation(master: Master) -> None:
    """If this fails, one of two operations is never reached: the first one answers for both."""
    routes = [unnamed(operation.request) for operation in operations_of(*master.routers)]

    assert [] == sorted({route for route in routes if routes.count(route) > 1})


async def test_what_changes_records_takes_a_request_id(operations: dict[str, Any]) -> None:
    """If this failed, a client would find no X-Request-Id in the description, and make a change
    twice when it retries."""
    with_id = {
        name
        for name, operation in operations.items()
        if any(parameter["name"] == "X-Request-Id" for parameter in operation["parameters"])
    }

    assert {name for name in operations if not name.startswith("GET ")} - WITHOUT_ID == with_id


async def test_bodies_are_described_with_their_limit(operations: dict[str, Any]) -> None:
    """If this failed, a client could not tell how much of an upload one request may carry."""
    limits = {name: op["requestBody"]["x-max-bytes"] for name, op in operations.items() if "requestBody" in op}

    assert LARGEST_REQUEST == limits["PUT /v1/uploads/{}"] == limits["POST /v1/bundles/{}"]
    assert {"POST /v1/jobs", "POST /v1/transfer", "POST /v1/swarm", "POST /v1/heartbeat"} <= limits.keys()
    assert all(0 < limit <= 8 * 1024 * 1024 for limit in limits.values())


async def test_the_names_of_operations_are_unique(operations: dict[str, Any]) -> None:
    """If this fails, a generator of clients makes one function of two operations."""
    names = [operation["operationId"] for operation in operations.values()]

    assert sorted(set(names)) == sorted(names)
