"""The contract of CodeDistributor as tests for pytest. Subclass it in a test module:

    class TestMine(CodeDistributorConformance):
        plugin = "acme.distribution:AcmeCodeDistributor"

Always: every test loads plug-ins by their name, on hosts of its own.
Never: look inside a plug-in.
Longer than most files, because a plug-in is tested by this one class.
"""

# ruff: noqa: SIM300 - a test of ours compares expected == actual, also when what is expected is a constant

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from torrentdist.distributor.loader import joins_uploads, load_distributor
from torrentdist.testing.loopback_hosts import LoopbackHost, LoopbackHosts
from torrentdist.testing.sample_trees import (
    MANY_SMALL,
    NESTED,
    ODD_NAMES,
    SINGLE_FILE,
    SMALL,
    Tree,
    read_tree,
    write_tree,
)

_T = TypeVar("_T")


class PluginHosts:
    """Three hosts a, b and c, each with the plug-in under test."""

    def __init__(self, hosts: LoopbackHosts, plugin: str, options: Mapping[str, Any], deadline_secs: float) -> None:
        self.hosts = hosts
        self.a, self.b, self.c = (
            PluginHost(hosts, hosts.start(name), plugin, options, deadline_secs) for name in "abc"
        )

    def __iter__(self) -> Iterator[PluginHost]:
        return iter((self.a, self.b, self.c))

    def remove(self, bundle_id: str) -> None:
        """Removes a bundle as a cluster does."""
        self.hosts.forget(bundle_id)
        for each in self:
            each.plugin.cleanup(bundle_id)


class PluginHost:
    """One host with the plug-in under test."""

    def __init__(
        self,
        hosts: LoopbackHosts,
        host: LoopbackHost,
        plugin: str,
        options: Mapping[str, Any],
        deadline_secs: float,
    ) -> None:
        self.host = host
        self._hosts = hosts
        self._deadline_secs = deadline_secs
        conf = {"options": dict(options), "data_dir": str(host.plugin_dir()), "host": host}
        self.plugin = load_distributor(plugin, conf)

    def upload(self, bundle_id: str, tree: Tree) -> bytes:
        """Takes a directory and uploads it, as a master that is no holder yet. Returns the
        plug-in's metafile."""
        content = self.host.take_directory(bundle_id, tree)
        return self.plugin.upload(content, bundle_id).read_bytes()

    def offer(self, bundle_id: str, tree: Tree) -> bytes:
        """Uploads and becomes a holder. Returns the plug-in's metafile."""
        metafile = self.upload(bundle_id, tree)
        self.host.publish(bundle_id)
        return metafile

    def dest_dir(self, bundle_id: str) -> Path:
        """The directory for a bundle that this host downloads."""
        return self.host.content_dir(self._hosts.digest(bundle_id))

    def start_download(self, bundle_id: str, metafile: bytes) -> Future[list[Path]]:
        dest_dir = self.dest_dir(bundle_id)
        given = self.host.directory / f"{bundle_id}.given-metafile"
        given.write_bytes(metafile)
        return in_thread(lambda: self.plugin.download(dest_dir, bundle_id, given))

    def download(self, bundle_id: str, metafile: bytes) -> dict[str, bytes]:
        """Downloads within the deadline. Returns the content of the destination."""
        self.start_download(bundle_id, metafile).result(self._deadline_secs)
        return read_tree(self.dest_dir(bundle_id))

    def failure(self, bundle_id: str, metafile: bytes) -> BaseException | None:
        """Downloads within the deadline. Returns its exception, or None if it claims success."""
        return self.start_download(bundle_id, metafile).exception(self._deadline_secs)


def in_thread(work: Callable[[], _T]) -> Future[_T]:
    """Runs `work` in a thread that doesn't keep the process alive if it hangs."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as exc:
            future.set_exception(exc)

    threading.Thread(target=run, daemon=True).start()
    return future


class CodeDistributorConformance:
    """The tests. A subclass names the plug-in, and overrides what differs for it."""

    plugin: ClassVar[str]
    """`package.module:Class`"""
    deadline_secs: ClassVar[float] = 60.0
    """Seconds that a download may take here, failing ones included. Give the plug-in options that
    fit."""

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        """`codedistributor.options` of the plug-in on every host. Override it if yours needs
        some."""
        return {}

    @pytest.fixture
    def trio(self, tmp_path: Path, options: Mapping[str, Any]) -> Iterator[PluginHosts]:
        with LoopbackHosts(tmp_path / "hosts") as hosts:
            trio = PluginHosts(hosts, self.plugin, options, self.deadline_secs)
            yield trio
            for each in trio:
                each.plugin.close()

    def break_sources(self, trio: PluginHosts, options: Mapping[str, Any]) -> None:
        """Makes all sources fail that host c could download from. Override it if that isn't host
        a."""
        trio.a.host.crash()

    def mend_sources(self, trio: PluginHosts, options: Mapping[str, Any]) -> None:
        """Undoes break_sources."""
        trio.a.host.restart()

    @pytest.mark.parametrize(
        "tree",
        [NESTED, ODD_NAMES, SINGLE_FILE, MANY_SMALL],
        ids=["nested", "odd names", "one file in it", "many files"],
    )
    def test_a_directory_arrives_byte_for_byte(self, trio: PluginHosts, tree: Tree) -> None:
        """A job would run with files that are missing, damaged, renamed or strange."""
        metafile = trio.a.offer("etl-42", tree)

        assert tree == trio.b.download("etl-42", metafile)

    def test_a_single_file_arrives_byte_for_byte(self, trio: PluginHosts) -> None:
        """A bundle that is one file would land elsewhere than its path says."""
        content = trio.a.host.take_single_file("jar", SINGLE_FILE)
        metafile = trio.a.plugin.upload(content, "jar").read_bytes()
        trio.a.host.publish("jar")

        assert SINGLE_FILE == trio.b.download("jar", metafile)

    def test_the_files_are_returned(self, trio: PluginHosts) -> None:
        """The host would not know what was downloaded."""
        metafile = trio.a.offer("etl-42", NESTED)
        dest_dir = trio.b.dest_dir("etl-42")
        returned = trio.b.start_download("etl-42", metafile).result(self.deadline_secs)

        assert {dest_dir / path for path in NESTED} == set(returned)

    def test_the_metafile_is_the_plugins_own(self, trio: PluginHosts) -> None:
        """The plug-in would write into directories of others."""
        content = trio.a.host.take_directory("etl-42", SMALL)
        metafile = trio.a.plugin.upload(content, "etl-42")

        assert metafile.is_relative_to(trio.a.host.plugin_dir())
        assert SMALL == read_tree(content)

    def test_a_download_serves_the_next_one(self, trio: PluginHosts) -> None:
        """A bundle would be gone with the host that it was uploaded to, though another one has
        it."""
        metafile = trio.a.offer("etl-42", SMALL)
        trio.b.download("etl-42", metafile)
        trio.b.host.publish("etl-42")
        trio.a.host.withdraw("etl-42")
        trio.a.host.crash()

        assert SMALL == trio.c.download("etl-42", metafile)

    def test_uploading_again_changes_nothing(self, trio: PluginHosts) -> None:
        """A client that retries its upload would fail or break the bundle."""
        first = trio.a.offer("etl-42", SMALL)
        second = trio.a.offer("etl-42", SMALL)

        assert first == second
        assert SMALL == trio.b.download("etl-42", second)

    def test_downloading_again_changes_nothing(self, trio: PluginHosts) -> None:
        """A host that missed its own success would fail when it tries again."""
        metafile = trio.a.offer("etl-42", NESTED)
        trio.b.download("etl-42", metafile)

        assert NESTED == trio.b.download("etl-42", metafile)

    def test_the_replication_count_follows_the_holders(self, trio: PluginHosts) -> None:
        """A job would be started before enough hosts have its bundle, or never."""
        metafile = trio.a.offer("etl-42", SMALL)
        counts = [trio.c.plugin.get_replication_count("etl-42")]
        trio.b.download("etl-42", metafile)
        trio.b.host.publish("etl-42")
        counts.append(trio.c.plugin.get_replication_count("etl-42"))
        trio.a.host.withdraw("etl-42")
        counts.append(trio.c.plugin.get_replication_count("etl-42"))

        assert [1, 2, 1] == counts

    def test_an_unknown_bundle_counts_nothing_and_cannot_be_had(self, trio: PluginHosts) -> None:
        """A job would start with an empty directory for its code."""
        metafile = trio.a.offer("etl-42", SMALL)
        trio.remove("etl-42")

        assert trio.b.plugin.get_replication_count("etl-42") == 0
        assert trio.b.plugin.get_replication_count("never-was") == 0
        assert trio.b.failure("etl-42", metafile) is not None

    def test_a_metafile_of_something_else_is_a_failure(self, trio: PluginHosts) -> None:
        """A damaged metafile would count as an empty bundle."""
        trio.a.offer("etl-42", SMALL)

        assert trio.b.failure("etl-42", b"") is not None
        assert trio.b.failure("etl-42", b"no metafile at all") is not None

    def test_a_broken_download_is_completed(self, trio: PluginHosts) -> None:
        """What a killed daemon left would be taken for the bundle, or be in the way for ever."""
        metafile = trio.a.offer("etl-42", NESTED)
        dest_dir = trio.b.dest_dir("etl-42")
        for path, kept in {
            "job.py": 15,
            "data/twin-a": 30_000,
            "data/deeper/still deeper/large.bin": 1_500_000,
        }.items():
            (dest_dir / path).parent.mkdir(parents=True, exist_ok=True)
            (dest_dir / path).write_bytes(NESTED[path][:kept])

        assert NESTED == trio.b.download("etl-42", metafile)

    @pytest.mark.case("H1")
    def test_a_destination_that_is_filled_already_is_completed(self, trio: PluginHosts) -> None:
        """Files that the host took from an older version would be fetched again or be in the
        way."""
        metafile = trio.a.offer("etl-42", NESTED)
        dest_dir = trio.b.dest_dir("etl-42")
        known = ["job.py", "data/twin-a", "data/deeper/still deeper/large.bin"]
        for path in known:
            (dest_dir / path).parent.mkdir(parents=True, exist_ok=True)
            (dest_dir / path).write_bytes(NESTED[path])
        before = [(dest_dir / path).stat().st_ino for path in known]

        assert NESTED == trio.b.download("etl-42", metafile)
        assert before == [(dest_dir / path).stat().st_ino for path in known]

    @pytest.mark.case("H1")
    def test_a_complete_destination_stays(self, trio: PluginHosts) -> None:
        """A version in which only names changed would fail or be fetched again."""
        metafile = trio.a.offer("etl-42", NESTED)
        write_tree(trio.b.dest_dir("etl-42"), NESTED)

        assert NESTED == trio.b.download("etl-42", metafile)

    @pytest.mark.case("A25")
    def test_a_failed_download_is_a_failure_and_can_be_run_again(
        self, trio: PluginHosts, options: Mapping[str, Any]
    ) -> None:
        """A download without a source would hang, or claim success with bytes missing; or a retry
        would not help."""
        metafile = trio.a.offer("etl-42", NESTED)
        self.break_sources(trio, options)
        failure = trio.c.failure("etl-42", metafile)
        self.mend_sources(trio, options)

        assert failure is not None
        assert NESTED == trio.c.download("etl-42", metafile)

    def test_hosts_and_bundles_do_not_disturb_each_other(self, trio: PluginHosts) -> None:
        """Downloads that run at the same time would mix their files or wait for each other for
        ever."""
        trees = {"nested": NESTED, "names": ODD_NAMES, "single": SINGLE_FILE}
        metafiles = {bundle_id: trio.a.offer(bundle_id, tree) for bundle_id, tree in trees.items()}
        running = {
            (each, bundle_id): each.start_download(bundle_id, metafile)
            for each in (trio.b, trio.c)
            for bundle_id, metafile in metafiles.items()
        }
        for download in running.values():
            download.result(self.deadline_secs)

        for each, bundle_id in running:
            assert trees[bundle_id] == read_tree(each.dest_dir(bundle_id))

    def test_cleaning_up_twice_is_once(self, trio: PluginHosts) -> None:
        """A removal that is tried again, or told to a host that never had the bundle, would fail
        for ever."""
        trio.a.offer("etl-42", SMALL)
        trio.remove("etl-42")
        trio.remove("etl-42")
        trio.b.plugin.cleanup("never-was")

        assert trio.a.plugin.get_replication_count("etl-42") == 0

    @pytest.mark.case("A14")
    def test_cleaning_up_spares_ids_that_look_alike(self, trio: PluginHosts) -> None:
        """Removing b1 would remove b10 too, or a bundle with the same content under another id."""
        kept = {"b10": NESTED, "b1.0": ODD_NAMES, "b1-same": SMALL}
        trio.a.offer("b1", SMALL)
        metafiles = {bundle_id: trio.a.offer(bundle_id, tree) for bundle_id, tree in kept.items()}
        trio.remove("b1")

        for bundle_id, tree in kept.items():
            assert trio.b.plugin.get_replication_count(bundle_id) == 1
            assert tree == trio.b.download(bundle_id, metafiles[bundle_id])

    def test_a_removed_bundle_can_be_uploaded_again(self, trio: PluginHosts) -> None:
        """The id of a removed bundle would be burnt for its own content."""
        trio.a.offer("etl-42", SMALL)
        trio.remove("etl-42")
        metafile = trio.b.offer("etl-42", SMALL)

        assert SMALL == trio.c.download("etl-42", metafile)

    def test_a_plugin_that_joins_uploads_needs_no_holder(self, trio: PluginHosts) -> None:
        """Standbys that start during an upload would fail until it is over."""
        if not joins_uploads(trio.a.plugin):
            pytest.skip("this plug-in does not claim joins_uploads")
        metafile = trio.a.upload("etl-42", NESTED)

        assert NESTED == trio.b.download("etl-42", metafile)
