"""The directory of bundles by their ids, and the leases in it."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torrentdist.model.configuration.config import Config, StoreConfig, SupervisorConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.fleet_messages import HostBundleView, HostState
from torrentdist.supervisor.ids import bundle_python, room
from torrentdist.supervisor.ids import leases as leases_module
from torrentdist.supervisor.ids.bundle_links import BundleLinks
from torrentdist.supervisor.ids.ids_directory import IdsDirectory
from torrentdist.supervisor.ids.lease_api import LeaseApi
from torrentdist.supervisor.ids.leases import ASKED_SECS, Leases

pytestmark = pytest.mark.anyio
ID = BundleId("env-43")
DIGEST = Digest("d" * 64)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_link_changes_in_one_step_and_goes(tmp_path: Path) -> None:
    """An executor that starts in the moment of a change would find no environment."""
    directory = IdsDirectory.open(tmp_path / "ids", "owner")
    directory.put(ID, str(tmp_path / "one"))
    directory.put(ID, str(tmp_path / "two"))
    changed = directory.links()
    directory.remove(ID)

    assert {ID: str(tmp_path / "two")} == changed
    assert {} == directory.links()
    assert [".leases", ".supervisor"] == sorted(path.name for path in directory.path.iterdir())


@pytest.mark.parametrize(("readable_by", "mode"), [("owner", 0o700), ("everyone", 0o755)])
def test_who_reads_bundles_follows_the_links(tmp_path: Path, readable_by: str, mode: int) -> None:
    """A user who may not read would learn which bundles there are, or one who may would not get to
    them."""
    directory = IdsDirectory.open(tmp_path / "ids", readable_by)
    directory.equip("http://127.0.0.1:7070")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (directory.path, directory.leases)}

    assert {"ids": mode, ".leases": mode} == modes
    assert 0o755 == stat.S_IMODE(directory.spark.stat().st_mode)
    assert {"python": 0o755, "gateway": 0o644} == {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.spark.iterdir()
    }


def test_a_second_supervisor_and_strangers_are_refused(tmp_path: Path) -> None:
    """Two supervisors would remove each other's links, and a stranger's file would be run."""
    IdsDirectory.open(tmp_path / "ids", "owner")
    with pytest.raises(TorrentdistError, match="another supervisor of this host"):
        IdsDirectory.open(tmp_path / "ids", "owner")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(TorrentdistError, match="other users can write"):
        IdsDirectory.open(tmp_path / "open", "owner")


def test_the_default_directory_is_left_out_where_it_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor without root would not start, or one whose own directory fails would go on
    without it."""
    (tmp_path / "file").write_text("")
    default = SupervisorConfig(ids_dir=str(tmp_path / "file" / "ids"))
    config = Config(supervisor=default, store=StoreConfig())
    with pytest.raises(TorrentdistError, match=r"supervisor\.ids_dir"):
        room.open_directory(config)
    monkeypatch.setattr(room, "SupervisorConfig", lambda: default)

    assert room.open_directory(config) is None
    assert room.open_directory(Config(supervisor=SupervisorConfig(ids_dir=""))) is None


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    """A directory that an administrator put there would be lost."""
    directory = IdsDirectory.open(tmp_path / "ids", "owner")
    (directory.path / ID).mkdir()
    with pytest.raises(TorrentdistError, match="in the way"):
        directory.put(ID, "/x")

    assert {} == directory.links()


def test_a_lease_lasts_as_long_as_a_process_holds_its_lock(tmp_path: Path) -> None:
    """A bundle would be evicted under a running executor, or never again."""
    clock = Clock()
    leases = Leases(tmp_path, clock)
    file = os.open(leases.ask(ID), os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_SH)
    clock.now += ASKED_SECS
    locked = leases.is_held(ID)
    restarted = Leases(tmp_path, clock)
    clock.now += ASKED_SECS
    again = restarted.held()
    os.close(file)
    free = restarted.held()

    assert (True, frozenset({ID}), frozenset()) == (locked, again, free)
    assert [] == list(tmp_path.iterdir())


def test_what_programs_use_is_known_after_a_restart(tmp_path: Path) -> None:
    """If this fails, a restart of the supervisor and a removal take the content from under running
    programs, also that of an older bundle with the same id."""
    clock, other = Clock(), Digest("2" * 64)
    leases = Leases(tmp_path, clock)
    file = os.open(leases.ask(ID), os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_SH)
    for digest in (DIGEST, other, DIGEST, other):
        leases.note(ID, digest)
    restarted = Leases(tmp_path, clock)
    clock.now += ASKED_SECS
    used, latest = restarted.digests(), restarted.contents()
    one_by_one = [restarted.is_content_held(Digest(letter * 64)) for letter in "d2e"]
    os.close(file)

    assert (frozenset({DIGEST, other}), {ID: other}) == (used, latest)
    assert [True, True, False] == one_by_one
    assert frozenset() == restarted.digests()
    assert not restarted.is_content_held(DIGEST)


def test_a_lease_file_that_is_damaged_stops_no_supervisor(tmp_path: Path) -> None:
    """If this fails, a supervisor does not start, or drops what it takes for a digest."""
    (tmp_path / ID).write_bytes(b"\xff\x00 no digest")

    assert frozenset() == Leases(tmp_path, Clock()).digests()


def test_one_who_asks_for_a_lease_has_time_to_lock(tmp_path: Path) -> None:
    """Between the answer and the lock, the bundle could go."""
    clock = Clock()
    leases = Leases(tmp_path, clock)
    leases.ask(ID)
    clock.now += ASKED_SECS - 1

    assert leases.is_held(ID)
    assert not leases.is_held(BundleId("other"))


def test_who_asks_while_leases_are_looked_at_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, an executor that asks in such a moment finds no link to its bundle, or the
    bundle goes from under it, although it holds its lock."""
    clock, other = Clock(), BundleId("other")
    leases = Leases(tmp_path, clock)
    leases.ask(ID)
    clock.now += ASKED_SECS
    look, asks = leases._is_locked, [ID, other]

    def asked_meanwhile(bundle: BundleId) -> bool:
        found = look(bundle)
        clock.now += 1.0
        while asks:
            leases.ask(asks.pop())
        return found

    monkeypatch.setattr(leases, "_is_locked", asked_meanwhile)
    leases.held()

    assert leases.is_held(ID)
    assert leases.is_held(other)


def test_a_lock_taken_as_leases_are_looked_at_is_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a bundle goes from under an executor that locked it a minute after it had
    asked."""
    clock = Clock()
    leases = Leases(tmp_path, clock)
    path = leases.ask(ID)
    clock.now += ASKED_SECS
    look, files = leases._is_locked, list[int]()

    def locked_afterwards(bundle: BundleId) -> bool:
        found = look(bundle)
        if not files:
            files.append(os.open(path, os.O_RDONLY))
            fcntl.flock(files[0], fcntl.LOCK_SH)
        return found

    monkeypatch.setattr(leases, "_is_locked", locked_afterwards)
    leases.held()
    is_held, file_stays = leases.is_held(ID), path.exists()
    os.close(files[0])

    assert (True, True) == (is_held, file_stays)
    assert frozenset() == leases.held()


def test_a_file_that_an_administrator_removed_stops_no_lease(tmp_path: Path) -> None:
    """Every look would fail, so that no link would be made or removed any more."""
    clock = Clock()
    leases = Leases(tmp_path, clock)
    leases.ask(ID).unlink()
    clock.now += ASKED_SECS

    assert frozenset() == leases.held()
    assert leases.ask(ID).exists()


def test_a_disk_that_fails_ends_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a bundle goes from under a program because its lock cannot be looked at, or
    the program is told of a bug."""
    clock = Clock()
    leases = Leases(tmp_path, clock)
    leases.ask(ID)
    leases.note(ID, DIGEST)
    clock.now += ASKED_SECS

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", broken)

    assert leases.is_held(ID)
    assert frozenset({DIGEST}) == leases.digests()
    with pytest.raises(TorrentdistError, match="Input/output error"):
        leases.ask(ID)


def test_a_program_waits_until_the_supervisor_has_looked_at_its_bundle(tmp_path: Path) -> None:
    """If this fails, a program that starts during such a look has no lease, and its bundle goes
    from under it."""
    clock = Clock()
    leases = Leases(tmp_path, clock)
    leases.ask(ID)
    clock.now += ASKED_SECS
    look = os.open(tmp_path / ID, os.O_RDONLY)
    fcntl.flock(look, fcntl.LOCK_EX)
    end = threading.Timer(0.05, os.close, [look])
    end.start()
    file = bundle_python._lock(str(tmp_path / ID))
    end.join()
    held = leases.is_held(ID)

    assert file is not None
    os.close(file)
    assert (True, False) == (held, leases.is_held(ID))


def test_there_is_a_bound_on_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who asks for ever new names would fill the disk with files."""
    monkeypatch.setattr(leases_module, "MOST_LEASES", 2)
    leases = Leases(tmp_path)
    for name in ("a", "b", "a"):
        leases.ask(BundleId(name))
    with pytest.raises(TorrentdistError, match="the list of leases"):
        leases.ask(BundleId("c"))


def test_a_lease_counts_before_a_removal_is_waited_for(tmp_path: Path) -> None:
    """If this fails, a removed bundle goes from under a program that was told it may use it. One
    that just had to make room is fetched again, or the program would be told that there is none."""
    leases, known, requested = Leases(tmp_path), list[frozenset[Digest]](), list[BundleId]()
    leases.ask(ID)

    async def settled_bundle(digest: Digest) -> None:
        known.append(leases.digests())

    async def nothing(*_: object) -> None: ...

    store = SimpleNamespace(settled_bundle=settled_bundle, touch=nothing, get=lambda digest: None)

    async def view(bundle: BundleId) -> HostBundleView:
        return HostBundleView(id=bundle, digest=DIGEST, state=HostState.FETCHING)

    keeper = SimpleNamespace(view=view, request=requested.append)
    rest: Any = {"keeper": keeper, "links": SimpleNamespace(update=nothing), "directory": None}
    api = LeaseApi(runtime=SimpleNamespace(store=store), leases=leases, **rest)  # type: ignore[arg-type]
    asyncio.run(api._kept(HostBundleView(id=ID, digest=DIGEST, state=HostState.DONE)))

    assert [frozenset({DIGEST})] == known
    assert [ID] == requested


async def test_a_lease_of_a_bundle_without_its_link_is_told_why(tmp_path: Path) -> None:
    """If this fails, an executor on a host that cannot make the link ends at once, with an error
    that blames the bundle."""
    directory = IdsDirectory.open(tmp_path / "ids", "owner")
    stored = SimpleNamespace(digest=DIGEST, content=tmp_path / "content", pinned=False)
    done = HostBundleView(id=ID, digest=DIGEST, state=HostState.DONE, path=str(stored.content))

    def returns(value: object) -> Any:
        async def call(*_: object) -> object:
            return value

        return call

    store = SimpleNamespace(
        settled_bundle=returns(stored), touch=returns(None), get=lambda _: stored, bindings=lambda: {ID: DIGEST}
    )
    known = SimpleNamespace(is_pinned=lambda _: False)
    keeper: Any = SimpleNamespace(
        view=returns(done), checked=returns(stored), verify=returns(None), assigned=frozenset, knows_assignment=True
    )
    runtime: Any = SimpleNamespace(store=store, known=known)
    leases = Leases(directory.leases)
    links = BundleLinks(directory, leases, runtime, keeper)
    api = LeaseApi(runtime, keeper, directory, leases, links)
    leases.ask(ID)
    directory.link(ID).mkdir()
    with pytest.raises(TorrentdistError) as refused:
        await api._kept(done)
    directory.link(ID).rmdir()

    assert "disk_error" == refused.value.code
    assert "in the way" in refused.value.message
    assert refused.value.code not in bundle_python.FINAL
    assert done == await api._kept(done)
    assert {ID: str(stored.content)} == directory.links()
