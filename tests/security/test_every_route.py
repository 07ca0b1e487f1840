"""Every route of a real master with every role, and of a supervisor's port for other hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from cluster_fixtures import Cluster, running_cluster

from torrentdist.security.authorization import Principal, Proof, Role, may_use
from torrentdist.security.tokens import ROLES

pytestmark = pytest.mark.case("F5")

DIGEST = "ab" * 32


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(work=tmp_path_factory.mktemp("guarded"), masters=1, supervisors=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def senders(guarded: Cluster) -> dict[Role, dict[str, str]]:
    """The headers of a sender of each role, and of a stranger."""
    made = {role: guarded.run("token", "create", f"a-{role}", "--role", role.value).ok()["token"] for role in ROLES}
    return {Role.ANYONE: {}, **{role: {"Authorization": f"Bearer {token}"} for role, token in made.items()}}


def outside(cluster: Cluster) -> str:
    """The URL of the supervisor for other hosts."""
    (supervisor,) = cluster.get("master-1", "/v1/cluster")["supervisors"]
    return str(supervisor["url"])


def test_every_route_of_a_master_decides_by_role(guarded: Cluster, senders: dict[Role, dict[str, str]]) -> None:
    """A route that forgets to ask would let a reader, or a stranger, change the cluster: Ray's job
    API asked nobody for a proof."""
    described = guarded.get("master-1", "/openapi.json")
    wrong: list[str] = []
    count = 0
    with httpx.Client(
        trust_env=False, timeout=60.0, base_url=guarded.url("master-1"), headers={"X-Torrentdist": "1"}
    ) as http:
        for path, methods in described["paths"].items():
            for method, operation in methods.items():
                url = re.sub(r"\{digest\}", DIGEST, path)
                url = re.sub(r"\{\w+\}", "none-such", url)
                for role, headers in senders.items():
                    sender = Principal("x", role, Proof.TOKEN)
                    params = {"dry_run": "true", "timeout": "0", "within": "0"}
                    status = http.request(method, url, headers=headers, params=params).status_code
                    count += 1
                    if may_use(sender, Role(operation["x-role"])) == (status in (401, 403)) or status == 500:
                        wrong.append(f"{role} {method} {path}: {status}")

    assert [] == wrong
    assert count > 200


def test_a_supervisor_answers_other_hosts_only(guarded: Cluster, senders: dict[Role, dict[str, str]]) -> None:
    """A person's token would be sent to every supervisor, or a stranger would read every job's
    output.
    """
    routes = ("/v1/host/jobs/j/logs", "/v1/host/jobs/j/0/log", f"/v1/metafiles/{DIGEST}", f"/v1/recipes/{DIGEST}")
    with httpx.Client(trust_env=False, timeout=60.0, base_url=outside(guarded)) as http:
        refused = [http.get(route, headers=headers).status_code for route in routes for headers in senders.values()]
        shared = [http.get(route, headers=guarded.dev.headers()).status_code for route in routes]

    assert {401} == set(refused)
    assert not {401, 403} & set(shared)


@pytest.mark.case("F4")
def test_a_pass_opens_one_jobs_output(guarded: Cluster, senders: dict[Role, dict[str, str]]) -> None:
    """A pass for one job's output would open those of all jobs, or a metafile."""
    master = guarded.url("master-1")
    with httpx.Client(trust_env=False, timeout=60.0) as http:
        text = http.get(f"{master}/v1/jobs/mine/pass", headers=senders[Role.READER]).json()["hosts"]["supervisor-1"]
        mine, other, longer, metafile = (
            http.get(f"{outside(guarded)}{path}", params={"pass": text}).status_code
            for path in (
                "/v1/host/jobs/mine/logs",
                "/v1/host/jobs/other/logs",
                "/v1/host/jobs/mine-too/logs",
                f"/v1/metafiles/{DIGEST}",
            )
        )

    assert (200, 401, 401, 401) == (mine, other, longer, metafile)
