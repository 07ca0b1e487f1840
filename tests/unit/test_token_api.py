"""What masters tell of tokens: to whom, and how a master proves that it knows one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from records_of import snapshot

from torrentdist.cluster.records.snapshot import ClusterSnapshot, TokenEntry
from torrentdist.host.http.operation import api_app, operations_of
from torrentdist.host.http.web import PRINCIPAL
from torrentdist.master.access.token_api import ProofApi, TokenApi
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.access.url_messages import KEY_ROLE
from torrentdist.security.authorization import LOCAL, STRANGER, Principal, Proof, Role
from torrentdist.security.master_proof import proves
from torrentdist.security.tokens import hash_of

pytestmark = pytest.mark.anyio
NOW, URL, NONCE = 1000.0, "http://m1:7060", "n" * 16
SHARED = "s" * 40
ANN = Principal("ann", Role.UPLOADER, Proof.TOKEN, bundles="etl-*", reads=("etl-*",))


def token(name: str, **given: Any) -> TokenRecord:
    return TokenRecord(**{"name": name, "role": "uploader", "hash": hash_of(name), "created_at": 1.0, **given})


TOKENS = (
    token("ann", bundles="etl-*", max_bytes=50, max_distributions=3), token("bob", bundles="secret-*", expires_at=NOW),
    token("cem", bundles="etl-1", revoked_at=1.0, max_bytes=9), token("urls", role=KEY_ROLE),
    token("dee", bundles="etl-2", reads="secret-1"),
)  # fmt: skip


def records(seen: ClusterSnapshot | None = None) -> Any:
    found = seen or replace(snapshot(), tokens={one.name: TokenEntry(one, 0) for one in TOKENS})
    return SimpleNamespace(
        snapshot=lambda: found, server_now=lambda: NOW, secrets=SimpleNamespace(text=lambda: "the cluster's secret")
    )


async def told(path: str, sender: Principal = LOCAL, seen: Any = None, shared: str | None = SHARED) -> httpx.Response:
    known: Any = seen or records()
    api = TokenApi(changes=None, leadership=None, records=known)  # type: ignore[arg-type]
    app = api_app(operations_of(api, ProofApi(known, "http://M1:7060/", shared)))

    async def as_sender(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, PRINCIPAL: sender}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=as_sender), base_url="http://m1") as client:
        return await client.get(path)


async def test_everybody_sees_the_tokens_that_name_nothing_hidden() -> None:
    """A token's pattern would tell a reader of a bundle that is hidden from it."""
    every, own = (await told("/v1/tokens")).json(), (await told("/v1/tokens", ANN)).json()

    assert [("ann", "usable"), ("bob", "expired"), ("cem", "revoked"), ("dee", "usable")] == [
        (view["name"], view["state"]) for view in every
    ]
    assert [True, False, True, False] == [view["has_quota"] for view in every]
    assert [("ann", True), ("cem", False)] == [(view["name"], view["has_quota"]) for view in own]
    assert not [view for view in every if "hash" in view]


async def test_a_quota_is_told_to_its_holder() -> None:
    """A user would learn how much others keep, or not how much is left."""
    ours, others, none = [await told(f"/v1/tokens/{name}/quota", ANN) for name in ("ann", "cem", "nobody")]
    operators = await told("/v1/tokens/cem/quota")

    expected = {"name": "ann", "max_bytes": 50, "bytes": 0, "max_distributions": 3, "distributions": 0}
    assert expected == ours.json()
    assert (9, 404, 404) == (operators.json()["max_bytes"], others.status_code, none.status_code)
    assert "cem" in others.json()["message"]


async def test_a_sender_is_told_who_it_is() -> None:
    """Somebody would not find out why a bundle is missing from his list."""
    job = Principal("job etl", Role.JOB, Proof.TOKEN, own_bundles=frozenset({"b", "a"}))  # type: ignore[arg-type]
    ann, of_job = (await told("/v1/whoami", ANN)).json(), (await told("/v1/whoami", job)).json()

    assert ("ann", "uploader", "etl-*", "etl-*") == (ann["name"], ann["role"], ann["bundles"], ann["reads"])
    assert "a,b" == of_job["bundles"]
    assert of_job["reads"].endswith("a,b")


@pytest.mark.parametrize(("name", "key"), [("", hash_of(SHARED)), ("ann", hash_of("ann")), ("dee", hash_of("dee"))])
async def test_a_master_proves_that_it_knows_a_token(name: str, key: str) -> None:
    """A client would send its token to whoever listens on a master's port."""
    answer = await told(f"/v1/proof?name={name}&nonce={NONCE}&url={URL}", STRANGER)

    assert proves(answer.text, key, NONCE, URL)


@pytest.mark.parametrize("name", ["bob", "cem", "nobody"])
async def test_a_token_that_opens_nothing_gets_a_proof_of_nothing(name: str) -> None:
    """A stranger would find out which tokens there are."""
    path = f"/v1/proof?name={name}&nonce={NONCE}&url={URL}"
    first, again = [(await told(path, STRANGER)).text for _ in range(2)]
    other = (await told(path.replace(name, "other"), STRANGER)).text

    assert first == again, "a restart makes it no other one"
    assert first != other
    assert not proves(first, hash_of(name), NONCE, URL)


async def test_a_master_without_a_shared_token_or_a_cluster_proves_nothing() -> None:
    """A client would take a stranger's master for one of its own."""
    path = f"/v1/proof?name=&nonce={NONCE}&url={URL}"
    without = await told(path, STRANGER, shared=None)
    lost = [await told(path, STRANGER, records(snapshot(present=False)), shared=None) for _ in range(2)]

    assert [200] * 3 == [answer.status_code for answer in (without, *lost)]
    assert 3 == len({answer.text for answer in (without, *lost)})


@pytest.mark.parametrize(
    ("nonce", "url"),
    [("n" * 15, URL), ("n" * 129, URL), ("", URL), (NONCE, "http://m2:7060"), (NONCE, ""), (NONCE, "m1")],
)
async def test_a_proof_is_for_a_nonce_and_for_this_master(nonce: str, url: str) -> None:
    """A server that passes the question on to a master would pass for it."""
    answer = await told(f"/v1/proof?nonce={nonce}&url={url}", STRANGER)

    assert (400, "invalid_request") == (answer.status_code, answer.json()["error"])
