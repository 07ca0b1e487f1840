"""Measures the time from a leader's end to the next accepted change, and how fast a standby catches
up.

`python -m bench.measures.failover [--short]` prints a line of JSON. It exits with 1 if a bar was
missed.

Always: a change counts as accepted when a master has answered 200. Every run begins with all
masters in the queue.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import httpx

from bench.results import Row
from bench.stage import cluster_of
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.client_peer import client_peer, seeding_home
from torrentdist.client.bundles.upload import UploadWanted, upload
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.dev.dev_cluster import DevCluster
from torrentdist.dev.embedded_zookeeper import TICK_MS
from torrentdist.model.configuration.config import ClientConfig, Config
from torrentdist.model.ids import BundleId

SESSION_SECS = 4.0
KILLED_BAR = SESSION_SECS + TICK_MS / 1000 + 1.0
STOPPED_BAR = 1.0
FETCH_BAR = 0.1
ASK_SECS = 0.02
PATIENCE_SECS = 30.0
MIB = 1024 * 1024
UPLOADS_AT_ONCE = 8


def measure_killed(directory: Path, *, runs: int) -> list[Row]:
    with cluster_of(directory / "killed", masters=3, supervisors=0, session_secs=SESSION_SECS) as cluster:
        return asyncio.run(_killed(cluster, directory, runs))


def measure_handed_over(directory: Path, *, runs: int) -> list[Row]:
    with cluster_of(directory / "handed-over", masters=3, supervisors=0, session_secs=SESSION_SECS) as cluster:
        return asyncio.run(_handed_over(cluster, directory, runs))


def measure_catch_up(directory: Path, *, bundles: int) -> list[Row]:
    with cluster_of(directory / "second", masters=2, supervisors=0, session_secs=SESSION_SECS) as cluster:
        return [asyncio.run(_catch_up(cluster, directory, bundles))]


async def _killed(cluster: DevCluster, directory: Path, runs: int) -> list[Row]:
    async with httpx.AsyncClient(trust_env=False, timeout=2.0, headers=cluster.headers()) as http:
        stage = _ThreeMasters(cluster, http)
        await _fetch_delay(stage, _client_of(cluster), directory, 0)
        killed = [await stage.run(signal.SIGKILL) for _ in range(runs)]
    return [_row("failover-killed", "kill -9 of the leader to the next accepted change: longest", killed, KILLED_BAR)]


async def _handed_over(cluster: DevCluster, directory: Path, runs: int) -> list[Row]:
    async with httpx.AsyncClient(trust_env=False, timeout=2.0, headers=cluster.headers()) as http:
        stage = _ThreeMasters(cluster, http)
        fetched = [await _fetch_delay(stage, _client_of(cluster), directory, number) for number in range(runs)]
        transferred = [await stage.transfer() for _ in range(runs)]
        stopped = [await stage.run(signal.SIGTERM) for _ in range(runs)]
    return [
        _row("failover-stopped", "SIGTERM to the leader to the next accepted change: longest", stopped, STOPPED_BAR),
        _row("failover-transferred", "`ha transfer` to the next accepted change: longest", transferred, STOPPED_BAR),
        Row(
            key="standby-fetch",
            what="the record of an upload to a standby's fetch",
            ours=statistics.median(fetched),
            unit="s",
            bar=FETCH_BAR,
            note=f"{runs} uploads, longest {max(fetched):.3f} s",
        ),
    ]


def _client_of(cluster: DevCluster) -> Config:
    return Config(client=ClientConfig(masters=cluster.masters(), supervisor="", token_file=str(cluster.token_file)))


def _row(key: str, what: str, seconds: list[float], bar: float) -> Row:
    note = f"{len(seconds)} runs, median {statistics.median(seconds):.2f} s, session {SESSION_SECS:g} s"
    return Row(key=key, what=what, ours=max(seconds), unit="s", bar=bar, note=note)


class _ThreeMasters:
    """Three masters, whose leader is ended again and again."""

    def __init__(self, cluster: DevCluster, http: httpx.AsyncClient) -> None:
        self._cluster = cluster
        self._http = http
        self.dir = cluster.dir
        self.masters = {f"master-{n}": cluster.member(f"master-{n}").url for n in (1, 2, 3)}

    async def run(self, number: signal.Signals) -> float:
        """Ends the leader. Returns the seconds until a change is accepted."""
        leader = await self.settled()
        others = [url for name, url in self.masters.items() if name != leader]
        began = time.perf_counter()
        os.kill(self._cluster.member(leader).pid, number)
        first, pending = await asyncio.wait(
            [asyncio.create_task(self._until_accepted(url)) for url in others], return_when=asyncio.FIRST_COMPLETED
        )
        seconds = time.perf_counter() - began
        for task in pending:
            task.cancel()
        await asyncio.gather(*first, *pending, return_exceptions=True)
        await asyncio.to_thread(self._cluster.signal, leader, signal.SIGKILL)
        self._cluster.start(leader)
        await asyncio.to_thread(self._cluster.wait_started, leader)
        return seconds

    async def transfer(self) -> float:
        """Transfers the leadership. Returns the seconds until the new leader accepts a change."""
        leader = await self.settled()
        target = next(name for name in self.masters if name != leader)
        began = time.perf_counter()
        answer = await self._http.post(f"{self.masters[leader]}/v1/transfer", json={"master": target})
        if answer.status_code != 200:
            raise RuntimeError(f"{leader} does not hand over to {target}: {answer.text}")
        await self._until_accepted(self.masters[target])
        return time.perf_counter() - began

    async def _until_accepted(self, url: str) -> None:
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if (await self._http.put(f"{url}/v1/bundles/timed-0/pin")).status_code == 200:
                    return
            await asyncio.sleep(ASK_SECS)

    async def settled(self) -> str:
        """Waits until both standbys are in the queue, and returns the leader."""
        deadline = time.monotonic() + PATIENCE_SECS
        while time.monotonic() < deadline:
            for name, url in self.masters.items():
                with contextlib.suppress(httpx.HTTPError):
                    states = [view["state"] for view in (await self._http.get(f"{url}/v1/roles")).json()]
                    leads = (await self._http.get(f"{url}/leaderz")).status_code == 200
                    if leads and sorted(states) == ["leader", "standby", "standby"]:
                        return name
            await asyncio.sleep(ASK_SECS)
        raise RuntimeError("the masters don't settle")


async def _fetch_delay(stage: _ThreeMasters, config: Config, directory: Path, number: int) -> float:
    """Measures the time from the leader's decision to write the record until a standby's disk shows
    the first sign of the fetch."""
    leader = await stage.settled()
    source, name = directory / f"timed-{number}", BundleId(f"timed-{number}")
    _write_bundle(source)
    async with MasterClient(config.client) as client:
        view = await upload(client, source, name, UploadWanted(min_replicas=3, timeout=PATIENCE_SECS))
        record = await client.bundle(name)
    stores = [stage.dir / master for master in stage.masters if master != leader]
    begun = [(store / "objects" / view.digest / "metafile").stat().st_mtime for store in stores]
    return max(0.0, max(begun) - record.created_at)


def _write_bundle(bundle: Path) -> None:
    bundle.mkdir()
    (bundle / "code.bin").write_bytes(os.urandom(MIB))


async def _catch_up(cluster: DevCluster, directory: Path, bundles: int) -> Row:
    """Measures a third master with an empty disk, from its start until it holds everything."""
    config = _client_of(cluster)
    asking = httpx.AsyncClient(trust_env=False, timeout=2.0, headers=cluster.headers())
    async with MasterClient(config.client) as client, asking as http:
        async with client_peer(client, config.swarm, ()) as peer:
            turns = asyncio.Semaphore(UPLOADS_AT_ONCE)

            async def fill(name: BundleId, stack: contextlib.ExitStack) -> None:
                async with turns:
                    source = directory / name
                    _write_bundle(source)
                    meta = make_metafile(source)
                    peer.engine.seed(meta, stack.enter_context(seeding_home(meta, source)))
                    await peer.announce()
                    await client.open_upload(name, meta.raw, 2)
                    assert (await client.wait_replicas(name, 2, 60.0)).replicas == 2

            with contextlib.ExitStack() as stack:
                await asyncio.gather(*(fill(BundleId(f"many-{n}"), stack) for n in range(bundles)))
        began = time.perf_counter()
        cluster.write_config("master-3", port=0)
        cluster.start("master-3")
        await asyncio.to_thread(cluster.wait_started, "master-3")
        url, looks = cluster.member("master-3").url, 0
        while min([len(view.holders) for view in await client.bundles()]) < 3:
            looks += 1
            assert (await http.get(f"{url}/leaderz")).status_code == 503, "it leads and lacks bundles"
            await asyncio.sleep(ASK_SECS)
        seconds = time.perf_counter() - began
    return Row(
        key="catch-up",
        what=f"a new master's catch-up with {bundles} bundles of 1 MiB",
        ours=seconds,
        unit="s",
        note=f"from its start; it did not lead at any of {looks} looks meanwhile",
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.measures.failover", description=__doc__)
    parser.add_argument("--short", action="store_true", help="for CI")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="torrentdist-bench-") as directory:
        runs, bundles = (5, 50) if args.short else (20, 200)
        rows = measure_killed(Path(directory) / "a", runs=runs)
        rows += measure_handed_over(Path(directory) / "b", runs=runs)
        rows += measure_catch_up(Path(directory) / "c", bundles=bundles)
    print(json.dumps([{**asdict(row), "met": row.met} for row in rows]))
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
