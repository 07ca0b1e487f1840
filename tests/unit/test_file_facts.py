"""Facts about files of bundles: computed once, kept on disk, and never more than a shortcut."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from torrentdist.bundle.metafile import FileEntry
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.supervisor.bundles.host_content import HostContent
from torrentdist.supervisor.repositories import file_facts
from torrentdist.supervisor.repositories.file_facts import AT_ONCE, FileFacts, hashed_by

pytestmark = pytest.mark.anyio
DATA = b"some content" * 10_000


class Counted:
    """A computation that counts how often it is made."""

    def __init__(self) -> None:
        self.count = 0
        self.begun = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, content: HostContent, file: FileEntry) -> str:
        self.count += 1
        self.begun.set()
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return f"of {file.path}"


@pytest.fixture
def content(tmp_path: Path) -> HostContent:
    """A published bundle of one file."""
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "file").write_bytes(DATA)

    async def checked(_: str) -> bool:
        return True

    return HostContent(
        meta=make_metafile(tmp_path / "content"),
        directory=tmp_path / "content",
        published=lambda: True,
        failure=lambda: None,
        pieces=lambda: None,
        checked=checked,
    )


def facts_in(tmp_path: Path) -> FileFacts:
    return FileFacts(tmp_path / "facts", lambda digest: False)


async def test_many_who_ask_cause_one_computation(tmp_path: Path, content: HostContent) -> None:
    """If this fails, 50 clients that ask at once read a large wheel 50 times."""
    compute, (file,) = Counted(), content.meta.files
    facts = facts_in(tmp_path)

    found = await asyncio.gather(*(facts.get(content, file, "kind", compute) for _ in range(50)))

    assert {"of file"} == set(found)
    assert "of file" == await facts_in(tmp_path).get(content, file, "kind", compute)  # as after a restart
    assert 1 == compute.count


async def test_a_client_that_leaves_ends_nothing_for_others(tmp_path: Path, content: HostContent) -> None:
    """If this fails, one client's timeout is every client's error."""
    compute, (file,) = Counted(), content.meta.files
    facts = facts_in(tmp_path)
    leaving = asyncio.create_task(facts.get(content, file, "kind", compute))
    staying = asyncio.create_task(facts.get(content, file, "kind", compute))
    await compute.begun.wait()

    leaving.cancel()

    assert "of file" == await staying


async def test_a_bundle_that_does_not_arrive_delays_no_other(tmp_path: Path, content: HostContent) -> None:
    """If this fails, one stalled bundle stops the indexes of all."""
    (file,) = content.meta.files
    arriving = replace(content, meta=replace(content.meta, digest=Digest("ab" * 32)))
    facts = facts_in(tmp_path)

    async def wait(_: HostContent, __: FileEntry) -> str:
        await asyncio.Event().wait()
        return ""

    stalled = [asyncio.create_task(facts.get(arriving, file, f"kind-{n}", wait)) for n in range(2 * AT_ONCE)]
    try:
        async with asyncio.timeout(10):
            found = await facts.get(content, file, "kind", Counted())
    finally:
        await facts.close()

    assert "of file" == found
    assert all(task.done() for task in await done_of(stalled))


async def test_what_is_asked_when_all_is_closed_waits_for_nothing(tmp_path: Path, content: HostContent) -> None:
    """If this fails, a request that comes as its daemon ends begins a computation that nobody
    ends."""
    (file,) = content.meta.files
    facts = facts_in(tmp_path)
    await facts.close()

    with pytest.raises(TorrentdistError, match="shutting down"):
        await facts.get(content, file, "kind", Counted())


async def done_of(tasks: list[asyncio.Task[str]]) -> list[asyncio.Task[str]]:
    done, _ = await asyncio.wait(tasks, timeout=10)
    for task in done:
        if not task.cancelled():
            task.exception()  # it may have come when all was closed
    return tasks


async def test_a_failure_is_not_remembered(tmp_path: Path, content: HostContent) -> None:
    """If this fails, an outage during the first request breaks an index until the restart."""
    compute, (file,) = Counted(), content.meta.files
    facts, compute.error = facts_in(tmp_path), TorrentdistError("bundle_lost", id="b")

    with pytest.raises(TorrentdistError):
        await facts.get(content, file, "kind", compute)
    compute.error = None

    assert "of file" == await facts.get(content, file, "kind", compute)


async def test_damage_on_disk_is_computed_again(tmp_path: Path, content: HostContent) -> None:
    """E5: if this fails, a line that a crash has cut stops the index."""
    compute, (file,) = Counted(), content.meta.files
    await facts_in(tmp_path).get(content, file, "one", compute)
    (path,) = (tmp_path / "facts").iterdir()
    path.write_bytes(path.read_bytes()[:-9] + b"\xff\x00{")

    await facts_in(tmp_path).get(content, file, "one", compute)
    await facts_in(tmp_path).get(content, file, "one", compute)

    assert 2 == compute.count


@pytest.mark.parametrize(
    "line", [b'{"root":"\xff","kind":"one","value":"v"}', b'{"root":"\\ud800', b'{"x":' + b"[" * 100_000, b"7"]
)
async def test_a_line_of_any_bytes_does_not_count(tmp_path: Path, content: HostContent, line: bytes) -> None:
    """E5: if this fails, a damaged byte stops the index of a bundle for good."""
    compute, (file,) = Counted(), content.meta.files
    await facts_in(tmp_path).get(content, file, "one", compute)
    (path,) = (tmp_path / "facts").iterdir()
    path.write_bytes(line + b"\n" + path.read_bytes())

    assert "of file" == await facts_in(tmp_path).get(content, file, "one", compute)
    assert 1 == compute.count


async def test_facts_that_could_not_be_read_are_read_again(tmp_path: Path, content: HostContent) -> None:
    """If this fails, one failure stops the index of a bundle until the restart."""
    compute, (file,), fails = Counted(), content.meta.files, [True]

    def is_here(_: Digest) -> bool:
        if fails:
            raise MemoryError
        return True

    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / f"{'ab' * 32}.jsonl").write_text("")
    facts = FileFacts(tmp_path / "facts", is_here)
    with pytest.raises(MemoryError):
        await facts.get(content, file, "kind", compute)
    fails.clear()

    assert "of file" == await facts.get(content, file, "kind", compute)


async def test_a_file_of_facts_stays_readable(
    tmp_path: Path, content: HostContent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, the facts of a bundle of very many files are never read again, and are written
    until the disk is full."""
    monkeypatch.setattr(file_facts, "MOST_BYTES", 2000)
    compute, (file,) = Counted(), content.meta.files
    for _ in range(3):  # as after restarts
        facts = facts_in(tmp_path)
        for number in range(50):
            await facts.get(content, file, f"kind-{number}", compute)
    (path,) = (tmp_path / "facts").iterdir()

    assert path.stat().st_size <= 2000
    assert 50 < compute.count < 150


async def test_what_cannot_be_kept_is_answered(tmp_path: Path, content: HostContent) -> None:
    """E4: if this fails, a full disk stops installations."""
    compute, (file,) = Counted(), content.meta.files
    (tmp_path / "facts").write_text("no directory")

    assert "of file" == await facts_in(tmp_path).get(content, file, "kind", compute)


async def test_facts_about_bundles_that_left_go(tmp_path: Path, content: HostContent) -> None:
    """If this fails, the files of facts grow with every bundle that was ever here."""
    compute, (file,) = Counted(), content.meta.files
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / f"{'ab' * 32}.jsonl").write_text("")

    await facts_in(tmp_path).get(content, file, "kind", compute)

    assert [f"{content.meta.digest}.jsonl"] == [path.name for path in (tmp_path / "facts").iterdir()]


async def test_hashes_are_those_of_the_content(tmp_path: Path, content: HostContent) -> None:
    """If this fails, every client refuses every file."""
    (file,) = content.meta.files

    for kind in ("md5", "sha1", "sha256"):
        assert hashlib.new(kind, DATA).hexdigest() == await facts_in(tmp_path).get(content, file, kind, hashed_by(kind))
