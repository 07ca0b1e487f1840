"""What the health of a daemon tells to whom."""

from __future__ import annotations

import httpx
import pytest

from torrentdist.host.http.authentication import Authentication
from torrentdist.host.http.operation import api_app, open_prefixes
from torrentdist.host.process.health_api import HealthApi
from torrentdist.host.telemetry.metrics import Metrics

pytestmark = pytest.mark.anyio

TOKEN = "secret"


def client(failing: dict[str, str]) -> httpx.AsyncClient:
    operations = list(HealthApi(lambda: failing, Metrics(list)).operations())
    app = Authentication(api_app(operations), TOKEN, open_prefixes(operations))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://daemon")


@pytest.mark.parametrize(("failing", "status"), [({}, 200), ({"zookeeper": "no answer from 10.0.0.1"}, 503)])
async def test_a_probe_without_a_token_sees_whether_a_daemon_is_ready_and_not_why(
    failing: dict[str, str], status: int
) -> None:
    """If this fails, the masters of Kubernetes never get ready, or strangers learn what is
    wrong."""
    async with client(failing) as http:
        stranger = await http.get("/readyz")
        reader = await http.get("/readyz", headers={"Authorization": f"Bearer {TOKEN}"})

    assert [status] * 2 == [stranger.status_code, reader.status_code]
    assert {} == stranger.json()["failing"]
    assert failing == reader.json()["failing"]
