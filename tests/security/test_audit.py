"""The audit, against real masters: every change and every refusal has its line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from cluster_fixtures import Cluster, running_cluster, until

from torrentdist.model.events import AccessAudited
from torrentdist.model.wire.headers import CLIENT

pytestmark = pytest.mark.case("F14")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(work=tmp_path_factory.mktemp("guarded"), masters=2, supervisors=1) as cluster:
        yield cluster


def audit(cluster: Cluster, *options: object) -> list[dict[str, Any]]:
    """Returns the audit, without what was then asked of another master."""
    found: list[dict[str, Any]] = cluster.run("audit", *options).ok()
    return [entry for entry in found if entry["result"] not in ("not_leader", "no_leader", "not_ready")]


def told(cluster: Cluster, member: str) -> list[AccessAudited]:
    """What the events of a member tell of its audit."""
    lines = b"".join(path.read_bytes() for path in (cluster.store(member) / "events").glob("*.jsonl")).splitlines()
    return [msgspec.json.decode(line, type=AccessAudited) for line in lines if b'"access_audited"' in line]


def test_a_change_tells_who_what_when_and_from_where(guarded: Cluster, tmp_path: Path) -> None:
    """Nobody could find out who removed a bundle."""
    (tmp_path / "file").write_bytes(b"content")
    guarded.upload(tmp_path / "file", "audited", 2)
    guarded.run("bundle", "rm", "audited").ok()
    missing = guarded.run("bundle", "pin", "audited")
    assert 3 == missing.code
    pin, removal, *_, upload = audit(guarded, "--bundle", "audited")

    assert ("DELETE /v1/bundles/{id}", "audited", "127.0.0.1", "ok") == tuple(
        removal[key] for key in ("operation", "target", "from", "result")
    )
    assert ("token", "operator", "POST /v1/bundles/{id}") == tuple(upload[key] for key in ("who", "role", "operation"))
    assert "bundle_not_found" == pin["result"]
    assert upload["at"] <= removal["at"] <= pin["at"]


def test_refusals_are_counted_by_source(guarded: Cluster) -> None:
    """A stranger could push every change out of the audit with requests that are refused."""
    leader = guarded.url(guarded.leader())
    with httpx.Client(trust_env=False, timeout=60.0) as stranger:
        for _ in range(30):
            stranger.get(f"{leader}/v1/bundles")
    refused = [entry for entry in audit(guarded, "--who", "anonymous") if entry["result"] == "unauthorized"]

    assert [("anonymous", 30)] == [(entry["role"].replace("anyone", "anonymous"), entry["count"]) for entry in refused]
    assert ["127.0.0.1"] == [entry["from"] for entry in refused]


def test_a_refused_token_is_told_by_name(guarded: Cluster, tmp_path: Path) -> None:
    """A token that is used beyond its role would leave no trace."""
    made = guarded.run("token", "create", "nosy", "--role", "reader").ok()
    token = tmp_path / "nosy"
    token.touch(0o600)
    token.write_text(made["token"])
    assert 4 == guarded.run("ha", "transfer", "master-1", client__token_file=token).code
    (refused,) = audit(guarded, "--who", "nosy")
    created = audit(guarded)

    assert ("role_needed", "reader", "POST /v1/transfer") == tuple(refused[k] for k in ("result", "role", "operation"))
    assert [("POST /v1/tokens", "nosy")] == [
        (e["operation"], e["target"]) for e in created if e["target"] == "nosy" and e["who"] == "token"
    ]
    assert made["token"] not in str(created)


def test_a_prune_that_is_only_tried_is_no_change(guarded: Cluster) -> None:
    """An operator who asks who pruned would be told of a prune that never was."""
    guarded.run("bundle", "prune", "--cluster", "--older-than", "1000d", "--dry-run").ok()
    tried = [entry["operation"] for entry in audit(guarded)]
    # so said clients before there was /v1/dry-run
    old = guarded.http.post(f"{guarded.url(guarded.leader())}/v1/prune?older_than=8e7&dry_run=true")
    tried_again = [entry["operation"] for entry in audit(guarded)]
    guarded.run("bundle", "prune", "--cluster", "--older-than", "1000d").ok()
    pruned = [entry["operation"] for entry in audit(guarded)]

    assert 200 == old.status_code
    assert [0, 0, 1] == [operations.count("POST /v1/prune") for operations in (tried, tried_again, pruned)]


def test_what_a_page_of_another_site_sent_is_counted(guarded: Cluster) -> None:
    """Nobody would notice that a page tries to reach the cluster through a browser."""
    for _ in range(3):
        guarded.http.post(f"{guarded.url(guarded.leader())}/v1/jobs", headers={"Origin": "http://evil.example"})
    (refused,) = [entry for entry in audit(guarded) if entry["result"] == "foreign_site"]

    assert ("POST /v1/jobs", "127.0.0.1", 3) == (refused["operation"], refused["from"], refused["count"])


def test_a_change_that_a_standby_was_asked_for_is_counted(guarded: Cluster) -> None:
    """Somebody could try out changes at a standby, unseen."""
    (standby,) = guarded.standbys()
    # Refusals are counted by source, and the command line tries standbys from 127.0.0.1 as well.
    own_address = httpx.HTTPTransport(local_address="127.0.0.9", trust_env=False)
    with httpx.Client(transport=own_address, headers={CLIENT: "1", **guarded.dev.headers()}, timeout=60.0) as client:
        answers = [client.delete(f"{guarded.url(standby)}/v1/bundles/none") for _ in range(2)]
    found = guarded.run("audit", "--bundle", "none").ok()

    assert [421, 421] == [answer.status_code for answer in answers]
    assert [("not_leader", "token", 2, standby, "127.0.0.9")] == [
        (e["result"], e["who"], e["count"], e["master"], e["from"]) for e in found
    ]


def test_a_supervisor_counts_what_it_refuses(guarded: Cluster) -> None:
    """A stranger could try out a host's ports, unseen."""
    (supervisor,) = guarded.supervisors()
    (view,) = guarded.get("master-1", "/v1/cluster")["supervisors"]
    with httpx.Client(trust_env=False, timeout=60.0) as stranger:
        for _ in range(2):
            stranger.get(f"{view['url']}/v1/host/jobs/etl/logs")
            stranger.post(f"{view['gateway']}/v1/host/prune", headers={"Origin": "http://evil.example"})
            stranger.get(f"{view['gateway']}/bundles/etl", headers={"Authorization": "Bearer job:etl:forged"})
    until(lambda: len(told(guarded, supervisor)) >= 2, "the refusals are written", 30.0)

    assert {
        ("unauthorized", "anonymous", "127.0.0.1", 4),
        ("foreign_site", "anonymous", "127.0.0.1", 2),
    } == {(fact.result, fact.who, fact.source, fact.count) for fact in told(guarded, supervisor)}


def test_a_prune_of_one_host_is_told_by_its_supervisor(guarded: Cluster) -> None:
    """Nobody could find out who dropped a host's bundles, or read them all to look for damage."""
    (supervisor,) = guarded.supervisors()
    (view,) = guarded.get("master-1", "/v1/cluster")["supervisors"]
    with httpx.Client(trust_env=False, timeout=60.0, headers={CLIENT: "1"}) as user:
        tried = user.post(f"{view['gateway']}/v1/host/prune?dry_run=true")
        pruned = user.post(f"{view['gateway']}/v1/host/prune")
        missing = user.post(f"{view['gateway']}/v1/host/bundles/none/verify")

    def changes() -> list[tuple[str, str]]:
        return [
            (fact.operation, fact.result) for fact in told(guarded, supervisor) if fact.operation.startswith("POST")
        ]

    until(lambda: ("POST /v1/host/bundles/{id}/verify", "bundle_not_found") in changes(), "the changes are written")

    assert (200, 200, 404) == (tried.status_code, pruned.status_code, missing.status_code)
    assert [("POST /v1/host/prune", "ok")] == [told for told in changes() if told[1] == "ok"]


def test_the_audit_outlives_its_master(guarded: Cluster, tmp_path: Path) -> None:
    """A restart would wipe out who did what."""
    (tmp_path / "file").write_bytes(b"kept")
    guarded.upload(tmp_path / "file", "remembered", 2)
    guarded.kill(*guarded.masters())
    guarded.start(*guarded.masters())
    guarded.leader()
    until(lambda: audit(guarded, "--bundle", "remembered"), "the upload is in the audit")

    assert "POST /v1/bundles/{id}" in [entry["operation"] for entry in audit(guarded, "--bundle", "remembered")]


def test_the_part_of_a_silent_master_is_said_to_be_missing(guarded: Cluster) -> None:
    """An audit with a gap would look complete."""
    leader, (standby,) = guarded.leader(), guarded.standbys()
    guarded.kill(standby)
    ran = guarded.run("audit")
    guarded.start(standby)

    assert 0 == ran.code
    assert standby in ran.stderr
    assert leader not in ran.stderr
