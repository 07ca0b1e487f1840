"""A host that has the identity in ZooKeeper of an earlier host of its id, which was revoked."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import httpx
import pytest
from records_of import supervisor
from scripted_http import ScriptedHttp
from simulation.operating_system import simulated
from simulation.virtual_loop import VirtualLoop
from zookeeper_fixtures import eventually, write_auth

from torrentdist.client import host_client
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.cluster import paths
from torrentdist.cluster.records.registration import Registration
from torrentdist.cluster.session.founding import found_cluster
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.access.zookeeper_identity import auth_text, host_user, identity_of
from torrentdist.model.configuration.config import ClientConfig, Config, ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authority.invitation import Invitation

SECRET = "a-password-of-the-masters-that-is-long-enough"
EARLIER, PRESENT = host_user("h1"), host_user("h1", 1_800_000_000.0)
WATCHED_SECS = 60.0


async def connected(auth_file: str, *, identities: bool = False) -> ZooKeeper:
    config = ZooKeeperConfig(servers=["zookeeper:2181"], chroot="/cluster", auth_file=auth_file, identities=identities)
    zk = ZooKeeper(config)
    await zk.start(10.0)
    return zk


@pytest.mark.case("F6")
def test_the_identity_of_an_earlier_host_asks_for_its_place_in_growing_pauses(tmp_path: Path) -> None:
    """If this failed, a host that was revoked and invited again would ask the leader some hundred
    times a second for ever, and its log would not say why it does not register."""
    masters = write_auth(tmp_path / "masters.auth", f"masters:{SECRET}")
    own = write_auth(tmp_path / "host.auth", auth_text(identity_of(SECRET, EARLIER)))
    loop = VirtualLoop(random.Random(1))
    with simulated(loop, 1):
        asked = loop.run_until_complete(_questions(masters, own))

    assert 2 < asked < WATCHED_SECS


async def _questions(masters: str, own: str) -> int:
    """Returns how often the host asked for its place before it was let in."""
    leader = await connected(masters, identities=True)
    await found_cluster(leader)
    await leader.ensure(paths.PLACES)
    place = paths.place("h1")
    await leader.create(place, PRESENT.encode())
    questions: list[None] = []

    async def ask_place() -> None:
        """Does what a leader does that has made the place already."""
        questions.append(None)

    host = await connected(own)
    registration = Registration(host, supervisor("h1"), look_secs=10.0, ask_place=ask_place)
    starting = asyncio.create_task(registration.start())
    await asyncio.sleep(WATCHED_SECS)
    asked = len(questions)
    await leader.secure(place, leader.identity.table.of(place, EARLIER.encode()))
    await starting
    await eventually(lambda: registration.registered)
    await registration.close()
    await asyncio.gather(host.close(), leader.close())
    return asked


GIVEN, OLD = (auth_text(identity_of(SECRET, user)) for user in (PRESENT, EARLIER))
FOREIGN = "somebody:a-password\n"


def kept(auth_file: Path, before: str | None, role: str = "supervisor", refusal: TorrentdistError | None = None) -> str:
    """Has a host that joins keep its identity. Returns what its file has then."""
    auth_file.unlink(missing_ok=True)
    if before is not None:
        auth_file.write_text(before)
        auth_file.chmod(0o600)

    def answer(request: httpx.Request) -> httpx.Response:
        if refusal is not None:
            return httpx.Response(refusal.http_status, json=refusal.to_wire())
        assert ("POST", "/v1/hosts/h1/place") == (request.method, request.url.path)
        return httpx.Response(200, json={"id": "h1", "user": PRESENT, "auth": GIVEN})

    async def join() -> None:
        masters = ClientConfig(masters=["http://127.0.0.1:7060"], deadline_secs=5.0)
        config = Config(zookeeper=ZooKeeperConfig(auth_file=str(auth_file)))
        invitation = Invitation(id="h1", role=role, addresses=["10.0.0.7"], masters=[], ca="", secret="s")
        async with MasterClient(masters, open_http=lambda access: ScriptedHttp(answer, access)) as client:
            await host_client._keep_zookeeper_identity(client, config, invitation)

    asyncio.run(join())
    assert 0o600 == auth_file.stat().st_mode & 0o777
    return auth_file.read_text()


@pytest.mark.case("F6")
def test_a_host_that_joins_again_replaces_the_identity_of_the_earlier_one(tmp_path: Path) -> None:
    """If this failed, a host that was revoked and invited again would never come back, or a join
    would take an identity away that somebody put there."""
    auth_file = tmp_path / "zookeeper.auth"

    assert [GIVEN] * 3 == [kept(auth_file, before) for before in (None, OLD, GIVEN)]
    assert OLD == kept(auth_file, OLD, refusal=TorrentdistError("identities_off"))
    assert FOREIGN == kept(auth_file, FOREIGN)
    assert FOREIGN == kept(auth_file, FOREIGN, role="master")
