"""A running cluster gives back exactly what was put into it, whatever it contains and whichever
client fetches it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import libtorrent as lt
import pytest
from cluster_clients import zookeeper_of
from cluster_fixtures import Cluster, NewCluster, make_source, picture, until
from patience import patient

from torrentdist.testing.sample_trees import NESTED, ODD_NAMES, some_bytes, write_tree


def make_everything(top: Path) -> None:
    """Odd names, empty directories, symlinks, modes, files without bytes, files alike."""
    write_tree(top, {**ODD_NAMES, **NESTED})
    for name in ("empty dir", "deep/er/empty"):
        (top / name).mkdir(parents=True)
    for name in ("run.sh", "bin/tool"):
        (top / name).parent.mkdir(exist_ok=True)
        (top / name).write_text("#!/bin/sh\n")
        (top / name).chmod(0o755)
    (top / "link to file").symlink_to("run.sh")
    (top / "bin" / "up and down").symlink_to("../data/one-byte")
    (top / "link to dir").symlink_to("data/deeper")
    (top / "dangling").symlink_to("not/there")


def make_one_file(top: Path) -> None:
    top.write_bytes(some_bytes(300_000, 11))
    top.chmod(0o755)


def make_directory_of_one(top: Path) -> None:
    write_tree(top, {"alone.bin": some_bytes(300_000, 12)})


def make_directory_of_one_deep(top: Path) -> None:
    write_tree(top, {"a/b/alone.bin": some_bytes(300_000, 13)})


def make_directory_named_as_its_file(top: Path) -> None:
    write_tree(top, {"content": some_bytes(100_000, 14)})


MAKERS = {
    "everything": make_everything,
    "one-file": make_one_file,
    "directory-of-one": make_directory_of_one,
    "directory-of-one-deep": make_directory_of_one_deep,
    "content-in-content": make_directory_named_as_its_file,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_downloaded_is_what_was_uploaded(cluster: Cluster, tmp_path: Path, kind: str) -> None:
    """If this failed, a job would run other code than its author uploaded."""
    source = tmp_path / "source"
    MAKERS[kind](source)
    bundle = f"same-{kind}"

    uploaded = cluster.upload(source, bundle)
    through_host = cluster.run("download", bundle, tmp_path / "through-host").ok()
    as_peer = cluster.run("download", bundle, tmp_path / "as-peer", "--no-supervisor").ok()

    assert picture(source) == picture(tmp_path / "through-host")
    assert picture(source) == picture(tmp_path / "as-peer")
    for result in (through_host, as_peer):
        assert uploaded["digest"] == result["digest"]
        assert uploaded["size"] == sum(result["sources"].values())
    assert 0 == cluster.run("bundle", "verify", bundle, tmp_path / "as-peer").code


def test_thousands_of_small_files(new_cluster: NewCluster, tmp_path: Path) -> None:
    """If this failed, a bundle of many small files would take forever, or lose some."""
    cluster = new_cluster(masters=1, supervisors=0)
    source, count = tmp_path / "source", 2500  # `make bench` takes 10,000
    for number in range(count):
        file = source / f"{number % 100:02}" / f"{number:05}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(number.to_bytes(4, "big") * 16)

    uploaded = cluster.upload(source, "thousands", replicas=1)
    cluster.run("download", "thousands", tmp_path / "dest").ok()

    assert (count, 1) == (uploaded["files"], uploaded["replicas"])
    assert picture(source) == picture(tmp_path / "dest")


Fetch = Callable[[Path, Path, Callable[[], bool]], None]


def with_libtorrent(metafile: Path, target: Path, done: Callable[[], bool]) -> None:
    session = lt.session(
        {
            "listen_interfaces": "127.0.0.1:0",
            "enable_dht": False,
            "enable_lsd": False,
            "enable_upnp": False,
            "enable_natpmp": False,
        }
    )
    params = lt.load_torrent_file(str(metafile))
    params.save_path = str(target)
    handle = session.add_torrent(params)
    try:
        until(lambda: handle.status().is_seeding and done(), "libtorrent has it all", 40)
    finally:
        session.pause()


@contextlib.contextmanager
def qbittorrent(profile: Path, target: Path, metafile: Path) -> Iterator[subprocess.Popen[bytes]]:
    config = profile / "qBittorrent" / "config" / "qBittorrent.conf"
    config.parent.mkdir(parents=True)
    config.write_text(
        "[LegalNotice]\nAccepted=true\n"
        "[Preferences]\nWebUI\\Enabled=false\nWebUI\\LocalHostAuth=false\nWebUI\\Address=127.0.0.1\nWebUI\\Port=0\n"
        f"[BitTorrent]\nSession\\DefaultSavePath={target}\nSession\\DHTEnabled=false\nSession\\LSDEnabled=false\n"
        "Session\\PeXEnabled=false\nSession\\Interface=lo\nSession\\InterfaceAddress=127.0.0.1\nSession\\Port=0\n"
        "Session\\AddTorrentPaused=false\nSession\\TorrentContentLayout=Original\n"
    )
    command = ["qbittorrent-nox", f"--profile={profile}", f"--save-path={target}", "--skip-dialog=true", str(metafile)]
    with (profile / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def with_qbittorrent(metafile: Path, target: Path, done: Callable[[], bool]) -> None:
    with qbittorrent(target.parent / "profile", target, metafile):
        until(done, "qBittorrent has it all", 40)


STOCK: dict[str, Fetch] = {"libtorrent": with_libtorrent}
if shutil.which("qbittorrent-nox"):
    STOCK["qbittorrent"] = with_qbittorrent


@pytest.mark.parametrize("client", STOCK)
def test_a_stock_client_downloads_from_the_masters(cluster: Cluster, tmp_path: Path, client: str) -> None:
    """If this failed, nobody but our own programs could take part in a swarm."""
    source = tmp_path / "source"
    write_tree(source, {"a.bin": some_bytes(2_000_000, 21), "b/c.bin": some_bytes(700_000, 22)})
    cluster.upload(source, "for-stock-clients")
    answer = cluster.http.get(f"{cluster.url('master-2')}/v1/bundles/for-stock-clients/metafile?tracker=true")
    metafile = tmp_path / "bundle.torrent"
    metafile.write_bytes(answer.content)
    target = tmp_path / "target"
    target.mkdir()

    def arrived() -> bool:
        return picture(source) == picture(target / "content")

    STOCK[client](metafile, target, arrived)

    assert arrived()


def test_a_wrong_tracker_key_hands_out_nobody(cluster: Cluster, tmp_path: Path) -> None:
    """If this failed, every user who can reach a master could list the hosts that hold a bundle."""
    source = tmp_path / "source"
    write_tree(source, {"a.bin": some_bytes(100_000, 23)})
    digest = cluster.upload(source, "tracker-key")["digest"]
    query = {"info_hash": bytes.fromhex(digest)[:20], "peer_id": b"-XX0000-aaaaaaaaaaaa", "port": 6999, "left": 1}
    quoted = "&".join(
        f"{k}={re.sub('..', lambda m: '%' + m[0], v.hex()) if isinstance(v, bytes) else v}" for k, v in query.items()
    )

    answer = cluster.http.get(f"{cluster.url('master-1')}/announce/{'0' * 32}?{quoted}")

    assert b"failure reason" in answer.content
    assert b"peers" not in answer.content


def test_an_upload_bypasses_no_check(cluster: Cluster, tmp_path: Path) -> None:
    """If this failed, a bundle could reach out of its directory on every host, or hang on a
    pipe."""
    escaping = tmp_path / "escaping"
    write_tree(escaping, {"a": b"1"})
    (escaping / "out").symlink_to("../../etc")
    fifo = tmp_path / "fifo"
    write_tree(fifo, {"a": b"1"})
    os.mkfifo(fifo / "pipe")
    empty = tmp_path / "empty"
    (empty / "nothing").mkdir(parents=True)

    began = time.monotonic()
    refused = [cluster.run("upload", path, "--id", "refused") for path in (escaping, fifo, empty)]

    assert [2, 2, 2] == [ran.code for ran in refused]
    assert ["unsafe_symlink", "special_file", "empty_bundle"] == [
        re.findall(r"error\[(\w+)\]", ran.stderr)[0] for ran in refused
    ]
    assert time.monotonic() - began < patient(20)
    assert cluster.get("master-1", "/v1/bundles/refused") is None


def test_a_metafile_that_is_about_to_come_is_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    """If this failed, a host that a master sends to another host would ask a moment too early, and
    ask the master instead."""
    write_tree(tmp_path / "soon", {"a": some_bytes(1000, 7)})
    digest = cluster.upload(tmp_path / "soon", "soon")["digest"]
    host = cluster.supervisors()[0]
    (url,) = [
        known["url"] for known in cluster.get(cluster.masters()[0], "/v1/cluster")["supervisors"] if known["id"] == host
    ]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(cluster.http.get, f"{url}/v1/metafiles/{digest}", params={"wait": "20"})
        early = cluster.http.get(f"{url}/v1/metafiles/{digest}", params={"wait": "0.2"})
        cluster.run("bundle", "distribute", "soon", "--supervisors", host).ok()
        answer = asked.result()

    assert (404, 200) == (early.status_code, answer.status_code)
    assert answer.content == cluster.http.get(f"{cluster.url(cluster.masters()[0])}/v1/bundles/soon/metafile").content


def test_a_large_metafile_comes_from_hosts_that_have_it(new_cluster: NewCluster, tmp_path: Path) -> None:
    """Three masters would send the metafile of a bundle of many files to each of a thousand hosts.
    It takes long: a cluster starts, and a bundle of very many files is made."""
    cluster = new_cluster(masters=1, supervisors=3)
    source = tmp_path / "many"
    write_tree(source, {f"{'a long name ' * 15}{number}": b"%d" % number for number in range(1500)})
    uploaded = cluster.upload(source, "many-names", replicas=1)
    *earlier, last = cluster.supervisors()
    for host in earlier:
        cluster.run("bundle", "distribute", "many-names", "--supervisors", host).ok()
    url = f"{cluster.url('master-1')}/v1/bundles/many-names/metafile"
    sent_on = cluster.http.get(url, params={"for": last})
    from_host = cluster.http.get(sent_on.headers["location"])

    assert cluster.http.get(url).content == from_host.content
    assert uploaded["digest"] == sent_on.headers["x-digest"]
    assert all(cluster.published(host, uploaded["digest"]) for host in earlier)


@pytest.mark.case("A28")
def test_a_host_that_was_away_for_long_takes_the_new_content_of_an_id(new_cluster: NewCluster, tmp_path: Path) -> None:
    """A host would run the old content of an id for ever that was removed and given to another
    bundle while it was away. It takes long: a cluster starts, and a tombstone is forgotten."""
    cluster = new_cluster({"replication": {"tombstone_secs": 1.0, "abandon_secs": 1.0}}, masters=1, supervisors=1)
    old, new = make_source(tmp_path / "old", 1), make_source(tmp_path / "new", 2)
    cluster.upload(old, "moved", replicas=1)
    cluster.run("bundle", "distribute", "moved").ok()
    cluster.kill("supervisor-1")
    cluster.run("bundle", "rm", "moved").ok()
    cluster.kill("master-1")  # It forgets which hosts had it.
    cluster.start("master-1")
    with zookeeper_of(cluster) as client:
        tombstone = f"{cluster.root}/code-distributor/moved"
        until(lambda: client.exists(tombstone) is None, "the tombstone is forgotten", 60.0)
    again = ("upload", new, "--id", "moved", "--min-replicas", "1")
    until(lambda: cluster.run(*again).code == 0, "the id is free")
    cluster.start("supervisor-1")
    until(lambda: cluster.registered("supervisor-1", at="master-1"), "the host is back")
    cluster.run("bundle", "distribute", "moved").ok()
    path = cluster.get("supervisor-1", "/bundles/moved")["path"]

    assert picture(new) == picture(Path(path))
