"""An update makes the metafile of a new version from the old one, and brings the changed files."""

import asyncio
import copy
import gzip
import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import pytest
from bencoded_parts import changed
from scripted_http import ScriptedHttp
from zookeeper_fixtures import eventually

from torrentdist.bundle import bencode
from torrentdist.bundle.file_tree import FileEntry
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.packs import pack_update
from torrentdist.bundle.packs.pack_files import read_pack, write_files
from torrentdist.bundle.packs.pack_update import apply_update, base_of, make_update
from torrentdist.bundle.reuse.store_reuse import StoreReuse
from torrentdist.bundle.store.store import Store
from torrentdist.host import received_updates
from torrentdist.host.host_store import HostStore
from torrentdist.host.master_links import MasterLinks
from torrentdist.host.received_updates import ReceivedUpdates
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.headers import DIGEST, UPDATE_TYPE
from torrentdist.testing.sample_trees import some_bytes, write_tree

OLD = {f"d{number % 9}/f{number:03}": some_bytes(1500 + number, number) for number in range(600)}
GONE = ("d2/f002", "d8/f008")
NEW = {path: data for path, data in OLD.items() if path not in GONE} | {
    "d4/f004": b"patched",
    "d7/f301": some_bytes(20_000, 1),
    "d5/copy": OLD["d0/f009"],
    "d3/empty": b"",
    "new/dir/f": b"f",
}
UNKNOWN = {b"patched", NEW["d7/f301"], b"f"}
"""What the old version holds under no path."""


class Versions:
    def __init__(self, top: Path, new: dict[str, bytes] = NEW) -> None:
        self.top = self.work = top
        write_tree(top / "old", OLD)
        write_tree(top / "new", new)
        (top / "new/d1/f001").chmod(0o755)
        (top / "new/link").symlink_to("d1/f001")
        (top / "new/void").mkdir()
        self.old, self.new = make_metafile(top / "old"), make_metafile(top / "new")

    def read(self, files: Sequence[FileEntry]) -> bytes:
        return read_pack(self.top / "new", files)

    def update(self) -> bytes:
        made = make_update(self.old, self.new, self.read)
        assert made is not None
        return made

    def store(self) -> Store:
        """Returns a store that has the old version."""
        store = Store.open(self.work / "data")
        publish(store, self.old, self.top / "old")
        return store


def publish(store: Store, meta: Metafile, source: Path) -> None:
    home = store.begin(meta)
    write_tree(home / "content", {file.path: (source / file.path).read_bytes() for file in meta.files})
    store.publish(meta.digest)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Versions:
    """The two versions. Nothing writes into them."""
    return Versions(tmp_path_factory.mktemp("versions"))


@pytest.fixture
def versions(sources: Versions, tmp_path: Path) -> Versions:
    """The same versions for each test, with stores of its own."""
    own = copy.copy(sources)
    own.work = tmp_path
    return own


@pytest.mark.case("H1")
def test_an_update_leads_to_the_metafile_and_the_new_files(versions: Versions) -> None:
    """A host would hold another metafile than the masters, or lack a file."""
    update = versions.update()
    got = apply_update(update, versions.old, versions.new.digest)

    assert versions.new.raw == got.meta.raw
    assert UNKNOWN == set(got.files.values())
    assert versions.old.digest == base_of(update)
    assert len(update) < 0.1 * versions.new.size


def test_a_version_that_only_lacks_files_has_an_update(tmp_path: Path) -> None:
    """The host would have to fetch the whole metafile."""
    versions = Versions(tmp_path, {path: data for path, data in OLD.items() if path not in GONE})
    got = apply_update(versions.update(), versions.old, versions.new.digest)

    assert (versions.new.raw, {}) == (got.meta.raw, got.files)


def test_files_that_fill_their_pieces_are_left_to_the_swarm(tmp_path: Path) -> None:
    """Masters would send a whole new directory to each host instead of spreading it."""
    changed = {path: some_bytes(1500, 7000 + number) for number, path in enumerate(OLD) if path.startswith("d5")}
    versions = Versions(tmp_path, OLD | changed)
    got = apply_update(versions.update(), versions.old, versions.new.digest)

    assert (versions.new.raw, {}) == (got.meta.raw, got.files)


def test_more_than_an_update_may_hold_is_left_to_the_swarm(versions: Versions, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update would take the memory of the host that receives it."""
    monkeypatch.setattr(pack_update, "MOST_BYTES", sum(map(len, UNKNOWN)) - 1)

    assert {} == apply_update(versions.update(), versions.old, versions.new.digest).files


def test_an_update_with_more_than_it_may_hold_is_refused(versions: Versions, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that sends it would take the memory of all hosts after it."""
    update = versions.update()
    monkeypatch.setattr(pack_update, "MOST_BYTES", sum(map(len, UNKNOWN)) - 1)

    with pytest.raises(TorrentdistError, match="20008 bytes of files"):
        apply_update(update, versions.old, versions.new.digest)


def test_other_content_has_no_update(tmp_path: Path) -> None:
    """The update would be as large as the metafile, and be made for nothing."""
    versions = Versions(tmp_path, {path: some_bytes(900, 9000 + number) for number, path in enumerate(OLD)})

    assert make_update(versions.old, versions.new, versions.read) is None


WRONG: dict[str, Callable[[bytes], bytes]] = {
    "a cut": lambda raw: raw[:-5],
    "no dictionary": lambda raw: b"5:wrong",
    "a file with another byte": changed(b"files", lambda part: part[:-1] + bytes([part[-1] ^ 1])),
    "files that are too short": changed(b"files", lambda part: bencode.encode(b"patch")),
    "another file gone": changed(b"gone", lambda part: bencode.encode(bytes(4))),
    "a number that is cut": changed(b"gone", lambda part: bencode.encode(bytes(3))),
    "packs of other files": changed(b"packs", lambda part: bencode.encode(bytes(4))),
    "a list instead of files": changed(b"files", lambda part: b"le"),
    "new files without columns": changed(b"new", lambda part: b"d5:wrong0:e"),
    "another info dictionary": changed(
        b"top", lambda part: part.replace(b"12:piece lengthi32768e", b"12:piece lengthi65536e")
    ),
    "no info dictionary": changed(b"top", lambda part: b"de"),
}


@pytest.mark.case("E5")
@pytest.mark.parametrize("damage", list(WRONG))
def test_a_wrong_update_is_refused(versions: Versions, damage: str) -> None:
    """A rogue host would put content of its choice under the digest of a bundle, or end the fetch
    with a bug."""
    with pytest.raises(TorrentdistError) as error:
        apply_update(WRONG[damage](versions.update()), versions.old, versions.new.digest)

    assert error.value.code in ("corrupt", "invalid_metafile")


@pytest.mark.case("E5")
def test_an_update_begins_with_a_digest_and_no_path(versions: Versions) -> None:
    """A rogue host would choose which file of this host is read as a metafile."""
    raw = changed(b"base", lambda part: bencode.encode(b"../../x"))(versions.update())

    with pytest.raises(TorrentdistError) as error:
        base_of(raw)

    assert error.value.code == "invalid_digest"


@pytest.mark.case("H1")
def test_what_an_update_brought_completes_the_packs(versions: Versions) -> None:
    """The host would fetch the pieces around each changed file after all."""
    store = versions.store()
    update = apply_update(versions.update(), versions.old, versions.new.digest)
    home = store.begin(update.meta)
    reuse = StoreReuse(store)
    reuse.may_link = True
    filling = reuse.fill(update.meta, lambda: True, sent=update.files)
    write_files(update.meta, home)
    store.publish(update.meta.digest)
    damage = store.verify(update.meta.digest)
    store.close()

    assert filling.have is not None
    assert all(filling.have)
    assert sum(map(len, UNKNOWN)) == filling.sent
    assert [] == damage


def test_a_master_makes_an_update_of_what_it_has(versions: Versions) -> None:
    """A master would send hosts what its disk has damaged, or fail instead of sending the
    metafile."""

    async def made(spoil: str | None) -> bytes:
        store = Store.open(versions.work / f"master-{str(spoil).replace('/', '-')}")
        publish(store, versions.old, versions.top / "old")
        publish(store, versions.new, versions.top / "new")
        if spoil is not None:
            victim = store.object_dir(versions.new.digest) / spoil
            victim.chmod(0o644)
            victim.write_bytes(b"spoiled")
        host = HostStore(store)
        answer = await host.update_to(versions.new.digest, [Digest("ab" * 32), versions.old.digest])
        await host.close()
        return answer

    assert versions.update() == asyncio.run(made(None))
    assert asyncio.run(made("content/d4/f004")) == b""
    assert asyncio.run(made("metafile")) == b""


@pytest.mark.case("H1")
@pytest.mark.parametrize("by", ["a master", "a host", "a host that lies"])
def test_a_host_asks_for_an_update_and_passes_it_on(versions: Versions, by: str) -> None:
    """Each host would get the whole metafile, or every host its update from the masters."""
    update = versions.update()
    hash = Digest(hashlib.sha256(update).hexdigest())
    told = {DIGEST: versions.new.digest}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "s1":
            return httpx.Response(
                200, content=update[: -1 if "lies" in by else None], headers={"content-type": UPDATE_TYPE}
            )
        if versions.old.digest not in request.url.params.get("have", ""):
            return httpx.Response(200, content=versions.new.raw, headers=told)
        if by == "a master":
            return httpx.Response(200, content=update, headers=told | {"content-type": UPDATE_TYPE})
        return httpx.Response(307, headers=told | {"location": f"http://s1:8/v1/updates/{hash}"})

    async def fetch() -> tuple[Metafile, set[bytes], bool, bytes | None]:
        store = HostStore(versions.store())
        updates = ReceivedUpdates(store)
        async with ScriptedHttp(answer) as http:
            meta = (await MasterLinks(http, lambda: ["http://m1:7"], "s2").dated_metafile(BundleId("b"), updates)).meta
        sent = updates.files_of(meta.digest)
        passed = await updates.raw(hash, 0.0)
        await store.close()
        return meta, set(sent.files.values()), sent.by_master, passed

    meta, files, by_master, passed = asyncio.run(fetch())

    assert versions.new.raw == meta.raw
    assert (set() if "lies" in by else UNKNOWN) == files
    assert (by == "a master") == by_master
    assert (None if "lies" in by else update) == passed


def test_a_host_waits_for_an_update_that_is_on_its_way(versions: Versions) -> None:
    """The next host in the tree would turn to a master, and so would all others."""
    update = versions.update()
    hash = Digest(hashlib.sha256(update).hexdigest())

    async def wait() -> tuple[bytes | None, int]:
        store = HostStore(versions.store())
        updates = ReceivedUpdates(store)
        waiting = asyncio.create_task(updates.raw(hash, 30.0))
        await updates.take(update, versions.new.digest, by_master=True)
        raw = await waiting
        await store.close()
        return raw, len(gzip.compress(update))

    assert update == asyncio.run(wait())[0]


@pytest.mark.parametrize(("most", "secs", "left"), [(1, 60.0, 1), (4, 0.0, 0), (4, 60.0, 2)])
def test_few_updates_are_kept_for_a_while(
    versions: Versions, monkeypatch: pytest.MonkeyPatch, most: int, secs: float, left: int
) -> None:
    """A host would keep the updates of all its bundles in memory."""
    monkeypatch.setattr(received_updates, "MOST_KEPT", most)
    monkeypatch.setattr(received_updates, "KEPT_SECS", secs)
    update = versions.update()
    with monkeypatch.context() as patch:
        patch.setattr(pack_update, "MOST_BYTES", 0)
        bare = versions.update()

    async def kept() -> list[bytes | None]:
        store = HostStore(versions.store())
        updates = ReceivedUpdates(store)
        for raw in (update, bare):
            await updates.take(raw, versions.new.digest, by_master=True)
        await asyncio.sleep(0.01)
        found = [await updates.raw(Digest(hashlib.sha256(raw).hexdigest()), 0.0) for raw in (update, bare)]
        await store.close()
        return found

    assert [update, bare][2 - left :] == [raw for raw in asyncio.run(kept()) if raw is not None]


def test_what_gives_way_leaves_the_memory(versions: Versions, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that gets many versions within a minute would hold all their updates."""
    monkeypatch.setattr(received_updates, "MOST_KEPT", 1)
    update = versions.update()
    with monkeypatch.context() as patch:
        patch.setattr(pack_update, "MOST_BYTES", 0)
        bare = versions.update()

    async def references() -> int:
        store = HostStore(versions.store())
        updates = ReceivedUpdates(store)
        for raw in (update, bare):
            await updates.take(raw, versions.new.digest, by_master=True)
        await eventually(lambda: sys.getrefcount(update) <= before, 2.0)  # a thread lets go of it last
        await store.close()
        return sys.getrefcount(update)

    before = sys.getrefcount(update)

    assert before == asyncio.run(references())


@pytest.mark.parametrize(("most", "left"), [(1_000_000, 2), (1, 1)])
def test_an_update_that_comes_again_stays(
    versions: Versions, monkeypatch: pytest.MonkeyPatch, most: int, left: int
) -> None:
    """What came a minute ago would take away what came now, or another update; and large ones would
    fill the memory."""
    monkeypatch.setattr(received_updates, "MOST_KEPT_BYTES", most)
    monkeypatch.setattr(received_updates, "MOST_KEPT", 2)
    monkeypatch.setattr(received_updates, "KEPT_SECS", 0.4)
    update = versions.update()
    with monkeypatch.context() as patch:
        patch.setattr(pack_update, "MOST_BYTES", 0)
        bare = versions.update()

    async def kept() -> tuple[int, int, int]:
        store = HostStore(versions.store())
        updates = ReceivedUpdates(store)
        hashes = [Digest(hashlib.sha256(raw).hexdigest()) for raw in (update, bare)]

        async def count() -> int:
            return len([hash for hash in hashes if await updates.raw(hash, 0.0) is not None])

        for raw in (update, bare):
            await updates.take(raw, versions.new.digest, by_master=True)
        await asyncio.sleep(0.2)
        await updates.take(bare, versions.new.digest, by_master=True)
        await updates.take(update, versions.new.digest, by_master=True)
        both = await count()
        await asyncio.sleep(0.25)
        late, files = await count(), len(updates.files_of(versions.new.digest).files)
        await store.close()
        return both, late, files

    assert (left, left, len(UNKNOWN)) == asyncio.run(kept())
