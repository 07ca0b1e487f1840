"""Tokens with names, against real masters: what each role may do, and when a token ends."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cluster_fixtures import Cluster, files_of_daemons, running_cluster, until

from torrentdist.bundle.metafile_maker import make_metafile_and_recipe
from torrentdist.host.http.authentication import RECHECK_SECS


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """What `dev up` starts: 2 masters and a supervisor."""
    with running_cluster(work=tmp_path_factory.mktemp("guarded"), masters=2, supervisors=1) as cluster:
        yield cluster


def secret_file(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(text)
    return path


@pytest.fixture
def token_file(guarded: Cluster, tmp_path: Path) -> Callable[..., Path]:
    """Creates a token, and returns the file that holds it."""

    def create(name: str, role: str, *options: object) -> Path:
        made = guarded.run("token", "create", name, "--role", role, *options).ok()
        return secret_file(tmp_path / name, made["token"])

    return create


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    (tmp_path / "etl").mkdir()
    (tmp_path / "etl" / "file").write_bytes(b"content")
    (tmp_path / "etl" / "job.toml").write_text('name = "etl"\ncommand = ["true"]\n')
    return tmp_path / "etl"


def error_of(ran: Any) -> str:
    return str(ran.stderr).partition("error[")[2].partition("]")[0]


@pytest.mark.case("F5")
def test_each_role_can_do_what_the_table_says_and_no_more(
    guarded: Cluster, token_file: Callable[..., Path], bundle: Path
) -> None:
    """A token would open more than its role, or less."""
    reader, uploader = token_file("r", "reader"), token_file("u", "uploader", "--bundles", "etl-*")
    submitter, operator = token_file("s", "submitter", "--bundles", "etl-*"), token_file("o", "operator")

    def ended(token: Path, *args: object) -> tuple[int, str]:
        ran = guarded.run(*args, client__token_file=token)
        return ran.code, error_of(ran)

    assert (4, "role_needed") == ended(reader, "upload", bundle, "--id", "etl-1")
    assert (0, "") == ended(uploader, "upload", bundle, "--id", "etl-1", "--min-replicas", 1)
    assert (4, "pattern_mismatch") == ended(uploader, "upload", bundle, "--id", "web-1")
    assert (0, "") == ended(reader, "download", "etl-1", bundle.parent / "copy", "--no-supervisor")
    assert (4, "role_needed") == ended(uploader, "job", "submit", "etl-1")
    assert (0, "") == ended(submitter, "job", "submit", "etl-1", "--name", "mine")
    assert (0, "") == ended(submitter, "job", "kill", "mine", "-w", 0)
    assert (4, "role_needed") == ended(submitter, "bundle", "rm", "etl-1")
    assert (4, "role_needed") == ended(submitter, "token", "create", "x", "--role", "operator")
    assert (0, "") == ended(operator, "bundle", "rm", "etl-1")


@pytest.mark.case("F5")
def test_a_refusal_names_the_role_and_the_pattern(
    guarded: Cluster, token_file: Callable[..., Path], bundle: Path
) -> None:
    """A refused user could not tell what to ask for."""
    reader, web = token_file("r2", "reader"), token_file("w2", "uploader", "--bundles", "web-*")
    role = guarded.run("upload", bundle, "--id", "etl-2", client__token_file=reader)
    pattern = guarded.run("upload", bundle, "--id", "etl-2", client__token_file=web)

    assert "--role uploader" in role.stderr
    assert "'web-*'" in pattern.stderr


def test_whoami_tells_name_role_and_proof(guarded: Cluster, token_file: Callable[..., Path]) -> None:
    """A user could not find out which of several tokens is in use."""
    web = token_file("w3", "uploader", "--bundles", "web-*", "--ttl", "1h")
    named, shared = guarded.run("whoami", client__token_file=web).ok(), guarded.run("whoami").ok()

    assert ("w3", "uploader", "web-*", "token") == tuple(named[key] for key in ("name", "role", "bundles", "how"))
    assert named["expires_at"] > 0
    assert ("operator", "token-file", None) == tuple(shared[key] for key in ("role", "how", "expires_at"))


def test_a_revoked_token_is_refused_by_every_master(guarded: Cluster, token_file: Callable[..., Path]) -> None:
    """A thief could go on at a standby that never heard of the revocation."""
    token = token_file("r4", "reader")
    headers = {"Authorization": f"Bearer {token.read_text()}"}

    def answers() -> list[int]:
        return [guarded.http.get(f"{guarded.url(m)}/v1/whoami", headers=headers).status_code for m in guarded.masters()]

    until(lambda: [200, 200] == answers(), "the token at every master")
    guarded.run("token", "revoke", "r4").ok()
    until(lambda: [401, 401] == answers(), "the revocation at every master", 5.0)
    refused = guarded.run("bundle", "ls", client__token_file=token)

    assert (4, "token_revoked") == (refused.code, error_of(refused))
    assert 0 == guarded.run("token", "revoke", "r4").code
    assert 0 == guarded.run("token", "create", "r4", "--role", "reader").code
    assert 9 == guarded.run("token", "create", "r4", "--role", "reader").code


def test_an_expired_token_says_so(guarded: Cluster, token_file: Callable[..., Path]) -> None:
    """A user whose token has expired would look for a typing error."""
    token = token_file("r5", "reader", "--ttl", "1ms")
    refused = guarded.run("bundle", "ls", client__token_file=token)

    assert (4, "token_expired") == (refused.code, error_of(refused))


def test_no_secret_is_kept_anywhere(guarded: Cluster, token_file: Callable[..., Path], tmp_path: Path) -> None:
    """A backup, a list, a master's disk or its log would give every token away."""
    secret = token_file("r6", "reader").read_text().rpartition(".")[2]
    guarded.run("ha", "backup", tmp_path / "backup").ok()
    listed = json.dumps(guarded.run("token", "ls").ok())
    files = {**files_of_daemons(guarded.dir), tmp_path / "backup": (tmp_path / "backup").read_bytes()}
    holding = [path for path, content in files.items() if secret.encode() in content]

    assert secret not in listed
    assert [] == holding


@pytest.mark.case("F5")
def test_another_user_of_this_machine_can_do_nothing(guarded: Cluster) -> None:
    """The user `nobody` could submit a job to a cluster of `dev up`, and so run programs as its
    owner, as everybody could at Ray's job API.
    """
    master = guarded.url(guarded.leader())
    with httpx.Client(trust_env=False, timeout=60.0) as stranger:
        answers = [
            stranger.post(f"{master}/v1/jobs", json={"bundle": "etl-1"}),
            stranger.get(f"{master}/v1/bundles"),
            stranger.get(f"{master}/v1/bundles/etl-1/metafile"),
            stranger.post(f"{master}/v1/swarm", json={"peer": "p", "role": "client", "port": 1}),
        ]

    assert [401] * 4 == [answer.status_code for answer in answers]
    assert 0o600 == stat.S_IMODE((guarded.dir / "token").stat().st_mode)


@pytest.mark.case("F5")
def test_empty_uploads_of_one_token_do_not_stop_those_of_others(
    guarded: Cluster, token_file: Callable[..., Path], bundle: Path
) -> None:
    """One uploader could stop everybody's: each upload that sends nothing held one of 64 threads of
    each master for two minutes. It takes long to open more uploads than there are threads."""
    token = token_file("flood", "uploader", "--bundles", "etl-*").read_text()
    leader = guarded.url(guarded.run("ha", "leader").ok()["leader"])
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=30) as attacker:
        for n in range(70):
            (bundle / "file").write_text(f"never sent {n}")
            meta, _ = make_metafile_and_recipe(bundle)
            assert attacker.post(f"{leader}/v1/bundles/etl-empty-{n}", content=meta.raw).is_success
    (bundle / "file").write_text("small and wanted")

    assert guarded.run("upload", bundle, "--id", "wanted", "--timeout", 20).ok()["achieved"]


LARGE = 64 * 1024 * 1024
"""More than the buffers of a connection hold."""


@pytest.mark.case("F5")
def test_a_revoked_token_reads_no_further(guarded: Cluster, token_file: Callable[..., Path], bundle: Path) -> None:
    """A thief who begins slow downloads of everything before the token is revoked would get it
    all."""
    with (bundle / "large").open("wb") as file:
        file.truncate(LARGE)
    guarded.upload(bundle, "large-1", 2)
    token = token_file("slow-thief", "reader", "--reads", "*").read_text().strip()
    url, proof = guarded.url(guarded.leader()), {"Authorization": f"Bearer {token}"}
    began = time.monotonic()
    with (
        httpx.Client(trust_env=False, timeout=30.0, headers=proof) as thief,
        thief.stream("GET", f"{url}/v1/bundles/large-1/files/large") as answer,
    ):
        parts = answer.iter_raw(65536)
        next(parts)
        guarded.run("token", "revoke", "slow-thief").ok()
        until(lambda: thief.get(f"{url}/v1/whoami").status_code == 401, "the master knows it")
        until(lambda: time.monotonic() > began + 2 * RECHECK_SECS, "the next look is due")
        with pytest.raises(httpx.TransportError):
            sum(map(len, parts))
