"""The token of a job, at a real master and at a real gateway: it opens what is the job's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_fixtures import Cluster, running_cluster, throughout, until

pytestmark = pytest.mark.case("F5")

BEAT = """
import os, time, urllib.request

opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
env = {name.removeprefix("TORRENTDIST_"): value for name, value in os.environ.items()}
token = open(env["JOB_TOKEN_FILE"]).read()
url = f"{env['GATEWAY']}/v1/host/jobs/{env['JOB']}/{env['WORKER']}/heartbeat"
print(token, flush=True)
while not os.path.exists(os.environ["QUIET"]):
    opener.open(urllib.request.Request(url, method="POST", headers={"Authorization": "Bearer " + token}))
    time.sleep(0.1)
time.sleep(600)
"""
JOB = """
name = "{name}"
command = ["{python}", "beat.py"]
heartbeat_secs = 2
dependencies = ["lib-1"]
env = {{ QUIET = "{quiet}" }}
[restart]
backoff_secs = 0.1
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(work=tmp_path_factory.mktemp("guarded"), masters=1, supervisors=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that makes the workers send no more heartbeats."""
    return tmp_path_factory.mktemp("quiet") / "quiet"


@pytest.fixture(scope="module")
def job(guarded: Cluster, quiet: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a running job, beside another one and a bundle that is not its own."""
    work = tmp_path_factory.mktemp("jobs")
    for bundle in ("lib-1", "foreign-1"):
        (work / bundle).write_text(bundle)
        guarded.upload(work / bundle, bundle, 1)
    for name in ("other", "etl"):
        (work / name).mkdir()
        (work / name / "job.toml").write_text(JOB.format(name=name, python=sys.executable, quiet=quiet))
        (work / name / "beat.py").write_text(BEAT)
        submitted = guarded.run("job", "submit", work / name).ok()
        until(lambda name=name: token_of(guarded, name), "the worker runs", 40.0)  # type: ignore[misc]
    return str(submitted["id"])


def token_of(cluster: Cluster, name: str) -> str:
    """The token that the job's worker was given."""
    found = cluster.get("master-1", f"/v1/jobs/{name}")
    url = f"{cluster.url('supervisor-1')}/v1/host/jobs/{found['id']}/0/log"
    return cluster.http.get(url).text.strip().partition("\n")[0] if found["workers"][0]["pid"] else ""


def running_token(cluster: Cluster, name: str) -> str:
    """The same, once the worker runs: it may just be started again."""
    until(lambda: token_of(cluster, name), "the worker runs", 40.0)
    return token_of(cluster, name)


def asked(cluster: Cluster, token: str, method: str, url: str, **more: Any) -> int:
    return cluster.http.request(method, url, headers={"Authorization": f"Bearer {token}"}, **more).status_code


def test_a_job_reads_its_own_at_a_master_and_nothing_else(guarded: Cluster, job: str) -> None:
    """A job could read every bundle of the cluster, submit jobs, or end others."""
    token, master = running_token(guarded, "etl"), guarded.url("master-1")
    view, other = (guarded.run("job", "show", name).ok() for name in ("etl", "other"))
    own = [
        "whoami",
        f"jobs/{job}",
        "bundles/lib-1",
        "bundles/lib-1/metafile",
        f"bundles/{view['bundle']}/files/beat.py",
    ]
    foreign = [
        ("GET", "bundles"), ("GET", "jobs"), ("GET", "cluster"), ("GET", "snapshot"), ("GET", "backup"),
        ("GET", "bundles/foreign-1"), ("GET", "bundles/foreign-1/metafile"), ("GET", f"jobs/{other['id']}"),
        ("GET", f"jobs/{job}/pass"), ("DELETE", f"jobs/{job}"), ("DELETE", "bundles/lib-1"), ("POST", "jobs"),
        ("POST", "swarm"), ("POST", "heartbeat"), ("POST", "tokens"), ("POST", "bundles/new-1"),
    ]  # fmt: skip
    let_in = {path: asked(guarded, token, "GET", f"{master}/v1/{path}") for path in own}
    refused = {pair: asked(guarded, token, pair[0], f"{master}/v1/{pair[1]}") for pair in foreign}
    me = guarded.http.get(f"{master}/v1/whoami", headers={"Authorization": f"Bearer {token}"}).json()

    assert {200} == set(let_in.values()), let_in
    assert {403} == set(refused.values()), refused
    assert (f"job {job}", "job", "job-token") == (me["name"], me["role"], me["how"])
    assert 401 == asked(guarded, token[:-1] + ("0" if token[-1] != "0" else "1"), "GET", f"{master}/v1/whoami")


def test_a_job_reads_its_own_repositories_and_no_others(guarded: Cluster, job: str) -> None:
    """A job could read every bundle of its host through the hub view."""
    token, hub = running_token(guarded, "etl"), f"{guarded.url('supervisor-1')}/hub"
    own = ["api/models/lib-1", "api/models/lib-1/tree/main", "api/models/lib-1/refs"]
    foreign = [
        "api/models/foreign-1",
        "api/models/foreign-1/tree/main",
        "foreign-1/resolve/main/x",
        "datasets/lib-1/resolve/main/x",
        f"api/models/lib-1/revision/{'0' * 40}",
    ]
    let_in = {path: asked(guarded, token, "GET", f"{hub}/{path}") for path in own}
    refused = {path: asked(guarded, token, "GET", f"{hub}/{path}") for path in foreign}

    assert {200} == set(let_in.values()), let_in
    assert {403} == set(refused.values()), refused


def test_a_worker_lives_by_the_heartbeats_that_it_sends(guarded: Cluster, job: str, quiet: Path) -> None:
    """A worker without access to its heartbeat file would be restarted for ever, or a worker that
    hangs never.
    """
    token, gateway = running_token(guarded, "etl"), guarded.url("supervisor-1")
    other = guarded.run("job", "show", "other").ok()["id"]

    def worker() -> dict[str, Any]:
        found: dict[str, Any] = guarded.get("master-1", "/v1/jobs/etl")["workers"][0]
        return found

    before = worker()
    lives = throughout(lambda: worker()["pid"] in (before["pid"], None), 4.0)
    foreign = asked(guarded, token, "POST", f"{gateway}/v1/host/jobs/{other}/0/heartbeat")
    absent = asked(guarded, token, "POST", f"{gateway}/v1/host/jobs/{job}/7/heartbeat")
    quiet.touch()
    until(lambda: (worker()["restarts"] or 0) > before["restarts"], "the silent worker was restarted")

    assert lives
    assert (403, 404) == (foreign, absent)


def test_a_token_ends_with_its_job(guarded: Cluster, job: str) -> None:
    """A job that was ended could still read what was its own."""
    token, master = running_token(guarded, "etl"), guarded.url("master-1")
    guarded.run("job", "kill", "etl", "-w", "0").ok()

    until(lambda: asked(guarded, token, "GET", f"{master}/v1/whoami") == 401, "the token has ended")
