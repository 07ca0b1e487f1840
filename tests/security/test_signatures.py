"""Signatures against real daemons: a host with `enforce` uses nothing that a known key has not
signed, whatever masters and ZooKeeper say."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from cluster_fixtures import Cluster, Ran, Settings, running_cluster, until
from zookeeper_fixtures import records_client

from torrentdist.cluster import paths
from torrentdist.model.ids import BundleId, Digest, JobId
from torrentdist.model.records import BundleRecord, JobRecord, JobStatus, decode, encode
from torrentdist.security.signing.signing_keys import NewKeyView, generate_key

pytestmark = pytest.mark.case("F12")
RUN = 'echo "$LEVEL" > "$MARK"; sleep 600'


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> NewKeyView:
    return generate_key(tmp_path_factory.mktemp("keys") / "release")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, key: NewKeyView) -> Iterator[Cluster]:
    """One master and one supervisor; every bundle needs a signature, on the client too."""
    trust = {"cluster": "prod", "bundles": {"*": {"mode": "enforce", "keys": [key.public_key]}}}
    settings: Settings = {"trust": trust, "jobs": {"isolation": "none"}, "supervisor": {"slots": 50}}
    with running_cluster(settings, work=tmp_path_factory.mktemp("strict"), masters=1, supervisors=1) as cluster:
        yield cluster


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that a worker writes as soon as it runs."""
    return tmp_path / "mark"


@pytest.fixture
def job(tmp_path: Path, mark: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    # Tests share a cluster, so each needs a name of its own.
    (folder / "job.toml").write_text(
        f'name = "{tmp_path.name}"\ncommand = ["sh", "run.sh"]\n[env]\nLEVEL = "info"\nMARK = {json.dumps(str(mark))}\n'
    )
    (folder / "run.sh").write_text(RUN)
    return folder


def error_of(ran: Ran) -> str:
    return ran.stderr.partition("error[")[2].partition("]")[0]


def gateway(cluster: Cluster) -> str:
    return next(process.gateway for process in cluster.dev.state.processes if process.role == "supervisor")


def read(cluster: Cluster, bundle: str, path: str = "run.sh") -> httpx.Response:
    return httpx.get(f"{gateway(cluster)}/bundles/{bundle}/files/{path}", timeout=60.0, trust_env=False)


def read_and_kept(cluster: Cluster, bundle: str) -> httpx.Response:
    """Reads from a bundle, and waits until the host has published it. A read ends while the rest
    still arrives."""
    answer = read(cluster, bundle)
    place = f"{gateway(cluster)}/bundles/{bundle}"
    until(
        lambda: httpx.get(place, trust_env=False, timeout=60.0).json().get("state") == "done", f"{bundle} is published"
    )
    return answer


def log_lines(cluster: Cluster, event: str) -> list[dict[str, Any]]:
    lines = (cluster.dir / "supervisor-1.log").read_text(errors="replace").splitlines()
    parsed = (json.loads(line) for line in lines if line.startswith("{"))
    return [line for line in parsed if line["event"] == event]


def refusals_in_log(cluster: Cluster) -> list[tuple[str, str]]:
    return [(line["job"], line["reason"]) for line in log_lines(cluster, "worker not started")]


def refusal(cluster: Cluster, job: str) -> str:
    """Waits until a worker of the job was refused, and returns what the master says of it."""
    said: list[str] = []

    def refused() -> bool:
        workers = cluster.get("master-1", f"/v1/jobs/{job}")["workers"]
        said[:] = [worker["detail"] for worker in workers if worker["state"] == "backoff"]
        return bool(said)

    until(refused, f"{job} is refused", 30.0)
    return said[0]


def test_an_unsigned_bundle_is_used_nowhere_until_it_is_signed(
    strict: Cluster, key: NewKeyView, job: Path, tmp_path: Path
) -> None:
    """Anybody who may upload could bring a program to every host."""
    digest = strict.upload(job, "plain-1", replicas=1)["digest"]
    downloads = [
        error_of(strict.run("download", "plain-1", tmp_path / name, *options))
        for name, options in (("a", ["--no-supervisor"]), ("b", []))
    ]
    streamed = read(strict, "plain-1")

    assert ["unsigned_bundle"] * 2 == downloads
    assert "unsigned_bundle" == error_of(strict.run("bundle", "verify", "plain-1", job))
    assert (403, "unsigned_bundle") == (streamed.status_code, streamed.json()["error"])
    assert not strict.published("supervisor-1", digest)
    assert [] == strict.run("bundle", "show", "plain-1").ok()["signers"]

    sign = ["bundle", "sign", "plain-1", "--key", key.key_file]
    for expected in (["--digest", "0" * 64], ["--path", job / "run.sh"]):
        assert "conflict" == error_of(strict.run(*sign, *expected))
    assert digest == strict.run(*sign, "--path", job).ok()["digest"]
    strict.run(*sign).ok()

    assert 200 == read(strict, "plain-1").status_code
    assert [key.id] == strict.run("download", "plain-1", tmp_path / "c").ok()["signers"]
    assert [key.id] == strict.run("download", "plain-1", tmp_path / "d", "--no-supervisor").ok()["signers"]
    assert [] == strict.run("bundle", "verify", "plain-1", job).ok()["damaged"]
    shown = strict.run("bundle", "show", "plain-1").ok()
    assert ([key.id], 1) == (shown["signers"], len(shown["signatures"]))


def test_a_host_that_is_told_to_keep_an_unsigned_bundle_says_why_it_does_not(strict: Cluster, job: Path) -> None:
    """An operator would wait for ever, or the host would publish it."""
    digest = strict.upload(job, "kept-1", replicas=1)["digest"]
    strict.run("bundle", "distribute", "kept-1", "--wait", "0").ok()
    until(lambda: "is not signed" in json.dumps(strict.run("bundle", "show", "kept-1").ok()["stuck"]), "it says why")

    assert not strict.published("supervisor-1", digest)


def test_a_key_that_nobody_knows_and_another_clusters_signature_are_refused(
    strict: Cluster, key: NewKeyView, job: Path, tmp_path: Path
) -> None:
    """Any signature would do, or one for a test cluster would hold in production."""
    stranger = generate_key(tmp_path / "stranger")
    strict.run("upload", job, "--id", "strange-1", "--min-replicas", 1, "--sign", stranger.key_file).ok()
    strict.run(
        "upload", job, "--id", "staged-1", "--min-replicas", 1, "--sign", key.key_file, trust__cluster="staging"
    ).ok()
    answers = {bundle: read(strict, bundle).json() for bundle in ("strange-1", "staged-1")}
    downloads = {b: error_of(strict.run("download", b, tmp_path / b, "--no-supervisor")) for b in answers}

    assert {"strange-1": "unknown_key", "staged-1": "bad_signature"} == downloads
    assert downloads == {bundle: answer["error"] for bundle, answer in answers.items()}
    assert stranger.id in answers["strange-1"]["message"]
    assert "for the cluster 'staging'" in answers["staged-1"]["message"]


def test_other_content_under_a_signed_id_is_refused(
    strict: Cluster, key: NewKeyView, job: Path, tmp_path: Path
) -> None:
    """A rogue master could exchange a bundle under its id and its signature."""
    strict.run("upload", job, "--id", "good-1", "--min-replicas", 1, "--sign", key.key_file).ok()
    (job / "run.sh").write_text("evil")
    evil = strict.upload(job, "evil-1", replicas=1)["digest"]
    with records_client(strict.tree) as zookeeper:
        path = paths.bundle(BundleId("good-1"))
        record = decode(zookeeper.get(path)[0], BundleRecord, path=path)
        zookeeper.set(path, encode(msgspec.structs.replace(record, digest=Digest(evil))))
    until(lambda: strict.get("master-1", "/v1/bundles/good-1")["digest"] == evil, "the master believes it")
    answer = read(strict, "good-1").json()

    assert "bad_signature" == error_of(strict.run("download", "good-1", tmp_path / "x", "--no-supervisor"))
    assert "bad_signature" == answer["error"]
    assert "other content" in answer["message"]
    assert not strict.published("supervisor-1", evil)


def test_a_signed_job_runs_with_its_signed_overrides(strict: Cluster, key: NewKeyView, job: Path, mark: Path) -> None:
    """Nobody could run a job with another level of logging."""
    shown = strict.run("job", "submit", job, "--conf", "env.LEVEL=debug", "--sign", key.key_file).ok()
    until(lambda: mark.exists() and mark.read_text().endswith("\n"), "the worker runs", 60.0)

    assert "debug\n" == mark.read_text()
    assert [key.id] == [
        made["keyid"] for made in strict.run("job", "show", shown["id"]).ok()["signature"]["signatures"]
    ]


def test_a_signed_bundle_runs_unsigned_as_it_is_and_not_otherwise(
    strict: Cluster, key: NewKeyView, job: Path, mark: Path
) -> None:
    """A submitter without a key would choose what runs, or could not even run what was shipped."""
    bundle = strict.run("upload", job, "--min-replicas", 1, "--sign", key.key_file).ok()["id"]
    changed = strict.run("job", "submit", bundle, "--conf", "env.LEVEL=evil", "--name", "changed").ok()["id"]
    why = refusal(strict, changed)
    strict.run("job", "submit", bundle).ok()
    until(mark.exists, "the worker runs", 60.0)

    assert "another env.LEVEL, name than what was signed" in why
    assert "info\n" == mark.read_text()
    assert (changed, why) in refusals_in_log(strict)


def test_a_bundle_of_the_cluster_is_submitted_with_a_signature_if_a_known_key_has_signed_it(
    strict: Cluster, key: NewKeyView, job: Path, mark: Path
) -> None:
    """A master could make a submitter sign a job of other content."""
    unsigned = strict.upload(job, "mine-1", replicas=1)["id"]
    refused = strict.run("job", "submit", unsigned, "--sign", key.key_file)
    strict.run("bundle", "sign", unsigned, "--key", key.key_file).ok()
    strict.run("job", "submit", unsigned, "--sign", key.key_file, "--conf", "env.LEVEL=x").ok()
    until(mark.exists, "the worker runs", 60.0)

    assert "unsigned_bundle" == error_of(refused)
    assert "x\n" == mark.read_text()


@pytest.mark.parametrize("attack", ["command", "env", "dependencies", "bundle", "replay"])
def test_a_rogue_record_of_a_job_starts_nothing(
    strict: Cluster, key: NewKeyView, job: Path, mark: Path, tmp_path: Path, attack: str
) -> None:
    """Anybody who can write to ZooKeeper could run code on every host."""
    sane = strict.run("job", "submit", job, "--sign", key.key_file, "--inactive").ok()["id"]
    other = strict.run("upload", job / "run.sh", "--min-replicas", 1, "--sign", key.key_file).ok()["id"]
    path = paths.job(JobId(sane))
    with records_client(strict.tree) as zookeeper:
        record = decode(zookeeper.get(path)[0], JobRecord, path=path)
        assert record.spec is not None
        attacks: dict[str, dict[str, Any]] = {
            "command": {"spec": msgspec.structs.replace(record.spec, command=("sh", "-c", f"touch {mark}"))},
            "env": {"spec": msgspec.structs.replace(record.spec, env={**record.spec.env, "LD_PRELOAD": "x"})},
            "dependencies": {"dependencies": (BundleId(other),)},
            "bundle": {"bundle": BundleId(other)},
            "replay": {"signature": record.signature},
        }
        rogue = JobId(f"rogue-{tmp_path.name}")
        forged = {"id": rogue, "status": JobStatus.ACTIVE, "created_at": 1.0, "signature": None, **attacks[attack]}
        zookeeper.create(paths.job(rogue), encode(msgspec.structs.replace(record, **forged)))
    why = refusal(strict, rogue)
    strict.run("job", "kill", rogue, "-w", 0).ok()

    named = {"bundle": "has no job.toml", "replay": f"for the job '{sane}'"}.get(attack, f"another {attack}")
    assert named in why
    assert (rogue, why) in refusals_in_log(strict)
    assert not mark.exists()


def test_what_is_signed_is_used_without_a_master(strict: Cluster, key: NewKeyView, job: Path, tmp_path: Path) -> None:
    """A control outage would stop the data of hosts that check signatures."""
    bundle = strict.run("upload", job, "--min-replicas", 1, "--sign", key.key_file).ok()["id"]
    assert 200 == read_and_kept(strict, bundle).status_code
    strict.kill("master-1")
    try:
        strict.reconfigure("supervisor-1", {})
        streamed = read(strict, bundle)
        done: list[Ran] = []

        def downloaded() -> bool:
            """A supervisor that has just started may be too busy to be used. A download that began
            without it goes on without it, so each begins anew."""
            dest = tmp_path / f"copy-{time.monotonic_ns()}"
            done[:] = [strict.run("download", bundle, dest, "--timeout", 5, client__deadline_secs=1)]
            return done[0].code == 0

        until(downloaded, "the supervisor gives it", 40.0)
    finally:
        strict.heal()

    assert 200 == streamed.status_code
    assert [key.id] == done[0].ok()["signers"]


def test_what_was_there_before_it_is_checked_too(strict: Cluster, job: Path) -> None:
    """A host would go on using whatever it fetched before its operator turned signatures on, or
    nobody could see beforehand what will be refused."""
    bundle = strict.upload(job, "older-1", replicas=1)["id"]
    strict.reconfigure("supervisor-1", {"trust": {"bundles": {"*": {"mode": "warn"}}}})
    warned = read_and_kept(strict, bundle)
    lines = log_lines(strict, "a bundle is used although its signature is not right")
    strict.reconfigure("supervisor-1", {})
    refused = read(strict, bundle)
    place = httpx.get(f"{gateway(strict)}/bundles/{bundle}", trust_env=False, timeout=60.0)
    archived = httpx.get(f"{gateway(strict)}/bundles/{bundle}/x.tar", trust_env=False, timeout=60.0)
    hub = httpx.get(f"{gateway(strict)}/hub/{bundle}/resolve/main/run.sh", trust_env=False, timeout=60.0)
    index = httpx.get(f"{gateway(strict)}/simple/{bundle}/", trust_env=False, timeout=60.0)
    maven = httpx.get(f"{gateway(strict)}/maven/{bundle}/run.sh", trust_env=False, timeout=60.0)

    assert 200 == warned.status_code
    assert ["bundle 'older-1' is not signed, and [trust] wants a signature"] == [
        line["reason"] for line in lines if line["bundle"] == bundle
    ]
    refusals = (refused, place, archived, hub, index, maven)
    assert [403] * 6 == [answer.status_code for answer in refusals]
    assert "path" not in place.json()


def test_the_log_names_the_rules_in_force(strict: Cluster) -> None:
    """If this fails, nobody can tell whether a changed [trust] is in force already."""
    said = log_lines(strict, "signatures are checked by [trust] as it is now; a change needs a restart")

    assert {"*": "enforce, 1 keys"} in [line["rules"] for line in said]
