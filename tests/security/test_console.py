"""The console of real masters: signing in, forms, JSON twins, and what its pages tell a browser."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cluster_fixtures import Cluster, make_source, running_cluster

from torrentdist.security.console_session import COOKIE

PAGE = {"Accept": "text/html"}
PAGES = (
    "/ui/",
    "/ui/bundles",
    "/ui/bundles/seen",
    "/ui/distributions",
    "/ui/hosts",
    "/ui/hosts/supervisor-1",
    "/ui/masters",
    "/ui/jobs",
    "/ui/events",
    "/ui/retention",
    "/ui/tokens",
    "/ui/certificates",
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose hosts keep one bundle."""
    work = tmp_path_factory.mktemp("shown")
    with running_cluster(work=work, masters=2, supervisors=1) as cluster:
        cluster.upload(make_source(work / "seen", 1), "seen", replicas=2)
        cluster.run("bundle", "distribute", "seen", "--wait", "100%").ok()
        yield cluster


def browser(cluster: Cluster, master: str) -> httpx.Client:
    return httpx.Client(trust_env=False, timeout=60.0, base_url=cluster.url(master), headers=PAGE)


@contextlib.contextmanager
def signed_in(cluster: Cluster, master: str, token: str) -> Iterator[httpx.Client]:
    with browser(cluster, master) as visitor:
        form = {"token": token, "back": "/ui/hosts"}
        answer = visitor.post("/ui/sign-in", data=form, headers={"Origin": cluster.url(master)})
        assert (303, "/ui/hosts") == (answer.status_code, answer.headers["location"])
        assert {"HttpOnly", "SameSite=Strict"} <= set(answer.headers["set-cookie"].split("; "))
        yield visitor


def token_of(cluster: Cluster, name: str, role: str) -> str:
    return str(cluster.run("token", "create", name, "--role", role).ok()["token"])


def form_key_in(page: str) -> str:
    found = re.search(r'name="form_key" value="([0-9a-f]+)"', page)
    assert found is not None
    return found[1]


def test_a_stranger_gets_the_sign_in_page_and_nothing_else(shown: Cluster) -> None:
    """Anybody who reaches a master could read what the cluster does."""
    with browser(shown, "master-1") as visitor:
        answers = [visitor.get(page) for page in PAGES]
        wrong = visitor.post("/ui/sign-in", data={"token": "td.no.such"}, headers={"Origin": shown.url("master-1")})

    assert {401} == {answer.status_code for answer in (*answers, wrong)}
    assert all('action="/ui/sign-in"' in answer.text and "Hosts that" not in answer.text for answer in answers)


def test_every_page_has_a_json_twin_and_a_policy(shown: Cluster) -> None:
    """A page could load what an attacker wants, or scripts would have to parse HTML."""
    with signed_in(shown, "master-1", token_of(shown, "twins", "reader")) as visitor:
        pages = [visitor.get(page) for page in PAGES]
        twins = [visitor.get(page, params={"format": "json"}) for page in PAGES]

    assert [200] * len(PAGES) * 2 == [answer.status_code for answer in (*pages, *twins)]
    assert all(answer.headers["content-security-policy"].startswith("default-src 'self'") for answer in pages)
    assert all(answer.headers["content-type"].startswith("text/html") for answer in pages)
    assert all(answer.json() is not None for answer in twins)
    assert 1 == twins[2].json()["distribution"]["states"]["done"]


def test_a_session_survives_the_loss_of_a_master_and_ends_with_its_token(shown: Cluster) -> None:
    """An operator would have to sign in again during a failover, or a revoked token would go on."""
    token = token_of(shown, "moving", "reader")
    with signed_in(shown, "master-1", token) as first, browser(shown, "master-2") as second:
        second.cookies.set(COOKIE, first.cookies[COOKIE])
        before = second.get("/ui/").status_code
        api = second.get("/v1/cluster").status_code
        shown.run("token", "revoke", "moving").ok()
        after = second.get("/ui/")
    assert (200, 401) == (before, api)
    assert 401 == after.status_code


def test_a_change_needs_the_form_of_its_sender_and_the_role(shown: Cluster) -> None:
    """A page of another site, or a reader, could change the cluster through an operator's
    browser."""
    leader = shown.leader()
    own = {"Origin": shown.url(leader)}
    with (
        signed_in(shown, leader, token_of(shown, "op", "operator")) as operator,
        signed_in(shown, leader, token_of(shown, "looks", "reader")) as reader,
    ):
        key = form_key_in(operator.get("/ui/bundles/seen/pin").text)
        refused = [
            operator.post("/ui/bundles/seen/pin", data={}, headers=own),
            operator.post("/ui/bundles/seen/pin", data={"form_key": key}),
            operator.post("/ui/bundles/seen/pin", data={"form_key": key}, headers={"Origin": "http://evil.example"}),
            reader.post("/ui/bundles/seen/pin", data={"form_key": key}, headers=own),
        ]
        unchanged = operator.get("/ui/bundles/seen?format=json").json()["bundle"]["pinned"]
        done = operator.post("/ui/bundles/seen/pin", data={"form_key": key}, headers=own)
        changed = operator.get("/ui/bundles/seen?format=json").json()["bundle"]["pinned"]

    assert {403} == {answer.status_code for answer in refused}
    assert (False, 303, True) == (unchanged, done.status_code, changed)


def test_a_form_says_what_it_does_before_and_after(shown: Cluster) -> None:
    """An operator would move terabytes to every host by one click, or not know what a click did."""
    leader = shown.leader()
    with signed_in(shown, leader, token_of(shown, "sends", "operator")) as operator:
        key = {"form_key": form_key_in(operator.get("/ui/bundles/seen/pin").text)}

        def post(path: str, **fields: str) -> str:
            done = operator.post(path, data={**key, **fields}, headers={"Origin": shown.url(leader)})
            return operator.get(done.headers["location"]).text

        first = operator.get("/ui/bundles/seen/distribute?canary=1").text
        second = operator.get("/ui/bundles/seen/distribute?canary=1&keep=7d&look=1").text
        told = post("/ui/bundles/seen/distribute", canary="1", keep="7d", priority="high")
        again = operator.get("/ui/bundles/seen/repeat").headers["location"]
        forged = operator.get("/ui/bundles/seen?did=remove&to=seen&proof=0").text
        ruled = post("/ui/retention/*/set", pattern="etl-*", keep="3")
        limited = post("/ui/tokens/sends/quota", max_bytes="5G")
        revoked = post("/ui/tokens/sends/revoke")
        status = shown.get(leader, "/v1/bundles/seen/distribution")

    assert "Yes, distribute" not in first
    assert "It tells 1 host. Already there: 1 host. To move: 0 B at most." in second
    assert "--canary 1 --keep 7d" in second
    assert "seen: Hosts are told to fetch it." in told
    assert ("high", "seen") == (status["priority"], status["bundle"])
    assert again.startswith("/ui/bundles/seen/distribute?")
    assert "priority=high" in again
    assert "canary=1" in again
    assert "It was removed" not in forged
    assert "etl-*: The rule was set." in ruled
    assert "/ui/retention/etl-%2A/end" in ruled
    assert "sends: Its quota was set." in limited
    assert "of 5.0 GiB" in limited
    assert 'action="/ui/sign-in"' in revoked


def test_a_live_part_is_sent_again_and_ends(shown: Cluster) -> None:
    """A page would show the same figures for ever, or a stream would keep a master's connection."""
    with signed_in(shown, "master-1", token_of(shown, "live", "reader")) as visitor:
        events = visitor.get("/ui/live/bundles/seen", params={"timeout": "1.5"}).text

    assert 2 == events.count("\n\n")
    assert "Hosts that have it" in events


def test_names_from_outside_are_text(shown: Cluster, tmp_path: Path) -> None:
    """A filter in a link could run a script in an operator's browser."""
    hostile = '"><script>alert(1)</script>'
    with signed_in(shown, "master-1", token_of(shown, "hostile", "reader")) as visitor:
        pages = [
            visitor.get(path, params={"q": hostile, "who": hostile})
            for path in ("/ui/bundles", "/ui/hosts", "/ui/events", "/ui/distributions")
        ]

    assert all("<script>alert" not in page.text for page in pages)
