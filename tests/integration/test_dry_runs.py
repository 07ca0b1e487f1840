"""What --dry-run prints is what the command then does, and it changes nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cluster_fixtures import Cluster, make_source, running_cluster, until

from torrentdist.model.backup import decode_backup

JOB = 'name = "{name}"\ncommand = ["{python}", "-c", "import time; time.sleep(600)"]\n'
SOON = {"created_at", "expires_at", "seconds", "age_secs", "due_in", "zxid", "token", "invitation"}
"""Values that depend on the moment, or that a dry run does not show."""
AT_REST_SECS = 0.1
"""A leader that changes no record for so long has done what it was asked."""


@pytest.fixture(scope="module")
def steered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    work = tmp_path_factory.mktemp("dry")
    with running_cluster(work=work, masters=2, supervisors=1) as cluster:
        for name in ("b-1", "b-2", "b-3"):
            cluster.upload(make_source(work / name, seed=len(name) + ord(name[-1])), name, replicas=2)
        (work / "job").mkdir()
        (work / "job" / "job.toml").write_text(JOB.format(name="etl", python=sys.executable))
        cluster.run("job", "submit", work / "job").ok()
        cluster.run("token", "create", "old", "--role", "reader").ok()
        cluster.run("group", "add", "parts", "p-1", "p-2").ok()
        yield cluster


def records(cluster: Cluster) -> dict[str, bytes]:
    """Every record of the cluster that somebody asked for."""
    answer = cluster.http.get(f"{cluster.url('master-1')}/v1/backup")
    found = decode_backup(answer.raise_for_status().content, "backup")
    return {node.path: node.data for node in found.nodes if not node.path.startswith(("/requests", "/jobs/"))}


def stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: stable(each) for key, each in value.items() if key not in SOON}
    return [stable(each) for each in value] if isinstance(value, list) else value


CHANGES = [
    ("bundle", "pin", "b-1"),
    ("bundle", "unpin", "b-1"),
    ("bundle", "rm", "b-2"),
    ("bundle", "distribute", "b-3", "--wait", "0"),
    ("job", "deactivate", "etl"),
    ("job", "activate", "etl"),
    ("job", "rebalance", "etl", "--workers", "1"),
    ("job", "kill", "etl", "--wait", "1h"),
    ("group", "add", "parts", "p-2", "p-3"),
    ("group", "rm", "parts", "p-1"),
    ("supervisor", "drain", "supervisor-1"),
    ("supervisor", "undrain", "supervisor-1"),
    ("token", "create", "new", "--role", "uploader", "--bundles", "etl-*"),
    ("token", "revoke", "old"),
    ("upload", "SOURCE", "--id", "b-9"),
    ("download", "b-3", "DEST"),
    ("ha", "transfer", "STANDBY"),
]
REFUSED = [
    ("bundle", "rm", "none", 3),
    ("bundle", "pin", "none", 3),
    ("bundle", "distribute", "none", 3),
    ("bundle", "distribute", "b-3", "--label", "zone=none", 3),
    ("bundle", "rm", "b-1", 9),
    ("job", "kill", "none", 3),
    ("job", "submit", "b-1", 2),
    ("group", "rm", "parts", "none", 3),
    ("supervisor", "drain", "none", 3),
    ("token", "create", "old", "--role", "reader", 9),
    ("token", "revoke", "none", 3),
    ("host", "revoke", "none", 3),
    ("ha", "transfer", "none", 3),
    ("upload", "SOURCE", "--id", "b-1", 9),
    ("download", "b-1", "SOURCE", 9),
    ("download", "none", "DEST", 3),
]


def records_at_rest(cluster: Cluster) -> dict[str, bytes]:
    """Returns the records once the leader has done what the last command caused."""
    seen, since = records(cluster), time.monotonic()

    def is_at_rest() -> bool:
        nonlocal seen, since
        if (now := records(cluster)) != seen:
            seen, since = now, time.monotonic()
        is_running = b'"running"' in b"".join(data for path, data in now.items() if path.startswith("/distributions/"))
        return time.monotonic() - since >= AT_REST_SECS and not is_running

    until(is_at_rest, "the leader is done", 30.0)
    return seen


def test_a_dry_run_that_would_be_refused_ends_like_the_command(steered: Cluster, tmp_path: Path) -> None:
    """If this fails, a script that tries a change first makes it in vain, or leaves it undone."""
    steered.run("bundle", "pin", "b-1").ok()
    source = make_source(tmp_path / "source", seed=90)
    before = records_at_rest(steered)
    ends = {}
    for *command, code in REFUSED:
        words = [{"SOURCE": source, "DEST": tmp_path / "dest"}.get(str(word), word) for word in command]
        dry = steered.run(*words, "--dry-run")
        real = steered.run(*words)
        ends[" ".join(map(str, command))] = (dry.code, real.code, code)
        assert dry.stderr.partition("]")[0] == real.stderr.partition("]")[0]
    steered.run("bundle", "unpin", "b-1").ok()

    assert {} == {name: codes for name, codes in ends.items() if len(set(codes)) > 1}
    assert before == {**records(steered), **{path: before[path] for path in before if "b-1" in path}}


def test_a_dry_run_shows_what_the_command_does_and_changes_nothing(steered: Cluster, tmp_path: Path) -> None:
    """If this fails, somebody who looks first is misled, or makes the change by looking. It takes
    long: each of many commands is a process."""
    source, dest = make_source(tmp_path / "source", seed=91), tmp_path / "dest"
    for command in CHANGES:
        standby = str(steered.standbys()[0]) if "STANDBY" in command else ""
        words = [{"SOURCE": source, "DEST": dest, "STANDBY": standby}.get(word, word) for word in command]
        before = records_at_rest(steered)

        tried = steered.run(*words, "--dry-run")

        shown = stable(tried.ok())
        assert "dry run: nothing was changed" in tried.stderr, command
        assert before == records(steered), command
        assert not dest.exists() or command[0] != "download"
        done = stable(steered.run(*words).ok())
        both = shown.keys() & done.keys() - {"workers", "sources", "replicas", "holders", "reason", "status"}
        assert {key: shown[key] for key in both} == {key: done[key] for key in both}, command
        assert both, command


def test_a_job_directory_is_checked_before_it_is_uploaded(steered: Cluster, tmp_path: Path) -> None:
    """If this fails, a job's mistake shows only after its upload, or a dry run uploads it."""
    for name, text in (("good", JOB.format(name="nightly", python=sys.executable)), ("bad", 'name = "nightly"\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.toml").write_text(text)
    before = records_at_rest(steered)

    good = steered.run("job", "submit", tmp_path / "good", "--workers", "2", "--dry-run").ok()
    bad = steered.run("job", "submit", tmp_path / "bad", "--dry-run")

    assert ("nightly", 2) == (good["name"], good["wanted"])
    assert (2, True) == (bad.code, "job_invalid" in bad.stderr)
    assert before == records(steered)


def test_founding_and_restoring_are_tried_on_the_ensemble_itself(steered: Cluster, tmp_path: Path) -> None:
    """If this fails, an operator in a bad hour learns only afterwards that the tree was not
    empty."""
    config = steered.dir / "master-1.toml"
    steered.run("ha", "backup", tmp_path / "kept").ok()

    founded = steered.run("ha", "init", "--config", config, "--dry-run").ok()
    restored = steered.run("ha", "restore", tmp_path / "kept", "--config", config, "--dry-run")

    assert founded["founded"] is False
    assert (9, True) == (restored.code, "tree_not_empty" in restored.stderr)


def test_what_knows_no_dry_run_is_refused(steered: Cluster) -> None:
    """If this fails, a client that only wants to try a change makes it."""
    leader = steered.url(steered.leader())
    headers = {**steered.dev.headers(), "X-Torrentdist": "1"}
    answers = [
        httpx.post(f"{leader}/v1/dry-run/{path}", headers=headers, trust_env=False, timeout=60.0).status_code
        for path in ("bundles/new", "heartbeat", "invitations/x/redeem")
    ]

    assert [404] * 3 == answers
