"""`job logs -f` while no master runs, in a real cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from cluster_fixtures import NewCluster, throughout, until

WORKER = """import pathlib, sys, time

told = set()
while "last" not in told:
    for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        if path.name not in told:
            told.add(path.name)
            print(path.name, flush=True)
    time.sleep(0.1)
time.sleep(600)
"""


@pytest.mark.alone
def test_following_outlives_an_outage_of_all_masters(new_cluster: NewCluster, tmp_path: Path) -> None:
    """If this fails, a user who follows a job loses its output when the masters are restarted. It
    takes long: all masters start twice."""
    cluster = new_cluster(masters=1, supervisors=1)
    words, source = tmp_path / "words", tmp_path / "source"
    words.mkdir()
    source.mkdir()
    (source / "main.py").write_text(WORKER)
    (source / "job.toml").write_text(f'name = "talk"\ncommand = ["python3", "main.py", "{words}"]\nworkers = 1\n')
    [master] = cluster.masters()
    job = cluster.run("job", "submit", source).ok()["id"]
    (words / "first").touch()
    until(lambda: "first" in cluster.run("job", "logs", job).stdout, "the worker prints", 40.0)
    following = cluster.begin("job", "logs", job, "-f", client__deadline_secs=2)
    assert throughout(following.running, 2.0)

    cluster.kill(master)
    (words / "second").touch()
    stays = throughout(following.running, 8.0)
    cluster.start(master)
    (words / "last").touch()

    until(lambda: "last" in cluster.run("job", "logs", job).stdout, "the worker goes on", 40.0)
    killed: Any = cluster.run("job", "kill", job, "-w", 0).ok()
    ran = following.end()
    said = [msgspec.json.decode(line)["line"] for line in ran.stdout.splitlines()]

    assert stays
    assert "killed" == killed["status"]
    assert 0 == ran.code
    assert ["first", "second", "last"] == said
    assert 1 == ran.stderr.count("no master could be reached")
