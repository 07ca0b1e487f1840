"""Announces against a real master: a sender says only what it has proven."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from cluster_fixtures import Cluster, running_cluster

pytestmark = pytest.mark.case("F9")

DIGEST = "ab" * 32


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(work=tmp_path_factory.mktemp("guarded"), masters=1, supervisors=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def reader(guarded: Cluster) -> dict[str, str]:
    """The headers of a person who may read."""
    made = guarded.run("token", "create", "ann", "--role", "reader").ok()
    return {"Authorization": f"Bearer {made['token']}"}


def announced(cluster: Cluster, headers: dict[str, str], **said: Any) -> httpx.Response:
    announce = {"peer": "p1", "role": "client", "port": 4000, "swarms": [], **said}
    return cluster.http.post(f"{cluster.url('master-1')}/v1/swarm", json=announce, headers=headers)


@pytest.mark.parametrize("role", ["master", "supervisor", "stock"])
def test_a_person_cannot_announce_as_a_host(guarded: Cluster, reader: dict[str, str], role: str) -> None:
    """Every host would dial the laptop of a reader as if it were a master."""
    assert 403 == announced(guarded, reader, role=role).status_code


@pytest.mark.parametrize("peer", ["master-1", "supervisor-1"])
def test_a_person_cannot_take_the_id_of_a_host(guarded: Cluster, reader: dict[str, str], peer: str) -> None:
    """One request with `left` would take a host out of all its swarms."""
    assert [403, 403] == [announced(guarded, reader, peer=peer, left=left).status_code for left in (False, True)]


def test_a_forged_address_does_not_count(guarded: Cluster, reader: dict[str, str]) -> None:
    """One sender could open every engine to 1,758 strangers, and have them dialled. Neighbours
    hand out forged peers."""
    answers = [announced(guarded, reader, peer=f"f{n}", host=f"10.9.9.{n}").json() for n in range(5)]

    assert {"127.0.0.1"} == {answer["you"] for answer in answers}
    assert [] == [host for host in answers[-1]["addresses"] if host.startswith("10.9.9.")]


def test_a_stranger_cannot_say_goodbye_for_another_peer(guarded: Cluster, reader: dict[str, str]) -> None:
    """A reader could stop the download of every other user."""
    eve = guarded.run("token", "create", "eve", "--role", "operator").ok()["token"]
    entry = {"digest": DIGEST, "complete": False, "size": 10}
    announced(guarded, reader, peer="mine", swarms=[entry])
    goodbye = announced(guarded, {"Authorization": f"Bearer {eve}"}, peer="mine", left=True)
    seen = announced(guarded, reader, peer="other", port=4001, swarms=[entry]).json()

    assert 403 == goodbye.status_code
    assert [4000] == [peer["port"] for peer in seen["swarms"][DIGEST]["peers"]]
