"""The file with a daemon's address, for those who look for the daemon."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from torrentdist.host.process import daemon_address
from torrentdist.host.process.daemon_address import (
    NAME,
    DaemonAddress,
    announce_address,
    announced,
    read_address,
    withdraw_address,
)
from torrentdist.model.errors import TorrentdistError

ADDRESS = DaemonAddress(role="master", id="m1", url="http://127.0.0.1:1", swarm_port=2)


def test_an_address_is_there_while_its_daemon_runs(tmp_path: Path) -> None:
    """If this fails, the program that started a daemon does not find it, or finds a dead one."""
    before = read_address(tmp_path)
    announce_address(tmp_path, ADDRESS)
    known = read_address(tmp_path)
    withdraw_address(tmp_path)
    withdraw_address(tmp_path)

    assert (None, ADDRESS, os.getpid(), None) == (before, known, known and known.pid, read_address(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\xff", b'{"role": "master"}'])
def test_a_damaged_address_is_named(tmp_path: Path, content: bytes) -> None:
    """A user is told that no daemon runs, and starts a second one."""
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(TorrentdistError) as caught:
        read_address(tmp_path)

    assert ("disk_error", str(tmp_path / NAME)) == (caught.value.code, caught.value.fields["path"])


def test_an_address_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A command ends in a traceback when something else lies where the address should."""
    (tmp_path / NAME).mkdir()
    with pytest.raises(TorrentdistError) as caught:
        read_address(tmp_path)

    assert "disk_error" == caught.value.code


def test_an_address_is_written_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk keeps a daemon from serving what is on it, or its address is never written, or
    its log does not say why, or says so at every attempt."""
    monkeypatch.setattr(daemon_address, "FIRST_PAUSE_SECS", 0.001)
    monkeypatch.setattr(daemon_address, "LONGEST_PAUSE_SECS", 0.001)
    place = tmp_path / "not" / "there"
    with pytest.raises(TorrentdistError, match="No such file"):
        announce_address(place, ADDRESS)

    async def play() -> None:
        async with asyncio.timeout(10):
            writing = asyncio.create_task(announced(place, ADDRESS))
            await asyncio.wait({writing}, timeout=0.02)
            place.mkdir(parents=True)
            await writing

    asyncio.run(play())

    assert ADDRESS == read_address(place)
    assert 1 == capsys.readouterr().err.count("cannot write this daemon's address yet")
