"""Decisions of an upload or a download from the record and the metafile alone, before anything
starts."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted_http import ScriptedHttp

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.download import download
from torrentdist.client.bundles.known_bundle import record_and_metafile
from torrentdist.client.bundles.upload import UploadWanted, upload
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.http.http_values import Answer, Patience, SentRequest
from torrentdist.model.configuration.config import ClientConfig, Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.transfer_messages import Sources
from torrentdist.testing.sample_trees import write_tree

ID = BundleId("etl-1")
CONFIG = Config(client=ClientConfig(masters=["http://127.0.0.1:7060"], supervisor="", deadline_secs=0.1))


def talk(
    meta: Metafile, work: Callable[[MasterClient], Coroutine[Any, Any, Any]], *, lost: bool = False, **record: Any
) -> tuple[Any, list[str]]:
    """Runs `work` with a master that has `meta` under the id. Returns its result and its requests.
    `lost`: the master has the record alone."""
    view = {
        "id": ID, "digest": meta.digest, "size": meta.size, "files": 1, "replicas": 2, "min_replicas": 2,
        "holders": ["m1", "m2"], "created_at": 1.0, "state": "available", "pinned": False, **record,
    }  # fmt: skip
    requests: list[str] = []

    def script(request: httpx.Request) -> httpx.Response:
        requests.append(f"{request.method} {request.url.path}")
        if request.url.path.endswith("/metafile") and lost:
            error = TorrentdistError("bundle_unavailable", id=ID, detail="no master has it")
            return httpx.Response(error.http_status, json=error.to_wire())
        if request.url.path.endswith("/metafile"):
            return httpx.Response(200, content=meta.raw, headers={"X-Digest": meta.digest})
        return httpx.Response(200, json=view)

    async def run() -> Any:
        async with MasterClient(CONFIG.client, open_http=lambda access: ScriptedHttp(script, access)) as client:
            return await work(client)

    return asyncio.run(run()), requests


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 50_000)
    return path


def test_an_upload_of_what_is_there_moves_nothing(file: Path) -> None:
    """If this failed, the same upload twice would cost twice, or be refused."""
    result, requests = talk(make_metafile(file), lambda client: upload(client, file, ID, UploadWanted(min_replicas=2)))

    assert sorted(requests) == [f"GET /v1/bundles/{ID}", "POST /v1/reuse"]
    assert (result.achieved, result.replicas, result.min_replicas) == (True, 2, 2)


@pytest.mark.case("N3")
def test_a_bundle_without_packs_is_known_also_when_its_metafile_is_lost(tmp_path: Path) -> None:
    """If this failed, nobody could bring back a lost bundle of the last release: its own directory
    would be a conflict."""
    write_tree(tmp_path / "env", {f"f{number:03}": b"%d" % number for number in range(120)})
    plain = make_metafile(tmp_path / "env", packed=False)
    wanted = UploadWanted(min_replicas=2)
    result, _ = talk(plain, lambda client: upload(client, tmp_path / "env", ID, wanted), lost=True)

    assert (plain.digest, True) == (result.digest, result.achieved)


def test_other_content_under_the_id_is_a_conflict(file: Path, tmp_path: Path) -> None:
    """If this failed, an id could mean two things."""
    (tmp_path / "other").write_text("other")
    with pytest.raises(TorrentdistError) as caught:
        talk(make_metafile(tmp_path / "other"), lambda client: upload(client, file, ID))

    assert (caught.value.code, caught.value.exit_code) == ("conflict", 9)


def test_a_metafile_of_another_record_is_no_proof_that_the_content_is_there(file: Path) -> None:
    """If this failed, an upload would report success for content that the cluster does not have,
    because the bundle was replaced between two of its questions."""
    with pytest.raises(TorrentdistError) as caught:
        talk(make_metafile(file), lambda client: upload(client, file, ID), digest="ab" * 32)

    assert ("conflict", "ab" * 32) == (caught.value.code, caught.value.fields["existing"])


def test_a_full_disk_is_said_before_anything_moves(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this failed, a download that cannot fit would fill the disk first."""
    usage = shutil.disk_usage(file.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(TorrentdistError) as caught:
        talk(make_metafile(file), lambda client: download(client, CONFIG, ID, file.parent / "dest"))

    assert (caught.value.code, caught.value.exit_code) == ("disk_full", 8)
    assert not (file.parent / "dest").exists()


def test_a_download_of_what_is_there_moves_nothing(file: Path) -> None:
    """If this failed, a command that is run again would fetch again, or fail."""
    result, requests = talk(make_metafile(file), lambda client: download(client, CONFIG, ID, file))

    assert result.sources == Sources(local=50_000)
    assert sorted(requests) == [f"GET /v1/bundles/{ID}", f"GET /v1/bundles/{ID}/metafile"]


def test_a_record_of_another_digest_is_corrupt(file: Path) -> None:
    """If this failed, a master that gives a wrong metafile would have its content taken for the
    bundle."""
    with pytest.raises(TorrentdistError) as caught:
        talk(make_metafile(file), lambda client: download(client, CONFIG, ID, file.parent / "dest"), digest="ab" * 32)

    assert (caught.value.code, caught.value.exit_code) == ("corrupt", 7)


def test_a_lost_bundle_is_said_to_be_lost(file: Path) -> None:
    """A17: if this failed, a download of a lost bundle would wait for its deadline."""
    with pytest.raises(TorrentdistError) as caught:
        talk(make_metafile(file), lambda client: download(client, CONFIG, ID, file.parent / "dest"), state="lost")

    assert (caught.value.code, caught.value.exit_code) == ("bundle_lost", 5)


async def _refused_while_the_metafile_comes() -> tuple[str, list[str]]:
    """Returns the error of a bundle without a record, and the requests that then still run."""
    running, asked_for_both = list[str](), asyncio.Event()

    class SlowMetafiles(ScriptedHttp):
        async def exchange(self, asked: SentRequest, patience: Patience) -> Answer:
            if not asked.url.endswith("/metafile"):
                await asked_for_both.wait()
                return await super().exchange(asked, patience)
            running.append(asked.url)
            asked_for_both.set()
            try:
                await asyncio.Event().wait()
                raise AssertionError
            finally:
                running.remove(asked.url)

    unknown = TorrentdistError("bundle_not_found", id=ID)
    script = lambda _: httpx.Response(unknown.http_status, json=unknown.to_wire())  # noqa: E731
    async with MasterClient(CONFIG.client, open_http=lambda access: SlowMetafiles(script, access)) as client:
        with pytest.raises(TorrentdistError) as caught:
            await record_and_metafile(client, ID)
        return caught.value.code, list(running)


def test_nothing_more_is_fetched_of_a_bundle_that_is_not_there() -> None:
    """A program that goes on after the error would find tasks of ours in its event loop, and their
    failures in its log."""
    assert ("bundle_not_found", []) == asyncio.run(_refused_while_the_metafile_comes())
