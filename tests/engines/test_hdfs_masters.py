"""Three masters that keep their bundles in HDFS: a disk is lost, then the leader, and a job's code
is where the next leader needs it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines.engine_hosts import EngineLab
from engines.hadoop import Hadoop
from engines.torrentdist_site import TorrentdistSite

from bench.lab.namespaces import Host, wait_until

USER, PLACE = "torrentdist", "/masters-bundles"
MASTERS, RUNNER = ("m1", "m2", "m3"), "runner"
JOB, MODEL = "keeps", "model-9"
MODEL_BYTES = 2 * 2**20
WAIT_SECS = 600.0
SAYS = """
import os, time
while True:
    with open("/mnt/keeps.lines", "a") as file:
        print(os.environ["TORRENTDIST_FENCING"], file=file)
    time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def hdfs_site(engine_lab: EngineLab, hadoop: Hadoop) -> Iterator[TorrentdistSite]:
    hadoop.admin("MKDIRS", PLACE)
    hadoop.admin("SETOWNER", PLACE, owner=USER)
    *masters, runner = engine_lab.add([*MASTERS, RUNNER])
    site = TorrentdistSite(engine_lab, "hdfs-site", masters, [runner])
    site.settings = f"""
[jobs]
isolation = "none"
[codedistributor]
class = "fs"
[codedistributor.options]
url = "webhdfs://{hadoop.web}{PLACE}"
storage_options = {{ user = "{USER}" }}
"""
    try:
        site.up()
        yield site
    finally:
        site.down()


def upload(lab: EngineLab, site: TorrentdistSite, runner: Host) -> bytes:
    """Uploads a model, and submits a job that depends on it. Returns the model."""
    disk, data = lab.srv(runner), secrets.token_bytes(MODEL_BYTES)
    for folder in (MODEL, JOB):
        (disk / folder).mkdir()
    (disk / MODEL / "weights.bin").write_bytes(data)
    (disk / JOB / "app.py").write_text(SAYS)
    (disk / JOB / "job.toml").write_text(
        f'name = "{JOB}"\ncommand = ["python3", "app.py"]\ndependencies = ["{MODEL}"]\n'
    )
    site.command(runner, "upload", f"/srv/{MODEL}", "--id", MODEL, "--min-replicas", "3")
    site.command(runner, "job", "submit", f"/srv/{JOB}")
    return data


def runs(lab: EngineLab) -> list[int]:
    """Returns the numbers of the runs that the job's worker wrote, in their order."""
    path: Path = lab.shared / f"{JOB}.lines"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def holders(site: TorrentdistSite, runner: Host) -> set[str]:
    asked = site.tried(runner, "bundle", "show", MODEL)
    shown: dict[str, Any] = json.loads(asked.stdout) if not asked.returncode else {"holders": []}
    return set(shown["holders"])


def test_a_lost_disk_and_a_lost_leader_cost_no_bundle_and_no_run(
    engine_lab: EngineLab, hdfs_site: TorrentdistSite
) -> None:
    """If this fails, masters that keep bundles in HDFS lose one with a disk, or the next leader
    starts a job again. It takes long: a master starts on an empty disk, and a session ends."""
    site, runner = hdfs_site, hdfs_site.supervisors[0]
    data = upload(engine_lab, site, runner)
    wait_until(lambda: bool(runs(engine_lab)), "the job", WAIT_SECS)
    leader = site.leader()
    assert leader is not None
    lost, other = (host for host in site.masters if host != leader)
    site.lose_disk(lost)
    kept = engine_lab.srv(lost) / "torrentdist/master/bundles"
    wait_until(lambda: len(list(kept.glob("*"))) == 2, "the lost copies", WAIT_SECS)
    wait_until(lambda: holders(site, runner) == set(MASTERS), "the record of the copy", WAIT_SECS)
    engine_lab.kill(site.process(leader))
    engine_lab.kill(site.process(other))
    wait_until(lambda: site.leader() == lost, "the next leader", WAIT_SECS)
    site.command(runner, "download", MODEL, f"/srv/{MODEL}-back")
    site.start(other, "master")
    counted = len(runs(engine_lab))
    wait_until(lambda: len(runs(engine_lab)) > counted, "the job under the next leader", WAIT_SECS)
    [last, *_] = json.loads(site.tried(runner, "ha", "failovers").stdout)

    assert data == (engine_lab.srv(runner) / f"{MODEL}-back/weights.bin").read_bytes()
    assert (leader.name, lost.name) == (last["previous"], last["current"])
    assert len(set(runs(engine_lab))) == 1
