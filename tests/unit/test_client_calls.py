"""The client's calls one by one, its token and its memory, against a master in the same process."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted_http import ScriptedHttp

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.chunked_upload import MAX_STEPS_BACK, read_chunk, send_content
from torrentdist.client.bundles.upload import default_id
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.http.http_values import Answer, AnswerTimeout, Patience, SentRequest
from torrentdist.model.configuration.config import ClientConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import bundle_id, digest

ETL = bundle_id("etl-1")
DIGEST = digest("ab" * 32)
URL = "http://127.0.0.1:7060"
Script = Callable[[httpx.Request], httpx.Response]


def view(replicas: int = 1) -> dict[str, Any]:
    return {
        "id": "etl-1", "digest": DIGEST, "size": 5, "files": 1, "replicas": replicas, "min_replicas": 1,
        "holders": ["m1"], "created_at": 1.0, "state": "available", "pinned": False,
    }  # fmt: skip


def refusal(code: str, extra: dict[str, Any] | None = None, **fields: Any) -> httpx.Response:
    error = TorrentdistError(code, extra=extra, **fields)
    return httpx.Response(error.http_status, json=error.to_wire())


def talk(script: Script, work: Callable[[MasterClient], Coroutine[Any, Any, Any]], token_file: str = "") -> Any:
    """Runs `work` with a client whose master answers by `script`, and returns its result."""

    async def run() -> Any:
        config = ClientConfig(masters=[URL], token_file=token_file, deadline_secs=5.0)
        async with MasterClient(config, open_http=lambda access: ScriptedHttp(script, access)) as client:
            return await work(client)

    return asyncio.run(run())


def test_wait_replicas_reports_each_and_returns_at_the_number() -> None:
    """A7: if this failed, an upload would return before its replicas are there, or not return when
    they are."""
    there = iter([0, 1, 2, 3])
    seen: list[int] = []
    last = talk(
        lambda request: httpx.Response(200, json=view(next(there))),
        lambda client: client.wait_replicas(ETL, 3, 20.0, lambda news: seen.append(news.replicas)),
    )

    assert seen == [0, 1, 2, 3]
    assert last.replicas == 3


def test_wait_replicas_asks_for_more_than_was_seen() -> None:
    """If this failed, each upload would ask once for what its opening has told it."""
    asked: list[str] = []

    def script(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params["replicas"])
        return httpx.Response(200, json=view(len(asked) + 1))

    talk(script, lambda client: client.wait_replicas(ETL, 3, 20.0, seen=1))

    assert ["2", "3"] == asked


def test_wait_replicas_ends_with_what_there_is() -> None:
    """A7: if this failed, an upload that gets too few replicas would wait past its timeout, or fail
    without saying so."""
    last = talk(lambda request: httpx.Response(200, json=view(1)), lambda client: client.wait_replicas(ETL, 2, 0.3))

    assert last.replicas == 1


def test_a_metafile_must_be_the_one_promised(tmp_path: Path) -> None:
    """If this failed, a master with a wrong file would have its clients fetch other content."""
    (tmp_path / "file").write_text("content")
    meta = make_metafile(tmp_path / "file")
    right = talk(
        lambda request: httpx.Response(200, content=meta.raw, headers={"X-Digest": meta.digest}),
        lambda client: client.metafile(ETL),
    )
    with pytest.raises(TorrentdistError) as caught:
        talk(
            lambda request: httpx.Response(200, content=meta.raw, headers={"X-Digest": DIGEST}),
            lambda client: client.metafile(ETL),
        )

    assert right == meta
    assert (caught.value.code, caught.value.exit_code) == ("corrupt", 7)


def test_after_a_damaged_metafile_the_next_master_is_asked(tmp_path: Path) -> None:
    """If this failed, one bad disk among the masters would fail the downloads of all clients that
    ask its master."""
    (tmp_path / "file").write_text("content")
    meta = make_metafile(tmp_path / "file")
    raws = iter([meta.raw[:-10], meta.raw])
    got = talk(
        lambda request: httpx.Response(200, content=next(raws), headers={"X-Digest": meta.digest}),
        lambda client: client.metafile(ETL),
    )

    assert got == meta


class HttpIntake:
    """The leader's side of an upload over HTTP. At `fails_over_at` another leader takes over, which
    has no bytes."""

    def __init__(self, size: int, fails_over_at: int) -> None:
        self.size = size
        self.fails_over_at = fails_over_at
        self.data = b""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/finish"):
            if len(self.data) < self.size:
                return refusal("invalid_request", {"offset": len(self.data)}, detail="not all there")
            return httpx.Response(200, json=view())
        if request.method == "GET":
            return httpx.Response(200, json={"offset": len(self.data)})
        if 0 < self.fails_over_at <= len(self.data):
            self.fails_over_at, self.data = 0, b""
        if int(request.url.params["offset"]) != len(self.data):
            return refusal("invalid_request", {"offset": len(self.data)}, detail="wrong offset")
        self.data += request.content
        return httpx.Response(200, json={"offset": len(self.data)})


@pytest.mark.parametrize("fails_over_at", [0, 4 * 1024 * 1024])
def test_an_upload_over_http_survives_a_failover(tmp_path: Path, fails_over_at: int) -> None:
    """B8: if this failed, an upload would fail with its leader, or arrive with a hole."""
    top = tmp_path / "bundle"
    top.mkdir()
    for name, size in (("a", 5_000_000), ("b", 0), ("c", 3), ("d", 5_000_000)):
        (top / name).write_bytes(hashlib.shake_128(name.encode()).digest(size))
    meta = make_metafile(top)
    intake = HttpIntake(meta.size, fails_over_at)
    talk(intake, lambda client: send_content(client, meta, top))

    assert intake.data == b"".join((top / name).read_bytes() for name in "abcd")


class KnowingIntake:
    """A leader that has the first bytes and the last ones, and needs a moment to find out."""

    def __init__(self, size: int, lacks: tuple[int, int]) -> None:
        self.size = size
        self.start, self.end = lacks
        self.asked = 0
        self.data = b""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/finish"):
            return httpx.Response(200, json=view())
        if request.method == "GET":
            self.asked += 1
            if self.asked == 1:
                return httpx.Response(200, json={"offset": 0, "until": 0})
            return httpx.Response(200, json={"offset": self.start, "until": self.end})
        assert int(request.url.params["offset"]) == self.start
        self.data += request.content
        self.start += len(request.content)
        if self.start < self.end:
            return httpx.Response(200, json={"offset": self.start, "until": self.end})
        return httpx.Response(200, json={"offset": self.size, "until": self.size})


def test_only_what_the_leader_lacks_is_sent(tmp_path: Path) -> None:
    """An upload from behind a firewall would send everything for one changed file."""
    path = tmp_path / "file"
    content = hashlib.shake_128(b"content").digest(9_000_000)
    path.write_bytes(content)
    intake = KnowingIntake(len(content), (1_000_000, 6_500_000))
    talk(intake, lambda client: send_content(client, make_metafile(path), path))

    assert intake.data == content[1_000_000:6_500_000]


def test_an_upload_without_progress_ends(tmp_path: Path) -> None:
    """A command would send the same bytes to a leader that forgets them, until its user looks."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    sent: list[bytes] = []

    def forgets(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            sent.append(request.content)
        return httpx.Response(200, json={"offset": 0})

    with pytest.raises(TorrentdistError, match="makes no progress at 0"):
        talk(forgets, lambda client: send_content(client, make_metafile(path), path))

    assert [b"x" * 100] * (MAX_STEPS_BACK + 1) == sent


def test_a_leader_that_never_has_all_ends_an_upload(tmp_path: Path) -> None:
    """A command would finish the same upload again and again."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    told: list[int] = []

    def lacks(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/finish"):
            return refusal("invalid_request", {"offset": 100}, detail="something is missing")
        return httpx.Response(200, json={"offset": 100})

    with pytest.raises(TorrentdistError, match="something is missing"):
        talk(lacks, lambda client: send_content(client, make_metafile(path), path, told.append))

    assert [100] * (MAX_STEPS_BACK + 1) == told


def test_another_refusal_of_the_end_is_told_at_once(tmp_path: Path) -> None:
    """Somebody whose token has just ended would wait for a hundred attempts."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    answers = [httpx.Response(200, json={"offset": 1}), refusal("unauthorized")]

    with pytest.raises(TorrentdistError) as caught:
        talk(lambda _: answers.pop(0), lambda client: send_content(client, make_metafile(path), path))

    assert "unauthorized" == caught.value.code


def test_a_file_that_shrank_ends_an_upload_over_http(tmp_path: Path) -> None:
    """If this failed, the leader would be sent bytes that are not in the bundle, or wait for
    ever."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    meta = make_metafile(path)
    path.write_bytes(b"x" * 50)
    with pytest.raises(TorrentdistError) as caught:
        read_chunk(meta, path, 0)

    assert caught.value.code == "changed_while_reading"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("etl", "etl-abababababab"),
        (".hidden dir", "hidden-dir-abababababab"),
        ("größe_1.0", "gr-e_1.0-abababababab"),
        ("日本", "bundle-abababababab"),
        ("x" * 200, "x" * 115 + "-abababababab"),
    ],
)
def test_the_default_id_is_valid(tmp_path: Path, name: str, expected: str) -> None:
    """If this failed, an upload without --id would be refused because of its directory's name."""
    chosen = default_id(tmp_path / name, DIGEST)

    assert chosen == expected
    assert bundle_id(chosen) == expected


def test_the_token_is_sent(tmp_path: Path) -> None:
    """If this failed, a client could not talk to a protected cluster."""
    token_file = tmp_path / "token"
    token_file.write_text("s3cret\n")
    token_file.chmod(0o600)
    sent: list[str] = []

    def script(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["authorization"])
        return httpx.Response(200, json=view())

    talk(script, lambda client: client.bundle(ETL), str(token_file))

    assert sent == ["Bearer s3cret"]


@pytest.mark.parametrize(
    ("content", "mode"), [(None, 0o600), ("", 0o600), ("two\nlines", 0o600), ("s3cret", 0o644), ("s3cret", 0o640)]
)
def test_an_unusable_token_file_is_named(tmp_path: Path, content: str | None, mode: int) -> None:
    """If this failed, a wrong path would look like a refusal by the master, and a token that
    everyone can read would go unnoticed."""
    token_file = tmp_path / "token"
    if content is not None:
        token_file.write_text(content)
        token_file.chmod(mode)
    with pytest.raises(TorrentdistError) as caught:
        MasterClient(ClientConfig(masters=[URL], token_file=str(token_file)))

    assert (caught.value.code, caught.value.exit_code) == ("secret_invalid", 2)
    assert str(token_file) in caught.value.message


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"masters": 7}', b"\xff\xfe", b'{"masters": ["ftp://x", "nonsense"]}']
)
def test_a_damaged_memory_changes_nothing(content: bytes) -> None:
    """B5: if this failed, a file that users do not know of would break every command."""
    talk(lambda request: httpx.Response(200, json=view()), lambda client: client.pin(ETL))
    (remembered,) = Path(os.environ["XDG_CACHE_HOME"], "torrentdist").iterdir()
    remembered.write_bytes(content)
    again = talk(lambda request: httpx.Response(200, json=view()), lambda client: client.pin(ETL))

    assert again.id == ETL


def test_an_unwritable_memory_changes_nothing() -> None:
    """B5: if this failed, a home directory that is full or read-only would break every command."""
    Path(os.environ["XDG_CACHE_HOME"]).write_text("a file where the directory should be")
    pinned = talk(lambda request: httpx.Response(200, json=view()), lambda client: client.pin(ETL))

    assert pinned.id == ETL


class SilentMaster(ScriptedHttp):
    """Answers nothing for as long as a client may wait, and then does. Notes how long that is."""

    def __init__(self) -> None:
        super().__init__(lambda request: httpx.Response(200, json=view()))
        self.waits: list[float] = []

    async def exchange(self, asked: SentRequest, patience: Patience) -> Answer:
        self.waits.append(patience.silence_secs)
        if len(self.waits) < 3:
            raise AnswerTimeout
        return await super().exchange(asked, patience)


@pytest.mark.parametrize(("size", "waits"), [(0, [3.0, 0.5, 1.0]), (4 * 1024 * 1024, [4.0, 8.0, 8.0])])
def test_a_master_has_time_to_read_a_large_metafile(size: int, waits: list[float]) -> None:
    """A leader that reads the metafile of many files would be asked again and again, and read it
    each time, until the upload fails."""
    master = SilentMaster()

    async def run() -> None:
        config = ClientConfig(masters=[URL], deadline_secs=60.0)
        async with MasterClient(config, open_http=lambda access: master) as client:
            await client.open_upload(ETL, bytes(size), 1)

    asyncio.run(run())

    assert pytest.approx(waits, abs=0.5) == master.waits
