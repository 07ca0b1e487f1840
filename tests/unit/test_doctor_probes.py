"""What the doctor does where a host, a server or a directory is not as it should be."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from torrentdist.client import doctor
from torrentdist.model.configuration.config import Config, ZooKeeperConfig
from torrentdist.model.wire.doctor_views import Verdict


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "port"), [("a..b", 7000), ("x" * 70, 7000), ("127.0.0.1", 70_000)])
async def test_a_host_with_a_broken_address_is_a_finding(name: str, port: int) -> None:
    """If this fails, one host that registers nonsense ends the doctor for everybody, without a
    word of what it found."""
    assert "" != await doctor._why_closed(name, port)


@pytest.mark.anyio
async def test_a_zookeeper_server_with_a_broken_name_is_a_finding() -> None:
    """If this fails, a slip in `zookeeper.servers` ends the doctor, which should find it."""
    assert "" != (await doctor._server("zk..example:2181", ZooKeeperConfig())).detail


@pytest.mark.anyio
async def test_a_cluster_that_hangs_does_not_hide_this_hosts_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, the doctor says nothing of the supervisor here when masters do not answer in
    time, which is when a user needs it."""

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setattr(doctor, "ALL_SECS", 0.05)
    async with await asyncio.start_server(wait, "127.0.0.1", 0) as silent:
        url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        client = msgspec.structs.replace(Config().client, masters=[url], supervisor="http://127.0.0.1:1")
        found = await doctor.examine(msgspec.structs.replace(Config(), client=client), {"client.supervisor": "a flag"})

    assert [("time", Verdict.FAIL), ("supervisor", Verdict.FAIL)] == [(one.check, one.verdict) for one in found[-2:]]


def test_a_data_directory_that_is_closed_to_this_user_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, the doctor ends with an internal error for a user who may not look into the
    directory of a daemon."""
    look = os.stat

    def refused(path: str | Path, **how: bool) -> os.stat_result:
        if Path(path).name == "supervisor":
            raise PermissionError(13, "Permission denied")
        return look(path, **how)

    monkeypatch.setattr(os, "stat", refused)
    found = doctor._disk(tmp_path / "supervisor")

    assert (str(tmp_path / "supervisor"), True) == (found.path, found.total > 0)
