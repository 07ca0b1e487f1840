"""The gateway as a Hugging Face Hub, read with the real library."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from cluster_fixtures import Cluster, make_source, picture, running_cluster, until
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    BadRequestError,
    EntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from patience import patient
from uploaded_bundles import Put

from torrentdist import Client
from torrentdist.supervisor.hub.hub_api import PAGE_ENTRIES

PAGE = Path(__file__).parent.parent.parent / "docs" / "hub.md"
LIMIT = 1024 * 1024
"""Bytes per second that the only master sends, so that an arrival takes long enough to observe."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def hub(cluster: Cluster) -> str:
    return f"{cluster.url('supervisor-1')}/hub"


def new_name() -> str:
    return f"llama-{secrets.token_hex(4)}"


def test_a_snapshot_is_the_bundle(hub: str, put: Put, tmp_path: Path) -> None:
    """If this fails, a model is other bytes than those that were uploaded."""
    source, name = make_source(tmp_path / "source", seed=1), new_name()
    (source / "link.bin").symlink_to("sub/other.bin")
    put(f"acme--{name}", source)

    found = snapshot_download(f"acme/{name}", endpoint=hub)
    copied = snapshot_download(f"acme/{name}", endpoint=hub, local_dir=tmp_path / "copy")

    for top in (Path(found), Path(copied)):
        for path in ("data.bin", "sub/other.bin", "link.bin"):
            assert (source / path).read_bytes() == (top / path).read_bytes()
    assert 3 == len([path for path in Path(found).rglob("*") if path.is_file()])


def test_a_single_file_is_fetched_alone(hub: str, put: Put, tmp_path: Path) -> None:
    """If this fails, a program that needs one file waits for all, or gets another one."""
    source, name = make_source(tmp_path / "source", seed=2), new_name()
    put(name, source)

    found = Path(hf_hub_download(name, "sub/other.bin", endpoint=hub))

    assert (source / "sub" / "other.bin").read_bytes() == found.read_bytes()
    assert not list(found.parent.parent.glob("data.bin"))


def test_revisions_and_kinds_are_bundles_of_their_own(hub: str, put: Put, tmp_path: Path) -> None:
    """If this fails, a program that asks for a version gets another one."""
    name, api = new_name(), HfApi(endpoint=hub)
    made = {}
    for number, (bundle, kind, revision) in enumerate(
        [
            (f"acme--{name}", "model", None),
            (f"acme--{name}--v2", "model", "v2"),
            (f"datasets--acme--{name}", "dataset", None),
            (f"spaces--acme--{name}", "space", "main"),
        ]
    ):
        source = make_source(tmp_path / str(number), seed=10 + number)
        put(bundle, source)
        asked = {"repo_type": kind, "revision": revision, "endpoint": hub}
        got = hf_hub_download(f"acme/{name}", "data.bin", **asked)  # type: ignore[call-overload]
        assert (source / "data.bin").read_bytes() == Path(got).read_bytes()
        made[bundle] = api.repo_info(f"acme/{name}", repo_type=kind, revision=revision).sha

    assert 4 == len(set(made.values()))
    for bundle, commit in made.items():
        assert httpx.get(f"{hub[:-4]}/bundles/{bundle}", trust_env=False, timeout=60.0).json()["digest"][:40] == commit
    again = snapshot_download(f"acme/{name}", revision=made[f"acme--{name}--v2"], endpoint=hub)
    assert (tmp_path / "1" / "data.bin").read_bytes() == (Path(again) / "data.bin").read_bytes()


def test_the_library_sees_what_a_repository_holds(hub: str, put: Put, tmp_path: Path) -> None:
    """If this fails, programs that look before they download find nothing, or other sizes."""
    name, api = new_name(), HfApi(endpoint=hub)
    put(f"acme--{name}", make_source(tmp_path / "source", seed=3))

    info = api.model_info(f"acme/{name}", files_metadata=True)

    assert (f"acme/{name}", "acme", False) == (info.id, info.author, info.private)
    assert {"data.bin": 200_000, "sub/other.bin": 66_666} == {f.rfilename: f.size for f in info.siblings or []}
    assert ["data.bin", "sub/other.bin"] == sorted(api.list_repo_files(f"acme/{name}"))
    assert ["data.bin", "sub"] == sorted(entry.path for entry in api.list_repo_tree(f"acme/{name}"))
    assert ["sub/other.bin"] == [entry.path for entry in api.list_repo_tree(f"acme/{name}", "sub")]
    assert [info.sha] == [branch.target_commit for branch in api.list_repo_refs(f"acme/{name}").branches]
    assert (True, False) == (
        api.file_exists(f"acme/{name}", "data.bin"),
        api.file_exists(f"acme/{name}", "none.bin"),
    )


def test_a_long_listing_comes_in_pages(hub: str, put: Put, tmp_path: Path) -> None:
    """If this fails, a repository of many files is copied in part, without any error."""
    name = new_name()
    (tmp_path / "many").mkdir()
    for number in range(PAGE_ENTRIES + 5):
        (tmp_path / "many" / f"{number:05}").write_text(str(number))
    put(f"acme--{name}", tmp_path / "many")

    found = HfApi(endpoint=hub).list_repo_files(f"acme/{name}")

    assert sorted(os.listdir(tmp_path / "many")) == sorted(found)


def test_what_is_missing_is_told_apart(hub: str, put: Put, tmp_path: Path) -> None:
    """If this fails, a library takes a wrong name for an outage, and falls back to old files."""
    name = new_name()
    put(f"acme--{name}", make_source(tmp_path / "source", seed=4))

    with pytest.raises(RepositoryNotFoundError):
        hf_hub_download(f"acme/no-{name}", "data.bin", endpoint=hub)
    with pytest.raises(RepositoryNotFoundError):
        snapshot_download(f"acme/{name}", repo_type="dataset", endpoint=hub)
    with pytest.raises(RevisionNotFoundError):
        hf_hub_download(f"acme/{name}", "data.bin", revision="v9", endpoint=hub)
    with pytest.raises(RevisionNotFoundError):
        snapshot_download(f"acme/{name}", revision="v9", endpoint=hub)
    with pytest.raises(EntryNotFoundError):
        hf_hub_download(f"acme/{name}", "none.bin", endpoint=hub)
    with pytest.raises(BadRequestError, match="128 letters"):
        HfApi(endpoint=hub).model_info(f"acme/{name}", revision="a b")


@pytest.mark.parametrize("path", ["../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "sub/../../../x", ""])
def test_no_path_leaves_the_bundle(hub: str, put: Put, tmp_path: Path, path: str) -> None:
    """A name from outside would read a file of the host."""
    name = new_name()
    put(name, make_source(tmp_path / "source", seed=5))

    answer = httpx.get(f"{hub}/{name}/resolve/main/{path}", trust_env=False, timeout=60.0)

    assert 404 == answer.status_code
    assert "passwd:" not in answer.text


def test_heads_ranges_and_tags_are_those_of_the_hub(hub: str, put: Put, tmp_path: Path) -> None:
    """If this fails, the library cannot resume, or keeps an old file for a new one."""
    source, name = make_source(tmp_path / "source", seed=6), new_name()
    put(name, source)
    url, data = f"{hub}/{name}/resolve/main/data.bin", (source / "data.bin").read_bytes()

    with httpx.Client(trust_env=False, timeout=60.0) as http:
        head, part = http.head(url), http.get(url, headers={"Range": "bytes=100-199"})
        same = http.get(url, headers={"If-None-Match": head.headers["etag"]})
        away, posted = http.get(f"{url}x"), http.post(url, headers={"X-Torrentdist": "1"})
        foreign = http.get(url, headers={"Host": "evil.example"})

    assert (200, "200000", "200000") == (
        head.status_code,
        head.headers["content-length"],
        head.headers["x-linked-size"],
    )
    assert head.headers["etag"] == head.headers["x-linked-etag"] == part.headers["etag"]
    assert 40 == len(head.headers["x-repo-commit"])
    assert (206, data[100:200], "bytes 100-199/200000") == (
        part.status_code,
        part.content,
        part.headers["content-range"],
    )
    assert (304, 405, 403) == (same.status_code, posted.status_code, foreign.status_code)
    assert (404, "EntryNotFound") == (away.status_code, away.headers["x-error-code"])
    assert head.headers["x-repo-commit"] == away.headers["x-repo-commit"] == same.headers["x-repo-commit"]


def test_a_file_streams_while_its_bundle_arrives(tmp_path: Path) -> None:
    """If this fails, a small configuration waits for gigabytes of weights."""
    with running_cluster({"swarm": {"upload_limit": LIMIT}}, work=tmp_path / "slow", masters=1, supervisors=1) as slow:
        source = tmp_path / "source"
        source.mkdir()
        (source / "weights.bin").write_bytes(os.urandom(8 * LIMIT))
        (source / "config.json").write_text("{}")
        digest = slow.upload(source, "acme--slow", replicas=1)["digest"]
        hub = f"{slow.url('supervisor-1')}/hub"
        whole = threading.Thread(target=snapshot_download, args=("acme/slow",), kwargs={"endpoint": hub})
        whole.start()

        small = hf_hub_download("acme/slow", "config.json", endpoint=hub)

        assert "{}" == Path(small).read_text()
        assert not slow.published("supervisor-1", digest)
        whole.join(patient(120.0))
        until(lambda: slow.published("supervisor-1", digest), "published")
        assert picture(source)["weights.bin"][1] == (Path(small).parent / "weights.bin").read_bytes()


def test_the_session_of_the_page_works(cluster: Cluster, hub: str, put: Put, tmp_path: Path) -> None:
    """If this fails, a reader who copies an example of the page gets something else."""
    for name, layers in (("tiny", 12), ("tiny-2", 24)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(f'{{"layers": {layers}}}')
        (tmp_path / name / "model.safetensors").write_bytes(os.urandom(50_000))
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "words.csv").write_text("word,count\none,1\n")
    put("acme--tiny", tmp_path / "tiny")
    put("datasets--acme--words", tmp_path / "words")
    (tmp_path / "torrentdist.toml").write_bytes((cluster.dir / "client.toml").read_bytes())
    session = "\n".join(line for line in PAGE.read_text().splitlines() if not line.startswith("```"))
    (tmp_path / "page.txt").write_text(session)

    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TORRENTDIST_", "HF_"))}
    run = subprocess.run(
        [sys.executable, "-m", "doctest", "page.txt"],
        env={**kept, "HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "127.0.0.1"},
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    Client(config_file=cluster.dir / "client.toml").remove("acme--tiny--v2")

    assert (0, "") == (run.returncode, run.stdout), run.stderr
