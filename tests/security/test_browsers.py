"""A web page of another site gets nothing changed at a master or a gateway."""

from __future__ import annotations

import httpx
import pytest
from cluster_fixtures import Cluster

from torrentdist.host.http.own_site import foreign_sign, names_of
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import Headers

pytestmark = pytest.mark.case("F3")

NAMES = names_of(["master-1", "10.0.0.7", "Alias.Example"])
JSON = {"Content-Type": "application/json"}
OURS = {"X-Torrentdist": "1"}
EVIL = "http://evil.example"


def sign(method: str = "POST", **headers: str) -> str:
    """Returns what shows that the request is foreign; `_` stands for `-` in names."""
    return foreign_sign(method, Headers({name.replace("_", "-"): value for name, value in headers.items()}), NAMES)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:7060",
        "[::1]:7060",
        "localhost",
        "MASTER-1:7060",
        "any-short-name",
        "master-1.",
        "alias.example:1",
        "10.0.0.7",
        "8.8.8.8",
    ],
)
def test_a_daemon_knows_its_names(host: str) -> None:
    """Clients that call a daemon by its name, or by an address, would be refused."""
    assert "" == sign(host=host, content_type="application/json")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:7060", "master-1.evil.example", "x@a.localhost"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_foreign_host_is_refused(host: str, method: str) -> None:
    """A page could have its own name lead to this machine, and read and change everything."""
    assert "not called" in sign(method, host=host, x_torrentdist="1")


@pytest.mark.parametrize("origin", [EVIL, "null", "", "http://127.0.0.1:8080", "http://127.0.0.1:7060.evil.example"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_a_foreign_origin_is_refused(origin: str, method: str) -> None:
    """Any page could submit a job on the machine of whoever reads it."""
    assert "a page of" in sign(method, host="127.0.0.1:7060", origin=origin, content_type="application/json")


def test_a_page_of_our_own_is_let_in() -> None:
    """The console could not ask its own master."""
    own = {"host": "127.0.0.1:7060", "origin": "http://127.0.0.1:7060", "sec_fetch_site": "same-origin"}

    assert "" == sign("GET", **own)
    assert "" == sign("POST", **own, content_type="application/json; charset=utf-8")


def test_a_link_of_another_site_may_be_followed_and_nothing_more() -> None:
    """A link to the console in a wiki would lead nowhere, or an image would start a fetch."""
    cross = {"host": "localhost", "sec_fetch_site": "cross-site"}

    assert "" == sign("GET", **cross, sec_fetch_mode="navigate")
    assert "another site" in sign("GET", **cross, sec_fetch_mode="no-cors")
    assert "another site" in sign("POST", **cross, sec_fetch_mode="navigate", content_type="application/json")


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, True),
        ({"content_type": "text/plain"}, True),
        ({"content_type": "Text/Plain; charset=utf-8"}, True),
        ({"content_type": "application/x-www-form-urlencoded"}, True),
        ({"content_type": "multipart/form-data; boundary=x"}, True),
        ({"content_type": "text/plain", "authorization": "Bearer secret"}, True),
        ({"authorization": "Basic eDp5"}, True),
        ({"authorization": "Bearer secret"}, False),
        ({"content_type": "application/json"}, False),
        ({"content_type": "application/x-bittorrent"}, False),
        ({"x_torrentdist": "1"}, False),
        ({"x_request_id": "a", "content_type": "text/plain"}, False),
    ],
)
def test_a_post_that_any_page_could_send_is_refused(headers: dict[str, str], refused: bool) -> None:
    """Browsers send some requests of any page without asking, and old ones without an origin."""
    assert refused == bool(sign("POST", host="localhost", **headers))


@pytest.mark.anyio
async def test_our_client_says_that_it_is_ours() -> None:
    """Uploads and announces would be refused as those of a page."""
    sent: list[Headers] = []

    class Seen(Http):
        async def exchange(self, asked, patience):  # type: ignore[no-untyped-def]
            sent.append(asked.headers)

    async with Seen() as client:
        await client.post("http://127.0.0.1:1/")

    assert "1" == sent[0]["x-torrentdist"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {**JSON, "Origin": EVIL},
        {**JSON, "Host": "evil.example"},
        {**OURS, "Sec-Fetch-Site": "cross-site"},
    ],
    ids=["text", "origin", "host", "fetch"],
)
def test_no_page_changes_anything_at_a_real_daemon(cluster: Cluster, headers: dict[str, str]) -> None:
    """A page that an operator reads could submit a job, or empty a host's store."""
    gateway, sent = cluster.supervisors()[0], {**cluster.dev.headers(), **headers}
    doors = [f"{cluster.url(cluster.leader())}/v1/jobs", f"{cluster.url(gateway)}/v1/host/prune"]
    with httpx.Client(trust_env=False, timeout=60.0) as http:
        answers = [http.post(door, content=b'{"bundle":"any"}', headers=sent) for door in doors]
        health = http.get(f"{cluster.url(gateway)}/livez", headers=headers)

    assert [(403, "foreign_site")] * 2 == [(a.status_code, a.json()["error"]) for a in answers]
    assert httpx.codes.OK == health.status_code
