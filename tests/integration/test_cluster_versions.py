"""A new version of a bundle: only what changed crosses the network, whatever happens on the way."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_fixtures import Cluster, picture, running_cluster, until
from wire_counters import all_settled, settled

from torrentdist.testing.sample_trees import some_bytes, write_tree

FILES = 40
FILE_BYTES = 100_000
SIZE = FILES * FILE_BYTES
NEW_BYTES = 3 * FILE_BYTES


def make_old(top: Path, seed: int) -> Path:
    write_tree(top, {f"lib/{number:02}.bin": some_bytes(FILE_BYTES, seed + number) for number in range(FILES)})
    return top


def make_new(old: Path, top: Path, seed: int) -> Path:
    """Copies the old version, changes three files, renames one and moves another."""
    shutil.copytree(old, top)
    for number in (3, 17, 30):
        (top / "lib" / f"{number:02}.bin").write_bytes(some_bytes(FILE_BYTES, seed + 1000 + number))
    (top / "lib" / "05.bin").rename(top / "lib" / "renamed.bin")
    (top / "moved" / "far").mkdir(parents=True)
    (top / "lib" / "06.bin").rename(top / "moved" / "far" / "06.bin")
    return top


def distribute(cluster: Cluster, bundle: str, *options: object) -> Any:
    return cluster.run("bundle", "distribute", bundle, *options).ok()


@pytest.mark.case("H1")
def test_only_what_changed_crosses_the_network(cluster: Cluster, tmp_path: Path) -> None:
    """Every byte of a new version would move again to every host. It takes long: large bundles are
    hashed on each host."""
    old = make_old(tmp_path / "old", 100)
    new = make_new(old, tmp_path / "new", 100)
    members = [*cluster.masters(), *cluster.supervisors()]
    first = cluster.upload(old, "versions-42")
    distribute(cluster, "versions-42")
    before = all_settled(cluster, members)

    preview = cluster.run("upload", new, "--id", "versions-43", "--dry-run").ok()
    second = cluster.upload(new, "versions-43")
    spread = distribute(cluster, "versions-43")
    after = all_settled(cluster, members)

    assert (first["new_bytes"], first["reused_bytes"], first["reused_from"]) == (SIZE, 0, [])
    for view in (preview, second):
        assert (view["size"], view["new_bytes"], view["reused_bytes"]) == (SIZE, NEW_BYTES, SIZE - NEW_BYTES)
        assert view["reused_from"] == ["versions-42"]
    assert spread["sources"]["local"] == 2 * (SIZE - NEW_BYTES)
    assert spread["sources"]["masters"] + spread["sources"]["peers"] == 2 * NEW_BYTES
    for name in members:
        assert NEW_BYTES <= after[name] - before[name] < 2 * NEW_BYTES, name
        assert picture(new) == picture(cluster.content(name, second["digest"]))


def test_a_preview_uploads_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """A dry run would leave a bundle behind."""
    old = make_old(tmp_path / "old", 200)
    preview = cluster.run("upload", old, "--id", "preview-only", "--dry-run").ok()

    assert preview["new_bytes"] == SIZE
    assert cluster.run("bundle", "show", "preview-only").code == 3


@pytest.mark.case("H1")
def test_a_version_without_new_content_moves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """A change of names and modes alone would cost a whole transfer, or would never end."""
    old = make_old(tmp_path / "old", 300)
    cluster.upload(old, "renamed-1")
    (old / "lib").rename(old / "bin")
    (old / "bin" / "00.bin").chmod(0o755)
    before = all_settled(cluster, cluster.masters())
    view = cluster.upload(old, "renamed-2")
    after = all_settled(cluster, cluster.masters())

    assert (view["new_bytes"], view["reused_from"]) == (0, ["renamed-1"])
    assert before == after
    for name in cluster.masters():
        assert picture(old) == picture(cluster.content(name, view["digest"]))
    spread = distribute(cluster, "renamed-2")
    assert spread["sources"]["local"] == 0


@pytest.mark.case("H5")
def test_a_mixed_fleet_finishes(cluster: Cluster, tmp_path: Path) -> None:
    """Hosts without the old version would wait for hosts that need nothing from them."""
    old = make_old(tmp_path / "old", 400)
    new = make_new(old, tmp_path / "new", 400)
    one, other = cluster.supervisors()
    cluster.upload(old, "mixed-42")
    distribute(cluster, "mixed-42", "--supervisors", one)
    before = settled(cluster, one)
    uploaded = cluster.upload(new, "mixed-43")
    spread = distribute(cluster, "mixed-43")

    assert spread["done"] == 2
    assert spread["sources"]["local"] == SIZE - NEW_BYTES
    assert settled(cluster, one) - before < 2 * NEW_BYTES
    for name in (one, other):
        assert picture(new) == picture(cluster.content(name, uploaded["digest"]))


@pytest.mark.case("H1")
def test_a_download_takes_what_a_directory_has(cluster: Cluster, tmp_path: Path) -> None:
    """A host without a supervisor would fetch everything again."""
    old = make_old(tmp_path / "old", 500)
    new = make_new(old, tmp_path / "new", 500)
    cluster.upload(new, "from-directory")
    view = cluster.run("download", "from-directory", tmp_path / "dest", "--no-supervisor", "--from", old).ok()

    assert view["sources"]["local"] == SIZE - NEW_BYTES
    assert view["sources"]["masters"] == NEW_BYTES
    assert picture(new) == picture(tmp_path / "dest")


@pytest.mark.case("H1")
def test_a_download_takes_what_the_hosts_store_has(cluster: Cluster, tmp_path: Path) -> None:
    """A host whose supervisor is down would fetch what lies on its disk."""
    old = make_old(tmp_path / "old", 600)
    new = make_new(old, tmp_path / "new", 600)
    host = cluster.supervisors()[0]
    cluster.upload(old, "from-store-42")
    distribute(cluster, "from-store-42", "--supervisors", host)
    cluster.upload(new, "from-store-43")
    settings = {"supervisor__data_dir": cluster.store(host)}
    view = cluster.run("download", "from-store-43", tmp_path / "dest", "--no-supervisor", **settings).ok()

    assert view["sources"]["local"] == SIZE - NEW_BYTES
    assert picture(new) == picture(tmp_path / "dest")


@pytest.mark.case("H1")
def test_a_download_over_an_older_copy_fetches_what_changed(cluster: Cluster, tmp_path: Path) -> None:
    """A user who keeps one directory up to date would fetch everything each time."""
    old = make_old(tmp_path / "old", 700)
    new = make_new(old, tmp_path / "new", 700)
    cluster.upload(new, "over-older")
    view = cluster.run("download", "over-older", old, "--no-supervisor", "--force").ok()

    assert view["sources"]["local"] == SIZE - NEW_BYTES
    assert picture(new) == picture(old)


def test_the_difference_of_two_bundles_is_told(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody could tell what a new version changes before shipping it."""
    old = make_old(tmp_path / "old", 800)
    new = make_new(old, tmp_path / "new", 800)
    cluster.upload(old, "diff-42")
    cluster.upload(new, "diff-43")
    view = cluster.run("bundle", "diff", "diff-42", "diff-43").ok()

    assert view["added"] == ["lib/renamed.bin", "moved/far/06.bin"]
    assert view["removed"] == ["lib/05.bin", "lib/06.bin"]
    assert view["changed"] == ["lib/03.bin", "lib/17.bin", "lib/30.bin"]
    assert (view["size"], view["new_bytes"]) == (SIZE, NEW_BYTES)


@pytest.mark.case("H4")
def test_a_damaged_old_version_harms_no_new_one_and_is_mended(cluster: Cluster, tmp_path: Path) -> None:
    """Damage on one disk would spread from version to version."""
    old = make_old(tmp_path / "old", 900)
    new = make_new(old, tmp_path / "new", 900)
    host = cluster.supervisors()[0]
    first = cluster.upload(old, "damaged-42")
    distribute(cluster, "damaged-42")
    place = cluster.content(host, first["digest"]) / "lib" / "10.bin"
    place.chmod(0o644)
    place.write_bytes(bytes(FILE_BYTES))
    second = cluster.upload(new, "damaged-43")
    spread = distribute(cluster, "damaged-43")

    assert spread["done"] == 2
    assert picture(new) == picture(cluster.content(host, second["digest"]))
    until(lambda: picture(old) == picture(cluster.content(host, first["digest"])), "the old version is mended")


@pytest.fixture(scope="module")
def slow() -> Iterator[Cluster]:
    """A master whose link is slow, and a host."""
    with running_cluster({"swarm": {"upload_limit": 150_000, "seeding_secs": 1.0}}, masters=1, supervisors=1) as slow:
        yield slow


@pytest.mark.case("H2")
@pytest.mark.case("H4")
def test_a_host_that_dies_in_the_middle_goes_on_with_what_it_had(slow: Cluster, tmp_path: Path) -> None:
    """A crash would cost the whole version again, or leave content that nobody checked."""
    old = tmp_path / "old"
    write_tree(old, {f"{number}.bin": some_bytes(20_000, number) for number in range(20)})
    uploaded = slow.upload(old, "env-42", replicas=1)
    distribute(slow, "env-42")
    shutil.copytree(old, tmp_path / "new")
    write_tree(tmp_path / "new", {"3.bin": some_bytes(600_000, 50)})
    uploaded = slow.upload(tmp_path / "new", "env-43", replicas=1)
    [host] = slow.supervisors()
    running = slow.begin("bundle", "distribute", "env-43")
    arriving = slow.content(host, uploaded["digest"])
    until(lambda: (arriving / "3.bin").exists() and (arriving / "3.bin").stat().st_blocks > 200, "some of it arrived")
    slow.kill(host)
    # A torn copy, as a crash of the machine leaves it.
    (arriving / "7.bin").write_bytes(bytes(20_000))
    slow.start(host)
    spread = running.end().ok()

    assert spread["done"] == 1
    assert picture(tmp_path / "new") == picture(slow.content(host, uploaded["digest"]))
    assert settled(slow, host) < 620_000 + 4 * 32 * 1024


@pytest.mark.case("H4")
def test_an_old_version_that_is_removed_meanwhile_stops_nothing(slow: Cluster, tmp_path: Path) -> None:
    """An operator who removes the old version too early would break the new one."""
    old = tmp_path / "old"
    write_tree(old, {f"{number}.bin": some_bytes(20_000, 100 + number) for number in range(20)})
    first = slow.upload(old, "old-42", replicas=1)
    distribute(slow, "old-42")
    shutil.copytree(old, tmp_path / "new")
    write_tree(tmp_path / "new", {"3.bin": some_bytes(400_000, 150)})
    second = slow.upload(tmp_path / "new", "old-43", replicas=1)
    [host] = slow.supervisors()
    running = slow.begin("bundle", "distribute", "old-43")
    until(lambda: slow.content(host, second["digest"]).exists(), "it has begun")
    slow.run("bundle", "rm", "old-42").ok()
    until(lambda: not slow.published(host, first["digest"]), "the old version is gone")
    spread = running.end().ok()

    assert spread["done"] == 1
    assert picture(tmp_path / "new") == picture(slow.content(host, second["digest"]))


@pytest.mark.alone
def test_the_uploader_sends_what_is_new_about_once(cluster: Cluster, tmp_path: Path) -> None:
    """The uploader's link would carry each new byte to every master, and be the slowest part. It
    takes long: large bundles are hashed on each master."""
    old = make_old(tmp_path / "old", 1000)
    cluster.upload(old, "sent-42")
    new, new_bytes = tmp_path / "new", 80 * FILE_BYTES
    shutil.copytree(old, new)
    write_tree(new, {f"more/{number}.bin": some_bytes(FILE_BYTES, 5000 + number) for number in range(80)})
    masters = cluster.masters()

    def from_uploader() -> int:
        return sum(all_settled(cluster, masters).values()) - sum(all_settled(cluster, masters, "uploaded").values())

    before = from_uploader()
    cluster.run("upload", new, "--id", "sent-43", "--min-replicas", 3, swarm__upload_limit=2_000_000).ok()
    sent = from_uploader() - before

    assert new_bytes <= sent < 1.3 * new_bytes


def test_files_that_only_their_owner_reads_are_counted(cluster: Cluster, tmp_path: Path) -> None:
    """Somebody would ship a key of mode 0600, and learn from others that they can read it."""
    top = tmp_path / "job"
    write_tree(top, {"key": some_bytes(2000, 8), "conf/other": some_bytes(2000, 9), "main": some_bytes(2000, 10)})
    (top / "key").chmod(0o600)
    (top / "conf/other").chmod(0o400)
    ran = [cluster.run("upload", top, "--id", "closed-1", *more) for more in (["--dry-run"], [])]

    assert [2, 2] == [one.json["owner_only"] for one in ran]
    assert all("notice: 2 files that only their owner can read" in one.stderr for one in ran)


def test_a_compressed_archive_is_warned_of(cluster: Cluster, tmp_path: Path) -> None:
    """People would ship archives and wonder why every byte moves each time."""
    top = tmp_path / "job"
    gzip = b"\x1f\x8b\x08" + some_bytes(20_000, 7)
    write_tree(top, {"deps/env.tar.gz": gzip, "a.tgz": gzip + b"1", "plain.tgz": b"plain", "data.csv.gz": gzip})
    ran = cluster.run("upload", top, "--id", "compressed-1")
    alone = cluster.run("upload", top / "data.csv.gz", "--id", "compressed-2", "--dry-run")

    assert ran.code == 0
    assert "deps/env.tar.gz is compressed" in ran.stderr
    assert "Unpack it and upload the directory, or make it with zip or gzip --rsyncable" in ran.stderr
    assert ran.json["compressed"] == ["a.tgz", "deps/env.tar.gz"]
    assert alone.json["compressed"] == ["data.csv.gz"]
