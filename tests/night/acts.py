"""What breaks a cluster in a night, and what mends it: functions of the cluster and of the member
that breaks.

Never: look at what the cluster says. watchers.py does.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

from chaos import disks
from chaos.schedule import MASTERS, Direction, Others, Way
from night.night_cluster import NightCluster

HOST, OTHER_HOST = "supervisor-1", "supervisor-2"
LOOPS = 5
"""How often something has to happen within a quarter of an hour until it is called a loop."""

Act = Callable[[NightCluster, str], Awaitable[None]]


async def kill(night: NightCluster, name: str) -> None:
    await night.world.end(name, SIGKILL)


async def start(night: NightCluster, name: str) -> None:
    await asyncio.to_thread(night.world.start, name)


async def stop(night: NightCluster, name: str) -> None:
    night.world.signal(name, SIGSTOP)


async def go_on(night: NightCluster, name: str) -> None:
    night.world.signal(name, SIGCONT)


async def cut_off(night: NightCluster, name: str) -> None:
    night.world.links[name].cut(Way.SILENT)


async def mend(night: NightCluster, name: str) -> None:
    night.world.links[name].mend()


def part(others: Others, direction: Direction = Direction.BOTH) -> Act:
    async def part(night: NightCluster, name: str) -> None:
        assert night.world.network is not None
        await asyncio.to_thread(night.world.network.part, name, others, direction)

    return part


async def join(night: NightCluster, name: str) -> None:
    assert night.world.network is not None
    await asyncio.to_thread(night.world.network.mend, name)


async def kill_standbys(night: NightCluster, leader: str) -> None:
    await asyncio.gather(*(kill(night, name) for name in MASTERS if name != leader))


async def start_masters(night: NightCluster, leader: str) -> None:
    await asyncio.gather(*(start(night, name) for name in MASTERS))


async def kill_masters(night: NightCluster, leader: str) -> None:
    await asyncio.gather(*(kill(night, name) for name in MASTERS))


async def lose_quorum(night: NightCluster, _: str) -> None:
    for server in night.world.zookeeper.servers[:2]:
        await asyncio.to_thread(server.kill)


async def regain_quorum(night: NightCluster, _: str) -> None:
    for server in night.world.zookeeper.servers[:2]:
        server.spawn()


async def fill(night: NightCluster, name: str) -> None:
    await asyncio.to_thread(disks.fill, night.world.store(name))


async def empty(night: NightCluster, name: str) -> None:
    await asyncio.to_thread(disks.empty, night.world.store(name))


def distribute(bundle: str, *options: str) -> Act:
    """Distributes a bundle first to a host without room, and then to the other one."""

    async def begin(night: NightCluster, name: str) -> None:
        await fill(night, name)
        await night.upload(bundle)
        hosts = f"{name},{OTHER_HOST}"
        await night.command("bundle", "distribute", bundle, "--supervisors", hosts, *options, "--wait", "0")

    return begin


def empty_and_remove(bundle: str) -> Act:
    async def end(night: NightCluster, name: str) -> None:
        await empty(night, name)
        await night.command("bundle", "rm", bundle)

    return end


def job(*settings: str) -> Act:
    async def submit(night: NightCluster, name: str) -> None:
        words = [word for setting in settings for word in ("--conf", setting)]
        await night.submit(name, 'echo "no such table"; exit 3', *words)

    return submit


async def submit_again(night: NightCluster, name: str) -> None:
    """Ends what the job still does, and submits one of its name that works."""
    await night.command("job", "kill", name, "-w", "0s", may_fail=True)
    await night.submit(name, "true", "--conf", "restart.policy=never")


async def change_leaders(night: NightCluster, _: str) -> None:
    for _turn in range(LOOPS):
        await change_leader(night, night.world.leader)


async def change_leader(night: NightCluster, leader: str) -> None:
    night.world.signal(leader, SIGSTOP)
    await night.until(lambda: night.world.leader != leader, "another master leads")
    night.world.signal(leader, SIGCONT)


async def nothing(night: NightCluster, _: str) -> None:
    return None


async def restart_again_and_again(night: NightCluster, name: str) -> None:
    for _ in range(LOOPS):
        await night.world.end(name, SIGKILL)
        await start(night, name)
        await asyncio.to_thread(night.world.cluster.wait_started, name)
        await night.registered(name)


def clock(secs: float) -> Act:
    async def jump(night: NightCluster, name: str) -> None:
        night.world.set_clock(name, secs)

    return jump


async def lose_bundle(night: NightCluster, name: str) -> None:
    """Wipes every master's disk, one after the other is down."""
    await night.upload("only-on-masters")
    for master in MASTERS:
        await night.world.end(master, SIGKILL)
    for master in MASTERS:
        await asyncio.to_thread(disks.wipe, night.world.store(master))
    await start_masters(night, name)


async def remove_bundles(night: NightCluster, name: str) -> None:
    """Removes every bundle: all were on these disks."""
    _, listed = await night.command("bundle", "ls", "-o", "json")
    for bundle in json.loads(listed):
        await night.command("bundle", "rm", bundle["id"])


async def stop_holder(night: NightCluster, name: str) -> None:
    await night.upload("with-three-copies", "--min-replicas", "3")
    await night.world.end(name, SIGTERM)
