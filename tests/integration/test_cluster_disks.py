"""Disks that are too small: the error is clear, nothing is half-published, and everything works
once there is room."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cluster_fixtures import Cluster, NewCluster, make_source, picture, running_cluster, until

from torrentdist.bundle.content_check import verify_content
from torrentdist.bundle.metafile import parse_metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.host.process.daemon_address import read_address

MIB = 1024 * 1024
ROOM = 12 * MIB

SmallDisk = Callable[[int], Path]


def tree_of(store: Path) -> set[str]:
    """Returns the names of objects and published bundles."""
    return {str(path.relative_to(store)) for part in ("objects", "bundles") for path in (store / part).glob("*")}


@contextmanager
def on_small_disk(cluster: Cluster, names: Sequence[str], small_disk: SmallDisk) -> Iterator[list[Path]]:
    """Moves these members' stores to disks of ROOM bytes. If mounts are impossible, limits the
    stores instead.

    Yields the mounted disks. Afterwards the stores are back on the machine's own disk.
    """
    disks = []
    try:
        for name in names:
            cluster.dev.signal(name, signal.SIGTERM)
            settings = {"store": {"limit_bytes": ROOM}}
            with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
                disks.append(small_disk(ROOM))
                shutil.copytree(cluster.store(name), disks[-1] / "store", symlinks=True)
                shutil.rmtree(cluster.store(name))
                cluster.store(name).symlink_to(disks[-1] / "store")
                settings = {}
            cluster.reconfigure_stopped(name, settings)
        cluster.dev.wait_ready()
        yield disks
    finally:
        for name in names:
            cluster.dev.signal(name, signal.SIGTERM)
            store = cluster.store(name)
            if store.is_symlink():
                disk = store.resolve()
                store.unlink()
                shutil.copytree(disk, store, symlinks=True)
            cluster.reconfigure_stopped(name, {})


@pytest.fixture(scope="module")
def _cramped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    work = tmp_path_factory.mktemp("cramped-cluster")
    with running_cluster({"store": {"reserve_bytes": 0}}, work=work, masters=2, supervisors=1) as cluster:
        yield cluster


@pytest.fixture
def cramped(_cramped: Cluster) -> Cluster:
    """2 masters and a supervisor whose disks a test may replace."""
    _cramped.heal()
    return _cramped


def empty(cluster: Cluster) -> None:
    """Removes what earlier tests left, because it would not fit on a small disk."""
    for view in cluster.run("bundle", "ls").ok():
        cluster.run("bundle", "rm", view["id"]).ok()
    members = [*cluster.masters(), *cluster.supervisors()]
    until(lambda: not any(tree_of(cluster.store(name)) for name in members), "the stores are empty", 30)


def test_an_upload_that_no_master_has_room_for(cramped: Cluster, tmp_path: Path, small_disk: SmallDisk) -> None:
    """E4: if this failed, an upload would fail without saying why, or leave its half on the
    masters' disks."""
    small = make_source(tmp_path / "small", 600)
    masters = cramped.masters()
    with on_small_disk(cramped, masters, small_disk):
        cramped.upload(small, "fits", replicas=2)
        before = {name: tree_of(cramped.store(name)) for name in masters}

        refused = cramped.run("upload", make_source(tmp_path / "large", 610, ROOM), "--id", "too-large")
        after = {name: tree_of(cramped.store(name)) for name in masters}
        listed = [view["id"] for view in cramped.run("bundle", "ls").ok()]
        cramped.run("download", "fits", tmp_path / "dest", "--no-supervisor").ok()
        # The refused upload leaves no trace: a smaller bundle can use its id.
        reused = cramped.upload(make_source(tmp_path / "fits too", 611), "too-large", replicas=2)

    assert 8 == refused.code
    assert "error[disk_full]" in refused.stderr
    assert before == after
    assert ["fits"] == listed
    assert picture(small) == picture(tmp_path / "dest")
    assert 2 == reused["replicas"]


def test_a_standby_without_room_is_named(cramped: Cluster, tmp_path: Path, small_disk: SmallDisk) -> None:
    """E4: if this failed, nobody would learn which master lacks a copy, or it would never get
    one."""
    [full] = cramped.standbys()
    large = make_source(tmp_path / "large", 620, ROOM)
    digest = make_metafile(large).digest
    with on_small_disk(cramped, [full], small_disk):
        before = tree_of(cramped.store(full))
        ran = cramped.run("upload", large, "--id", "one-is-full", "--min-replicas", 2, "--timeout", "4s")
        after = tree_of(cramped.store(full))
    until(lambda: full in cramped.holders("one-is-full", at=cramped.leader()), "it has it once there is room", 30)

    assert 10 == ran.code
    assert f"missing on: {full}" in ran.stderr
    assert (1, 2) == (ran.json["replicas"], ran.json["min_replicas"])
    assert before == after
    assert cramped.published(full, digest)


def test_a_disk_that_others_fill_during_an_upload(cramped: Cluster, tmp_path: Path, small_disk: SmallDisk) -> None:
    """E4: if this failed, a master whose disk fills up would publish half a bundle, end, or never
    recover."""
    empty(cramped)
    [full] = cramped.standbys()
    source = make_source(tmp_path / "source", 630, 5 * MIB)
    digest = make_metafile(source).digest
    with on_small_disk(cramped, [full], small_disk) as disks:
        uploading = cramped.begin(
            "upload", source, "--id", "fills-up", "--min-replicas", 2, "--timeout", "40s", swarm__upload_limit=4 * MIB
        )
        until(lambda: (cramped.store(full) / "objects" / digest).exists(), "it has begun to arrive")
        fillers = [fill(disk) for disk in disks]
        until(lambda: cramped.published(cramped.leader(), digest), "the leader has it", 30)
        torso = cramped.published(full, digest) and bool(fillers)
        alive = cramped.alive(full)
        for filler in fillers:
            filler.unlink()
        ended = uploading.end(60)
        damaged = verify(cramped, full, digest)

    assert (False, True) == (torso, alive)
    assert 0 == ended.code, ended.stderr
    assert [] == damaged


def test_a_single_master_whose_disk_fills_says_so(
    new_cluster: NewCluster, tmp_path: Path, small_disk: SmallDisk
) -> None:
    """E4: if this failed, the uploader would wait for its whole time and then hear only that
    replicas are missing."""
    cluster = new_cluster({"store": {"reserve_bytes": 0}}, masters=1, supervisors=0)
    [only] = cluster.masters()
    source = make_source(tmp_path / "source", 640, 5 * MIB)
    digest = make_metafile(source).digest
    with on_small_disk(cluster, [only], small_disk) as disks:
        uploading = cluster.begin("upload", source, "--id", "too-late", swarm__upload_limit=4 * MIB)
        until(lambda: (cluster.store(only) / "objects" / digest).exists(), "it has begun to arrive")
        fillers = [fill(disk) for disk in disks]
        ended = uploading.end(60)
        for filler in fillers:
            filler.unlink()

    assert (8, True) == (ended.code, "error[disk_" in ended.stderr)


def fill(disk: Path, name: str = "somebody-elses") -> Path:
    """Takes all the room that is left, as another program would."""
    filler = disk / name
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(64 * 1024))
    return filler


def verify(cluster: Cluster, name: str, digest: str) -> list[str]:
    meta = parse_metafile((cluster.store(name) / "objects" / digest / "metafile").read_bytes())
    return [damage.path for damage in verify_content(meta, cluster.content(name, digest))]


def test_a_download_to_a_full_disk(cluster: Cluster, tmp_path: Path, small_disk: SmallDisk) -> None:
    """E4: if this failed, a full disk would look like a network that is slow, or leave half a
    bundle as DEST."""
    source = make_source(tmp_path / "source", 640, 6 * MIB)
    cluster.upload(source, "for-small-disk")
    try:
        disk = small_disk(4 * MIB)
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.fail("this test needs to mount a file system; run it as root")

    for flags in (("--no-supervisor",), ()):
        ran = cluster.run("download", "for-small-disk", disk / "dest", *flags)

        assert 8 == ran.code, ran.stderr
        assert not (disk / "dest").exists()
        assert [] == [path.name for path in disk.rglob("data.bin") if path.stat().st_blocks > 0]


def test_a_supervisor_without_room(cramped: Cluster, tmp_path: Path, small_disk: SmallDisk) -> None:
    """E4: if this failed, a host with a full disk would keep the fleet and the user waiting without
    a reason."""
    [name] = cramped.supervisors()
    cramped.upload(make_source(tmp_path / "source", 650, ROOM), "too-large-for-host", replicas=1)
    with on_small_disk(cramped, [name], small_disk):
        before = tree_of(cramped.store(name))
        fleet = cramped.run("bundle", "distribute", "too-large-for-host", "--wait", "100%", "--timeout", "4s")
        asked = cramped.run("download", "too-large-for-host", tmp_path / "dest")
        after = tree_of(cramped.store(name))

    assert (10, 0, [name]) == (fleet.code, fleet.json["done"], [host["supervisor"] for host in fleet.json["failed"]])
    assert "room" in fleet.json["failed"][0]["reason"]
    assert 8 == asked.code, asked.stderr
    assert before == after


def test_full_disks_need_attention_and_daemons_that_start_on_them_serve(
    cramped: Cluster, tmp_path: Path, small_disk: SmallDisk
) -> None:
    """E4: if this failed, the console would say that all is well while disks are full, until the
    next distribution fails; or a host that restarts with a full disk would take all its bundles
    away until an operator makes room. It takes long: daemons start
    on small disks, twice."""
    empty(cramped)
    members = [cramped.standbys()[0], cramped.supervisors()[0]]
    digest = cramped.upload(make_source(tmp_path / "source", 680), "here", replicas=2)["digest"]
    cramped.run("bundle", "distribute", "here", "--wait", "100%").ok()

    def full(master: str) -> set[str]:
        overview = cramped.get(master, "/ui/?format=json") or {"attention": []}
        return {id_ for item in overview["attention"] if item["what"] == "full" for id_ in item["subjects"]}

    def everywhere(*wanted: str) -> bool:
        return all(full(master) == set(wanted) for master in cramped.masters())

    with on_small_disk(cramped, members, small_disk) as disks:
        if not disks:
            pytest.fail("this test needs to mount file systems; run it as root")
        urls = [cramped.url(members[0]) + "/readyz", f"{cramped.url(members[1])}/bundles/here"]
        until(lambda: everywhere(), "nobody is full", 30)
        fillers = [fill(disk) for disk in disks]
        until(lambda: everywhere(*members), "both are full", 30)
        top = cramped.run("top").ok()["attention"]
        listed = {view["id"] for view in cramped.get(cramped.leader(), "/v1/cluster")["supervisors"] if view["full"]}
        cramped.kill(*members)
        fillers += [fill(disk, "the-last-block") for disk in disks]  # a daemon that ran could free a block
        for member in members:
            cramped.dev.start(member)
        until(lambda: all(answers(url, cramped) for url in urls), "they serve", 30.0)
        written = [read_address(cramped.store(member)) is not None for member in members]
        for filler in fillers:
            filler.unlink()
        for member in members:
            cramped.dev.wait_started(member)
        cramped.dev.wait_ready()
        until(lambda: everywhere(), "they have room again", 30)

    told = {(id_, item["detail"]) for item in top if item["what"] == "full" for id_ in item["subjects"]}
    assert {(name, "no more than store.reserve_bytes is free on its disk") for name in members} == told
    assert {members[1]} == listed
    assert cramped.published(members[0], digest)
    assert [False, False] == written


def answers(url: str, cluster: Cluster) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return cluster.http.get(url, timeout=2.0).status_code == 200
    return False


def test_a_daemon_that_has_no_room_to_start_waits_for_it(
    cramped: Cluster, tmp_path: Path, small_disk: SmallDisk
) -> None:
    """E4: if this failed, a host whose disk is full for a moment would stay away until an operator
    starts its daemon again."""
    name = cramped.standbys()[0]
    cramped.dev.signal(name, signal.SIGTERM)
    store, aside = cramped.store(name), cramped.dir / "aside"
    store.rename(aside)
    try:
        disk = small_disk(ROOM)
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.fail("this test needs to mount a file system; run it as root")
    store.symlink_to(disk)
    filler = fill(disk)
    log = cramped.dir / f"{name}.log"
    before = log.stat().st_size
    cramped.dev.start(name)
    until(lambda: "waiting for room" in log.read_text()[before:], "it says what it waits for")
    alive = cramped.alive(name)
    filler.unlink()
    cramped.dev.wait_started(name)
    cramped.dev.wait_ready()
    said = log.read_text()[before:]
    cramped.dev.signal(name, signal.SIGTERM)
    store.unlink()
    aside.rename(store)

    assert alive
    assert said.count("waiting for room") == 1
    assert "Traceback" not in said
