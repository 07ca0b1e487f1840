"""A new version of a large file: only the parts that changed cross the network."""

from __future__ import annotations

import asyncio
import tarfile
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, NewCluster, until
from wire_counters import all_settled

from torrentdist.bundle.metafile_maker import make_metafile_and_recipe
from torrentdist.bundle.reuse.recipe import Recipe, encode_recipe, file_recipe, parse_recipe
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.configuration.config import ClientConfig
from torrentdist.model.ids import BundleId
from torrentdist.testing.sample_trees import some_bytes, write_tree

MEMBERS = 24
MEMBER_BYTES = 1_000_000
MOST_NEW = 3_000_000
"""Two changed members, and the chunks and pieces at their ends."""


def same_time(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = 0
    return member


def make_archive(top: Path, name: str, changed: dict[int, bytes], seed: int, members: int) -> Path:
    """Makes a .tar of a directory in which some members have other content."""
    files = {f"{number:02}.bin": some_bytes(MEMBER_BYTES, seed + number) for number in range(members)}
    tree = top / f"tree of {name}"
    write_tree(tree, files | {f"{number:02}.bin": content for number, content in changed.items()})
    path = top / name
    with tarfile.open(path, "w") as archive:
        for member in sorted(tree.iterdir()):
            archive.add(member, arcname=f"env/{member.name}", filter=same_time)
    return path


def make_versions(top: Path, seed: int, members: int = MEMBERS) -> tuple[Path, Path]:
    """Makes two versions. The second has a longer member near its beginning."""
    old = make_archive(top, "env-42.tar", {}, seed, members)
    changed = {3: some_bytes(MEMBER_BYTES + 123_457, seed + 1000), 12: some_bytes(MEMBER_BYTES, seed + 1001)}
    return old, make_archive(top, "env-43.tar", changed, seed, members)


@pytest.mark.case("H1")
def test_only_the_changed_parts_of_an_archive_cross_the_network(cluster: Cluster, tmp_path: Path) -> None:
    """People who ship one .tar would move all of it to every host each day. It takes long: large
    archives are cut and hashed."""
    old, new = make_versions(tmp_path, 1)
    size = new.stat().st_size
    members = [*cluster.masters(), *cluster.supervisors()]
    cluster.upload(old, "tar-42")
    cluster.run("bundle", "distribute", "tar-42").ok()
    before = all_settled(cluster, members)
    preview = cluster.run("upload", new, "--id", "tar-43", "--dry-run").ok()
    uploaded = cluster.upload(new, "tar-43")
    spread = cluster.run("bundle", "distribute", "tar-43").ok()
    difference = cluster.run("bundle", "diff", "tar-42", "tar-43").ok()
    after = all_settled(cluster, members)

    for view in (preview, uploaded, difference):
        assert 2_000_000 < view["new_bytes"] < MOST_NEW
    assert uploaded["reused_from"] == ["tar-42"]
    assert spread["sources"]["local"] > 2 * (size - MOST_NEW)
    for name in members:
        assert after[name] - before[name] < 1.2 * MOST_NEW, name
        assert new.read_bytes() == (cluster.content(name, uploaded["digest"]) / "env-43.tar").read_bytes()


@pytest.mark.case("H3")
def test_another_recipe_for_the_same_content_replaces_none(cluster: Cluster, tmp_path: Path) -> None:
    """A second upload of an archive would take away the recipe of the first."""
    old, _ = make_versions(tmp_path, 5, members=8)
    cluster.upload(old, "first")
    meta, recipe = make_metafile_and_recipe(old)
    parsed = parse_recipe(recipe)
    assert parsed is not None
    [file] = parsed.files
    other = encode_recipe(Recipe((file_recipe(file.root, ((one.length, bytes(16)) for one in file.chunks())),)))

    async def upload_again() -> bytes | None:
        config = ClientConfig(masters=[cluster.url(cluster.leader())], token_file=str(cluster.dev.token_file))
        async with MasterClient(config) as client:
            offered = await client.offer_recipe(BundleId("second"), other)
            await client.open_upload(BundleId("second"), meta.raw, 1, offered)
            return await client.recipe(BundleId("first"))

    assert recipe == asyncio.run(upload_again())


@pytest.mark.case("H1")
def test_a_download_takes_parts_of_an_older_archive(cluster: Cluster, tmp_path: Path) -> None:
    """A host without a supervisor would fetch the whole archive again. It takes long: large
    archives are cut and hashed."""
    old, new = make_versions(tmp_path, 3000)
    cluster.upload(new, "tar-from")
    view = cluster.run("download", "tar-from", tmp_path / "dest.tar", "--no-supervisor", "--from", old).ok()

    assert view["sources"]["masters"] < MOST_NEW
    assert view["sources"]["local"] > view["size"] - MOST_NEW
    assert new.read_bytes() == (tmp_path / "dest.tar").read_bytes()


@pytest.mark.case("H2")
@pytest.mark.case("H4")
def test_a_host_that_dies_while_it_copies_parts_has_the_right_archive_in_the_end(
    new_cluster: NewCluster, tmp_path: Path
) -> None:
    """A crash would leave parts of an archive that nobody checked."""
    cluster = new_cluster({"swarm": {"upload_limit": 2_000_000}}, masters=1, supervisors=1)
    old, new = make_versions(tmp_path, 6000, members=16)
    [host] = cluster.supervisors()
    cluster.upload(old, "tar-42", replicas=1)
    cluster.run("bundle", "distribute", "tar-42").ok()
    uploaded = cluster.upload(new, "tar-43", replicas=1)
    running = cluster.begin("bundle", "distribute", "tar-43")
    arriving = cluster.content(host, uploaded["digest"]) / "env-43.tar"
    until(lambda: arriving.exists() and arriving.stat().st_blocks > 200, "some of it is here")
    cluster.kill(host)
    cluster.start(host)
    spread = running.end().ok()

    assert spread["done"] == 1
    assert new.read_bytes() == arriving.read_bytes()
