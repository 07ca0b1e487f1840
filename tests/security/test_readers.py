"""I1: a token that may read one bundle of two, in search of the other one at every operation.

Always: an answer about the hidden bundle is the answer about an id that nobody has used.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cluster_fixtures import Cluster, running_cluster, until
from image_layouts import finish, put_image

from torrentdist.bundle.images.image_names import Image
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.chunked_upload import read_chunk
from torrentdist.testing.sample_trees import some_bytes, write_tree

pytestmark = pytest.mark.case("I1")

OWN, HIDDEN, ABSENT = "mine-1", "secret-model", "absent-model"
FILE, CONTENT = "plan-of-the-year", b"what only another team may read"
JOB = 'name = "covert"\ncommand = ["sh", "-c", "cat plan-of-the-year; sleep 600"]\n'
OWN_JOB = 'name = "overt"\ncommand = ["sh", "-c", "sleep 600"]\n'
WEIGHTS = some_bytes(500_000, 31)
"""A file of the hidden bundle."""
VOLATILE = re.compile(rb"[0-9a-f]{32}|\d+\.\d+")
"""Numbers of requests and moments, which differ from answer to answer."""


OTHERS = {"worker": "0", "path": FILE, "kind": "models", "revision": "main"}
"""What the paths of operations name besides bundles, their jobs and their distributions."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two teams, with a bundle, a job and a distribution of each."""
    work = tmp_path_factory.mktemp("shared")
    users = {"supervisor": {"gateway_users": {str(os.getuid()): "mine-*"}}}
    with running_cluster(users, work=work, masters=1, supervisors=1) as cluster:
        for bundle, job in ((OWN, OWN_JOB), (HIDDEN, JOB)):
            content = CONTENT if bundle == HIDDEN else b"ours"
            write_tree(work / bundle, {FILE if bundle == HIDDEN else "text": content, "job.toml": job.encode()})
            write_tree(work / bundle, {"weights": WEIGHTS} if bundle == HIDDEN else {})
            cluster.upload(work / bundle, bundle, 1)
            cluster.run("bundle", "distribute", bundle, "--wait", "100%").ok()
            cluster.run("job", "submit", bundle).ok()
        cluster.run("bundle", "retention", "secret-*", "--keep", 3).ok()
        cluster.run("token", "create", "insider.tar", "--role", "uploader", "--bundles", "secret-*").ok()
        until(lambda: output_of(cluster), "the output of the hidden job", 60.0)
        yield cluster


def output_of(cluster: Cluster) -> bool:
    return CONTENT.decode() in cluster.run("job", "logs", "covert").stdout


@pytest.fixture(scope="module")
def reader(shared: Cluster) -> Iterator[httpx.Client]:
    """The strongest token that a pattern binds."""
    made = shared.run("token", "create", "mine", "--role", "submitter", "--bundles", "mine-*").ok()
    headers = {"Authorization": f"Bearer {made['token']}", "X-Torrentdist": "1"}
    with httpx.Client(trust_env=False, timeout=60.0, base_url=shared.url("master-1"), headers=headers) as http:
        yield http


def needles(cluster: Cluster) -> list[bytes]:
    """What no answer may hold."""
    hidden = cluster.get("master-1", f"/v1/bundles/{HIDDEN}")
    covert = next(job["id"] for job in cluster.get("master-1", "/v1/jobs") if job["name"] == "covert")
    return [HIDDEN.encode(), hidden["digest"].encode(), FILE.encode(), CONTENT, covert.encode(), b"secret-*"]


def known(cluster: Cluster, *, hidden: bool) -> dict[str, str]:
    """The names of what is hidden, or of what does not exist."""
    if not hidden:
        absent = {"digest": "ab" * 32, "job": "absent-job", "run": "absent-run", "name": "outside.tar"}
        return {"id": ABSENT, "repo": ABSENT, **absent, **OTHERS}
    digest = cluster.get("master-1", f"/v1/bundles/{HIDDEN}")["digest"]
    covert = next(job["id"] for job in cluster.get("master-1", "/v1/jobs") if job["name"] == "covert")
    run = next(one["run"] for one in cluster.get("master-1", "/v1/distributions") if one["bundle"] == HIDDEN)
    return {"id": HIDDEN, "repo": HIDDEN, "digest": digest, "job": covert, "run": run, "name": "insider.tar"} | OTHERS


def filled(path: str, names: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: names.get(match[1], "x"), path)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for path, methods in document["paths"].items():
        yield from ((method.upper(), path) for method in methods)


def joined(meta: Metafile, source: Path) -> bytes:
    """All bytes of a bundle, in the order of its metafile."""
    return read_chunk(meta, source, 0, meta.size)


def masked(answer: httpx.Response, names: dict[str, str]) -> tuple[int, bytes, str]:
    """Returns an answer without the names that the request had."""
    body, where = answer.content, answer.headers.get("location", "")
    for key, name in sorted(names.items(), key=lambda named: -len(named[1])):
        body, where = body.replace(name.encode(), key.encode()), where.replace(name, key)
    return answer.status_code, VOLATILE.sub(b"", body), where


@pytest.fixture(scope="module")
def local(shared: Cluster) -> Iterator[httpx.Client]:
    """A user of the supervisor's host whom a table lets read one team's bundles."""
    headers = {"X-Torrentdist": "1"}
    with httpx.Client(trust_env=False, timeout=60.0, base_url=shared.url("supervisor-1"), headers=headers) as http:
        yield http


@pytest.fixture(params=["reader", "local"])
def sender(request: pytest.FixtureRequest) -> httpx.Client:
    """Sends requests to a master, or to a gateway."""
    http: httpx.Client = request.getfixturevalue(request.param)
    return http


def test_no_answer_shows_what_its_sender_may_not_read(shared: Cluster, sender: httpx.Client) -> None:
    """A token of one team, or a user of a host, would get, list or count the bundles of another
    team."""
    digest = shared.get("master-1", f"/v1/bundles/{OWN}")["digest"]
    own = {
        "id": OWN, "repo": OWN, "digest": digest, "job": "overt", "worker": "0", "supervisor": "supervisor-1",
        "master": "master-1", "name": "mine", "path": "text", "kind": "models", "revision": "main",
    }  # fmt: skip
    secrets, leaks, answered = needles(shared), [], 0
    for method, path in operations(sender.get("/openapi.json").json()):
        for accept in ("application/json", "text/html") if path.startswith("/ui/") else ("*/*",):
            answer = sender.request(method, filled(path, own), params={"timeout": "0"}, headers={"Accept": accept})
            answered += answer.status_code < 400
            told = answer.content + repr(answer.headers).encode()
            leaks += [f"{method} {path}: {secret!r}" for secret in secrets if secret in told]

    assert [] == leaks
    assert answered > 12


def test_what_may_not_be_read_is_answered_like_what_is_not_there(shared: Cluster, sender: httpx.Client) -> None:
    """An error would tell that a bundle of this name or digest exists."""
    hidden, absent = known(shared, hidden=True), known(shared, hidden=False)
    different, compared = [], 0
    for method, path in operations(sender.get("/openapi.json").json()):
        if not set(re.findall(r"\{(\w+)\}", path)) & hidden.keys():
            continue
        for accept in ("application/json", "text/html"):
            found = [
                masked(
                    sender.request(method, filled(path, names), params={"timeout": "0"}, headers={"Accept": accept}),
                    names,
                )
                for names in (hidden, absent)
            ]
            compared += 1
            if found[0] != found[1]:
                different.append(f"{method} {path}: {found}")

    assert [] == different
    assert compared > 20


def test_a_hidden_bundle_of_a_gateway_is_one_that_nobody_has_uploaded(local: httpx.Client) -> None:
    """Another error for what a user may not read would tell which patterns others have."""
    paths = ["/bundles/{id}", "/bundles/{id}/files/x", "/simple/{id}/", "/maven/{id}/x.jar", "/hub/api/models/{id}"]
    paths += ["/s3/{id}", f"/s3/{{id}}/{FILE}"]
    hidden, absent = (
        [masked(local.get(filled(path, {"id": name})), {"id": name}) for path in paths] for name in (HIDDEN, "mine-2")
    )

    assert hidden[1:] == absent[1:]
    assert {404} == {status for status, _, _ in hidden}


def test_a_hidden_image_of_a_gateway_is_one_that_nobody_has_pushed(
    shared: Cluster, local: httpx.Client, tmp_path: Path
) -> None:
    """A user would pull another team's image, by its tag or by the digest of a part of it."""
    manifest = put_image(tmp_path / "layout", [{"plan": CONTENT}])
    hidden, absent = Image("secret", "1"), Image("absent", "1")
    shared.upload(finish(tmp_path / "layout", [manifest], "1"), hidden.bundle, 1)
    shared.run("bundle", "distribute", hidden.bundle, "--wait", "100%").ok()
    digest = manifest["digest"]
    paths = ["manifests/1", f"manifests/{digest}", f"blobs/{digest}", "tags/list"]
    answers = [
        [masked(local.get(f"/v2/{image.name}/{path}"), {"name": image.name}) for path in paths]
        for image in (hidden, absent)
    ]

    assert answers[0] == answers[1]
    assert [404] * 3 == [status for status, _, _ in answers[0][:3]]


@pytest.mark.case("I2")
@pytest.mark.parametrize(("token", "known"), [("mine", 0), ("", len(WEIGHTS))], ids=["a reader", "an operator"])
def test_an_upload_takes_nothing_that_its_sender_may_not_read(
    shared: Cluster, reader: httpx.Client, tmp_path: Path, token: str, known: int
) -> None:
    """A team that guesses a file would learn from an upload, or from a dry run, that another team
    has it. An operator shows that the file would be found."""
    (tmp_path / "guess").mkdir()
    (tmp_path / "guess" / "model").write_bytes(WEIGHTS)
    (tmp_path / "guess" / "sender").write_text(token)
    meta = make_metafile(tmp_path / "guess")
    headers = dict(reader.headers) if token else shared.dev.headers()
    bundle, url = f"mine-guess{token}", shared.url("master-1")
    with httpx.Client(trust_env=False, timeout=60.0, base_url=url, headers=headers) as http:
        told = http.post("/v1/reuse", content=meta.raw).json()
        http.post(f"/v1/bundles/{bundle}", content=meta.raw, params={"min_replicas": "1"}).raise_for_status()
        offset = http.get(f"/v1/uploads/{meta.digest}").json()["offset"]

    assert (known, known) == (told["reused_bytes"], offset)
    assert ([HIDDEN] if known else []) == told["reused_from"]


@pytest.mark.case("I2")
def test_a_metafile_does_not_make_its_content_ones_own(shared: Cluster, reader: httpx.Client, tmp_path: Path) -> None:
    """Somebody who holds the metafile of a hidden bundle could publish it under an own id, and read
    it there. Somebody who has the content may publish it."""
    meta = make_metafile(shared.dir.parent / HIDDEN)
    forged = bytearray(joined(meta, shared.dir.parent / HIDDEN))
    forged[-1] ^= 1
    proof = {"digest": meta.digest, "offset": "0"}
    opened = reader.post("/v1/bundles/mine-2", content=meta.raw)
    wrong = reader.put("/v1/bundles/mine-2/proof", params=proof, content=bytes(forged))
    again = reader.post("/v1/bundles/mine-2", content=meta.raw)
    shown = [reader.get(f"/v1/{path}").status_code for path in ("bundles/mine-2", f"metafiles/{meta.digest}")]
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(reader.headers["Authorization"].removeprefix("Bearer "))
    own = shared.run("upload", shared.dir.parent / HIDDEN, "--id", "mine-2", client__token_file=token)
    shared.run("bundle", "rm", "mine-2").ok()

    assert [(428, "proof_needed")] * 2 == [(one.status_code, one.json()["error"]) for one in (opened, again)]
    assert (500, "corrupt") == (wrong.status_code, wrong.json()["error"])
    assert [404, 404] == shown
    assert (0, True) == (own.code, own.json["achieved"]), own.stderr


@pytest.mark.case("I2")
def test_an_upload_without_bytes_is_not_completed_by_anothers(
    shared: Cluster, reader: httpx.Client, tmp_path: Path
) -> None:
    """Somebody who got hold of a metafile early could open it, wait for its owner's upload, and
    read what that brings."""
    write_tree(tmp_path / "late", {"model": some_bytes(300_000, 41)})
    meta = make_metafile(tmp_path / "late")
    reader.post("/v1/bundles/mine-3", content=meta.raw).raise_for_status()
    shared.upload(tmp_path / "late", "secret-late", 1)
    state = shared.get("master-1", "/v1/bundles/secret-late")["state"]

    assert "available" == state
    assert 404 == reader.get("/v1/bundles/mine-3").status_code
    assert 404 == reader.get(f"/v1/metafiles/{meta.digest}").status_code


def test_a_job_gets_nothing_that_its_submitter_may_not_read(
    shared: Cluster, reader: httpx.Client, tmp_path: Path
) -> None:
    """A team would read any bundle by naming it among the dependencies of an own job, or learn that
    it exists."""
    found = []
    for number, needed in enumerate((HIDDEN, ABSENT, OWN)):
        bundle = f"mine-needs-{number}"
        text = OWN_JOB.replace("overt", bundle) + f'dependencies = ["{needed}"]\n'
        write_tree(tmp_path / bundle, {"job.toml": text.encode()})
        shared.upload(tmp_path / bundle, bundle, 1)
        found.append(masked(reader.post("/v1/dry-run/jobs", json={"bundle": bundle}), {"id": needed, "of": bundle}))

    assert found[0] == found[1]
    assert [404, 404, 200] == [status for status, _, _ in found]


def test_completion_offers_what_may_be_read(shared: Cluster, reader: httpx.Client, tmp_path: Path) -> None:
    """The shell would complete the ids of another team's bundles and jobs."""
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(reader.headers["Authorization"].removeprefix("Bearer "))
    told = [shared.run(*command, client__token_file=token).stdout for command in (("bundle", "ls"), ("job", "ls"))]

    assert [] == [secret for secret in needles(shared) if any(secret.decode() in text for text in told)]


@pytest.mark.case("I3")
@pytest.mark.parametrize("daemon", ["master-1", "supervisor-1"])
def test_no_other_user_of_a_host_gets_at_what_a_daemon_keeps(shared: Cluster, daemon: str) -> None:
    """Any user of the machine could read every bundle, the events and the audit."""
    home = shared.dir / daemon
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir() if path.is_dir()}
    events = {stat.S_IMODE(path.stat().st_mode) for path in (home / "events").iterdir()}

    assert {"objects", "events"} <= modes.keys()
    assert 0 == home.stat().st_mode & 0o007
    assert {0o750} == {modes.pop("events")}
    assert {0o700} == set(modes.values())
    assert {0o640} == events


def test_an_open_page_of_another_visitor_shows_nothing(shared: Cluster, reader: httpx.Client) -> None:
    """Pages that are made once for all would show a hidden bundle while an operator looks at it."""
    path = f"/ui/live/bundles/{HIDDEN}"
    with shared.http.stream("GET", shared.url("master-1") + path) as stream:
        shown = next(part for part in stream.iter_raw() if b"data:" in part)
        answer = reader.get(path, params={"timeout": "0"})

    assert b"Distribution" in shown or b"host" in shown
    assert 404 == answer.status_code
