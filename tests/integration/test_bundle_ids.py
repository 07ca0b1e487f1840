"""Bundles by their ids on a host's disk, and the program that waits for one and becomes its
Python."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cluster_fixtures import Cluster, until
from patience import patient

HOST = "supervisor-1"
PYTHON = "#!/bin/sh\necho $0 $@ $PYTHONDONTWRITEBYTECODE\nread line\nexit 0\n"
"""A stand-in for an environment's Python. It ends with its input."""


def ids_of(cluster: Cluster, host: str = HOST) -> Path:
    return cluster.dir / f"{host}-ids"


def environment(path: Path) -> Path:
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "python3").write_text(PYTHON)
    (path / "bin" / "python3").chmod(0o755)
    (path / "name").write_text(path.name)
    return path


@contextmanager
def program(cluster: Cluster, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Runs the program for Spark, as an executor does. It is ended at the end."""
    command = [f"{ids_of(cluster)}.spark/python", "-m", "pyspark.daemon"]
    env = {"PATH": os.environ["PATH"]} | variables
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def reasons(cluster: Cluster, digest: str) -> list[str]:
    """Returns why the host keeps a bundle."""
    gateway = cluster.dev.member(HOST).gateway
    answer = httpx.post(f"{gateway}/v1/host/prune?dry_run=true", headers={"X-Torrentdist": "1"}, trust_env=False)
    return [reason for kept in answer.json()["stays"] if kept["digest"] == digest for reason in kept["reasons"]]


def test_a_bundle_appears_by_its_id_and_goes(cluster: Cluster, tmp_path: Path) -> None:
    """Executors would not find what was distributed to their host, or find what was removed."""
    cluster.upload(environment(tmp_path / "ids-1"), "ids-1")
    before = (ids_of(cluster) / "ids-1").exists()
    cluster.run("bundle", "distribute", "ids-1").ok()
    link = ids_of(cluster) / "ids-1"
    until(link.exists, "the bundle is there by its id")
    found = (link / "name").read_text()
    cluster.run("bundle", "rm", "ids-1").ok()
    until(lambda: not os.path.lexists(link), "the link is gone")

    assert (False, "ids-1") == (before, found)


def test_the_program_waits_for_the_environment_and_becomes_its_python(cluster: Cluster, tmp_path: Path) -> None:
    """An executor on a host without the bundle would fail, or lose the bundle while it runs."""
    digest = cluster.upload(environment(tmp_path / "ids-2"), "ids-2")["digest"]
    with program(cluster, TORRENTDIST_ENV="ids-2") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stdout.readline().split()
        kept = reasons(cluster, digest)
        assert process.stdin is not None
        process.stdin.close()
        heard = process.stderr.read()
        code = process.wait(patient(10))

    assert [str(ids_of(cluster).resolve() / "ids-2/bin/python3"), "-m", "pyspark.daemon", "1"] == said
    assert 0 == code
    assert "torrentdist: waiting for bundle ids-2" in heard
    assert "in_use" in kept


def test_a_bundle_that_does_not_exist_is_named_at_once(cluster: Cluster) -> None:
    """An application with a misspelt environment would wait for an hour."""
    with program(cluster, TORRENTDIST_BUNDLES="no-such-bundle") as process:
        _, heard = process.communicate(timeout=patient(20))

    assert 1 == process.returncode
    assert "error: there is no bundle 'no-such-bundle'" in heard
    assert "torrentdist bundle ls" in heard


def test_the_program_waits_for_a_supervisor_that_is_down(battered: Cluster, tmp_path: Path) -> None:
    """An executor that starts while its supervisor restarts would fail, and a running one would
    lose its environment."""
    battered.upload(environment(tmp_path / "ids-3"), "ids-3")
    link = ids_of(battered) / "ids-3"
    battered.kill(HOST)
    with program(battered, TORRENTDIST_ENV="ids-3") as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        battered.start(HOST)
        assert process.stdout is not None
        said = process.stdout.readline()
        battered.kill(HOST)
        stays = link.exists()
        battered.start(HOST)
        digest = battered.run("bundle", "show", "ids-3").ok()["digest"]
        until(lambda: "in_use" in reasons(battered, digest), "the lease is known again")

    assert "the supervisor of this host does not answer" in first
    assert "ids-3/bin/python3" in said
    assert stays
    assert link.exists()


@pytest.mark.parametrize("lack", ["bin", "variable"])
def test_what_is_no_environment_is_named(cluster: Cluster, tmp_path: Path, lack: str) -> None:
    """Java would say that a file is missing, and not which setting is wrong."""
    variables = {}
    if lack == "bin":
        (tmp_path / "plain").mkdir()
        (tmp_path / "plain" / "data").write_text("no environment")
        cluster.upload(tmp_path / "plain", "ids-4")
        variables = {"TORRENTDIST_ENV": "ids-4"}
    else:
        variables = {"TORRENTDIST_ENV": "../x"}
    with program(cluster, **variables) as process:
        _, heard = process.communicate(timeout=patient(20))

    assert 1 == process.returncode
    assert ("no Python environment" if lack == "bin" else "error: '../x' is no id") in heard
