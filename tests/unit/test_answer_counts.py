"""Answers of a daemon are counted by the class of their status."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from torrentdist.host.telemetry.answer_counts import AnswerCounts
from torrentdist.host.telemetry.metrics import Metrics


def counted(status: int, path: str = "/v1/x", kind: str = "http") -> tuple[list[str], list[str]]:
    """Returns the classes that count one answer with this status, and what the client is sent."""
    metrics, sent = Metrics(list), list[str]()
    metrics.has("http_answers_total")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"body", status_code=status)(scope, receive, send)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message["type"])

    asyncio.run(AnswerCounts(app, metrics)({"type": kind, "path": path, "method": "GET"}, receive, send))
    lines = metrics.render().decode().splitlines()
    return [line.partition('status="')[2][:3] for line in lines if line.endswith(" 1.0")], sent


@pytest.mark.parametrize(
    ("status", "expected"),
    [(200, "2xx"), (299, "2xx"), (304, "3xx"), (404, "4xx"), (499, "4xx"), (503, "5xx"), (101, "2xx"), (600, "5xx")],
)
def test_an_answer_counts_in_its_class(status: int, expected: str) -> None:
    """An alert on failures fires without any, or never."""
    assert ([expected], ["http.response.start", "http.response.body"]) == counted(status)


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/leaderz", "/metrics"])
def test_a_health_check_does_not_count(path: str) -> None:
    """Every probe of a standby counts as a failure."""
    assert ([], ["http.response.start", "http.response.body"]) == counted(503, path)
