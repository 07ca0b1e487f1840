"""The files of a small bundle come with its metafile, so that no swarm has to form for them."""

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from bencoded_parts import changed
from scripted_http import ScriptedHttp

from torrentdist.bundle import bencode
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.packs import pack_update
from torrentdist.bundle.packs.pack_files import read_pack, write_files
from torrentdist.bundle.packs.pack_update import apply_update, base_of, make_whole
from torrentdist.bundle.reuse.file_filling import Filling
from torrentdist.bundle.reuse.store_reuse import StoreReuse
from torrentdist.bundle.store.store import Store
from torrentdist.host.host_store import HostStore
from torrentdist.host.master_links import MasterLinks
from torrentdist.host.received_updates import ReceivedUpdates
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.headers import DIGEST, UPDATE_TYPE
from torrentdist.testing.sample_trees import some_bytes, write_tree

FEW = {
    "etc/app.conf": b"x = 1\n",
    "lib/large.jar": some_bytes(40_000, 1),
    "lib/same.jar": some_bytes(40_000, 1)[:9],
    "empty": b"",
}
MANY = {f"d{number % 3}/f{number:02}": some_bytes(200 + number, number) for number in range(150)}
"""Enough small files for packs."""


@pytest.fixture(params=["few files", "packs"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    top = tmp_path / "source"
    write_tree(top, FEW if request.param == "few files" else MANY)
    assert bool(make_metafile(top).packed.files) == (request.param == "packs")
    return top


def whole(source: Path, meta: Metafile) -> bytes:
    made = make_whole(meta, lambda files: read_pack(source, files))
    assert made is not None
    return made


def publish(store: Store, meta: Metafile, source: Path) -> Path:
    home = store.begin(meta)
    write_tree(home / "content", {file.path: (source / file.path).read_bytes() for file in meta.files})
    store.publish(meta.digest)
    return home


def filled(store: Store, meta: Metafile, files: dict[bytes, bytes]) -> Filling:
    store.begin(meta)
    return StoreReuse(store).fill(meta, lambda: True, sent=files)


@pytest.mark.case("H1")
def test_a_small_bundle_is_complete_when_its_metafile_is_here(source: Path, tmp_path: Path) -> None:
    """A host would have to join a swarm for 4 KiB."""
    meta = make_metafile(source)
    update = apply_update(whole(source, meta), None, meta.digest)
    store = Store.open(tmp_path / "data")
    filling = filled(store, update.meta, dict(update.files))
    home = store.object_dir(meta.digest)
    write_files(update.meta, home)
    store.publish(meta.digest)
    damage = store.verify(meta.digest)
    store.close()

    assert meta.raw == update.meta.raw
    assert base_of(whole(source, meta)) is None
    assert filling.have is not None
    assert all(filling.have)
    assert filling.size == filling.sent == sum(file.size for file in meta.files)
    assert [] == damage
    assert all((home / "content" / f.path).read_bytes() == (source / f.path).read_bytes() for f in meta.files if f.size)


@pytest.mark.parametrize(("limit", "most"), [("MOST_WHOLE_BYTES", 40_000), ("MOST_WHOLE_FILES", 3)])
def test_a_larger_bundle_is_left_to_the_swarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    """Masters would send each host what hosts can send each other."""
    write_tree(tmp_path / "source", FEW)
    meta = make_metafile(tmp_path / "source")
    monkeypatch.setattr(pack_update, limit, most)

    assert make_whole(meta, lambda files: read_pack(tmp_path / "source", files)) is None
    monkeypatch.setattr(pack_update, limit, most * 2)
    assert make_whole(meta, lambda files: read_pack(tmp_path / "source", files)) is not None


WRONG: dict[str, Callable[[bytes], bytes]] = {
    "a cut": lambda raw: raw[:-5],
    "a file with another byte": changed(b"files", lambda part: part[:-1] + bytes([part[-1] ^ 1])),
    "files that are too short": changed(b"files", lambda part: bencode.encode(b"patch")),
    "a list instead of a metafile": changed(b"whole", lambda part: b"le"),
    "another metafile": changed(
        b"whole", lambda part: part.replace(b"12:piece lengthi32768e", b"12:piece lengthi65536e")
    ),
}


@pytest.mark.case("E5")
@pytest.mark.parametrize("damage", list(WRONG))
def test_wrong_content_is_refused(source: Path, damage: str) -> None:
    """A rogue host would put content of its choice under the digest of a bundle."""
    meta = make_metafile(source)
    with pytest.raises(TorrentdistError) as error:
        apply_update(WRONG[damage](whole(source, meta)), None, meta.digest)

    assert error.value.code in ("corrupt", "invalid_metafile")


@pytest.mark.case("E5")
def test_a_file_that_is_wrong_on_the_disk_does_not_count(tmp_path: Path) -> None:
    """A disk that has written other bytes would publish them."""
    write_tree(tmp_path / "source", FEW)
    meta = make_metafile(tmp_path / "source")
    update = apply_update(whole(tmp_path / "source", meta), None, meta.digest)
    wrong = next(file for file in meta.files if file.path == "etc/app.conf")
    store = Store.open(tmp_path / "data")
    filling = filled(store, meta, dict(update.files) | {wrong.root: b"x = 2\n"})
    content = store.object_dir(meta.digest) / "content"
    store.close()

    assert filling.have is not None
    assert not all(filling.have)
    assert sum(file.size for file in meta.files) - wrong.size == filling.sent
    assert not (content / wrong.path).exists()


def test_a_file_that_has_arrived_before_stays(tmp_path: Path) -> None:
    """What an interrupted fetch has brought would be written again, perhaps while it is read."""
    write_tree(tmp_path / "source", FEW)
    meta = make_metafile(tmp_path / "source")
    update = apply_update(whole(tmp_path / "source", meta), None, meta.digest)
    store = Store.open(tmp_path / "data")
    home = store.begin(meta)
    write_tree(home / "content", {"etc/app.conf": FEW["etc/app.conf"]})
    before = os.stat(home / "content/etc/app.conf")
    StoreReuse(store).fill(meta, lambda: True, sent=dict(update.files))
    after = os.stat(home / "content/etc/app.conf")
    store.close()

    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@pytest.mark.parametrize("spoilt", [None, "content/lib/large.jar", "metafile"])
def test_a_master_sends_what_is_as_it_was_published(tmp_path: Path, spoilt: str | None) -> None:
    """A master would send hosts what its disk has damaged, or fail instead of sending the
    metafile."""
    write_tree(tmp_path / "source", FEW)
    meta = make_metafile(tmp_path / "source")

    async def made() -> bytes | None:
        store = Store.open(tmp_path / "data")
        home = publish(store, meta, tmp_path / "source")
        if spoilt is not None:
            (home / spoilt).chmod(0o644)
            (home / spoilt).write_bytes(b"spoilt")
        host = HostStore(store)
        answer = await host.whole(meta.digest)
        await host.close()
        return answer

    assert (whole(tmp_path / "source", meta) if spoilt is None else None) == asyncio.run(made())


@pytest.mark.parametrize("by", ["a master", "a host"])
def test_a_host_gets_a_small_bundle_and_passes_it_on(tmp_path: Path, by: str) -> None:
    """All hosts would get it from the masters."""
    write_tree(tmp_path / "source", FEW)
    meta = make_metafile(tmp_path / "source")
    raw = whole(tmp_path / "source", meta)
    hash = Digest(hashlib.sha256(raw).hexdigest())
    told, update = {DIGEST: meta.digest}, {"content-type": UPDATE_TYPE}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "s1":
            return httpx.Response(200, content=raw, headers=update)
        if request.url.params.get("whole") != "true":
            return httpx.Response(200, content=meta.raw, headers=told)
        if by == "a master":
            return httpx.Response(200, content=raw, headers=told | update)
        return httpx.Response(307, headers=told | {"location": f"http://s1:8/v1/updates/{hash}"})

    async def fetch() -> tuple[bytes, set[bytes], bool, bytes | None]:
        store = HostStore(Store.open(tmp_path / "data"))
        updates = ReceivedUpdates(store)
        async with ScriptedHttp(answer) as http:
            got = (await MasterLinks(http, lambda: ["http://m1:7"], "s2").dated_metafile(BundleId("b"), updates)).meta
        sent = updates.files_of(got.digest)
        passed = await updates.raw(hash, 0.0)
        await store.close()
        return got.raw, set(sent.files.values()), sent.by_master, passed

    assert (meta.raw, {*FEW.values()} - {b""}, by == "a master", raw) == asyncio.run(fetch())
