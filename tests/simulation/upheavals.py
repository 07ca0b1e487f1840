"""Kinds of stories in which the whole cluster changes: a rolling upgrade, a ZooKeeper that is wiped
and restored from a backup, many hosts, and stores with little room.

Pure: the same seed gives the same story.
"""

from __future__ import annotations

import random

from simulation.fault_maker import FAULTS, faults
from simulation.steps import CONTENTS, USES, Step
from simulation.story_maker import NIGHT_SECS, Story, hosts_of, some_user, told, user_steps

MILD = {kind: often for kind, often in FAULTS.items() if kind not in ("wipe", "power", "bit flip", "clock", "drift")}
HOST_SECS = 320.0
"""Time of all daemons together before the calm of a crowd."""
SMALLER = 300
"""How many times less ZooKeeper takes at once where it takes small requests."""
PACKED_SECS = 6.0
WIPED_SECS = 14.0
"""Shortest time without ZooKeeper before it comes back empty: leases of workers have ended then."""


def upgrades(seed: int) -> Story:
    """Daemons go over to this release one by one, and some of them back."""
    rng = random.Random(seed)
    masters, hosts = rng.choice([1, 2, 3, 3]), rng.choice([0, 1, 2, 3])
    names = hosts_of(masters, hosts)
    steps, at = user_steps(rng, hosts), rng.uniform(0.0, 8.0)
    old = [name for name in names if rng.random() < 0.8]
    steps += [Step(0.0, "last release", name) for name in old]
    rng.shuffle(old)
    for name in old:
        steps.append(Step(at, "upgrade", name, secs=rng.uniform(0.5, 3.0)))
        if rng.random() < 0.2:
            steps.append(Step(at + 3.5, "go back", name, secs=rng.uniform(0.5, 3.0)))
        at += rng.choice([0.1, 2.0, 5.0]) * rng.random()
    rare = faults(seed, names, masters, NIGHT_SECS, MILD)[: rng.randint(0, 3)]
    return told("upgrades", seed, masters, hosts, [*steps, *rare])


def restores(seed: int) -> Story:
    """ZooKeeper loses everything, and an operator restores a backup; or it comes back with an older
    copy of its disks. Users go on."""
    rng = random.Random(seed)
    masters, hosts = rng.choice([1, 2, 3, 3, 5]), rng.choice([0, 1, 2, 3])
    steps, lost_at = user_steps(rng, hosts), rng.uniform(8.0, 16.0)
    if rng.random() < 0.8:
        steps.append(Step(rng.uniform(0.0, lost_at - 2.0), "backup", "dee"))
    secs = rng.uniform(WIPED_SECS, WIPED_SECS + 4.0)
    if rng.random() < 0.3:
        steps.append(Step(rng.uniform(0.0, lost_at - 2.0), "snapshot", ""))
        steps.append(Step(lost_at, "set back", "", secs=secs))
    else:
        steps.append(Step(lost_at, "wipe zookeeper", "", secs=secs))
        steps.append(Step(lost_at + secs + rng.uniform(0.0, 5.0), "restore", "dee"))
    rare = [
        step for step in faults(seed, hosts_of(masters, hosts), masters, NIGHT_SECS, MILD) if "zoo" not in step.kind
    ]
    return told("restores", seed, masters, hosts, [*steps, *rare[: rng.randint(0, 2)]])


def crowds(seed: int) -> Story:
    """6 to 30 hosts, and a few faults. The more hosts, the shorter: each second of each costs the
    same."""
    rng = random.Random(seed)
    masters, hosts = rng.choice([3, 3, 5]), rng.choice([6, 8, 12, 20, 30])
    secs = HOST_SECS / (masters + hosts)
    rare = faults(seed, hosts_of(masters, hosts), masters, secs, FAULTS)[: rng.randint(0, 4)]
    steps = [*user_steps(rng, hosts, secs), *rare]
    return told("crowds", seed, masters, hosts, steps, secs)


def packed(seed: int) -> Story:
    """ZooKeeper takes small requests, as if there were hundreds of hosts."""
    rng, hosts = random.Random(seed), 20
    upload = Step(0.2, "upload", some_user(rng), "b1", number=rng.choice(CONTENTS))
    order = Step(rng.uniform(2.0, 3.0), "distribute", some_user(rng), "b1")
    return told("packed", seed, 1, hosts, [Step(0.0, "small requests", "", number=SMALLER), upload, order], PACKED_SECS)


def rooms(seed: int) -> Story:
    """Hosts whose stores have room for some of the bundles only."""
    rng = random.Random(seed)
    masters, hosts = rng.choice([1, 2, 3]), rng.choice([1, 2, 3])
    small = [f"supervisor-{n + 1}" for n in range(hosts)]
    steps = [Step(0.0, "small store", name, number=rng.choice([200_000, 280_000, 350_000])) for name in small]
    at = 0.0
    for number in range(1, 5):
        at += rng.uniform(0.5, 5.0)
        steps.append(Step(at, "upload", some_user(rng), f"b{number}", number=number))
        for _ in range(rng.randint(1, 3)):
            at += rng.uniform(0.5, 4.0)
            kind = rng.choice(["wave", "distribute", "cancel", "remove"])
            steps.append(Step(at, kind, some_user(rng), f"b{rng.randint(1, number)}", number=rng.randint(1, 3)))
    if rng.random() < 0.4:
        steps.append(Step(rng.uniform(0.0, 15.0), "kill at assignment", "", secs=rng.uniform(3.0, 9.0)))
    rare = faults(seed, hosts_of(masters, hosts), masters, NIGHT_SECS, MILD)[: rng.randint(0, 3)]
    return told("rooms", seed, masters, hosts, [*steps, *rare])


def caches(seed: int) -> Story:
    """Programs on hosts read more bundles than their stores have room for, so that each drives
    another one out, and is fetched again. Hosts start without ZooKeeper, too."""
    rng = random.Random(seed)
    masters, hosts = rng.choice([1, 2, 3]), rng.choice([1, 2, 3])
    small = [f"supervisor-{n + 1}" for n in range(hosts)]
    steps = _small_stores(rng, small, [180_000, 220_000, 250_000])
    for host in small:
        steps += _reads(rng, host, rng.uniform(3.0, 10.0), rng.randint(4, 8))
    if rng.random() < 0.5:
        kept, host, at = rng.randint(1, 3), rng.choice(small), rng.uniform(12.0, NIGHT_SECS - 16.0)
        steps.append(Step(at - rng.uniform(2.0, 8.0), "distribute", some_user(rng), f"b{kept}"))
        steps += [Step(at, "no zookeeper", host, secs=12.0), Step(at + 0.1, "kill", host, secs=0.5)]
        steps += _reads(rng, host, at + 1.0, 4)
    for _ in range(rng.randint(0, 2)):
        number = rng.randint(1, 3)
        steps.append(Step(rng.uniform(4.0, NIGHT_SECS), "again", some_user(rng), f"b{number}", number=number))
    rare = faults(seed, hosts_of(masters, hosts), masters, NIGHT_SECS, MILD)[: rng.randint(0, 2)]
    return told("caches", seed, masters, hosts, [*steps, *rare])


def programs(seed: int) -> Story:
    """Programs use bundles by their ids or have them mounted, in small stores, while users remove
    the bundles and upload them again, and operators prune."""
    rng = random.Random(seed)
    masters, hosts = rng.choice([1, 2, 3]), rng.choice([1, 2, 3])
    small = [f"supervisor-{n + 1}" for n in range(hosts)]
    steps = _small_stores(rng, small, [220_000, 250_000, 400_000])
    for host in small:
        steps += _reads(rng, host, rng.uniform(5.0, 10.0), rng.randint(3, 6))
        for _ in range(rng.randint(1, 4)):
            at, number = rng.uniform(3.0, NIGHT_SECS - 8.0), rng.randint(1, 4)
            kind, secs = rng.choice(["lease", "mount"]), rng.choice([1.0, 5.0, 30.0])
            steps.append(Step(at, kind, host, f"b{number}", secs=secs, number=number))
        if rng.random() < 0.5:
            steps.append(Step(rng.uniform(6.0, NIGHT_SECS), "prune", host))
    for _ in range(rng.randint(1, 4)):
        number, kind = rng.randint(1, 4), rng.choice(["again", "remove", "distribute", "retain"])
        at = rng.uniform(4.0, NIGHT_SECS)
        steps.append(Step(at, kind, some_user(rng), f"b{number}", number=1 if kind == "retain" else number))
    rare = faults(seed, hosts_of(masters, hosts), masters, NIGHT_SECS, MILD)[: rng.randint(0, 3)]
    return told("programs", seed, masters, hosts, [*steps, *rare])


def signed(seed: int) -> Story:
    """Hosts use signed bundles only. Users sign some, early or late, while programs ask for
    them."""
    rng = random.Random(seed)
    masters, hosts = rng.choice([1, 2, 3]), rng.choice([1, 2, 3])
    steps = [Step(0.0, "trust", "")]
    for number in range(1, 5):
        at = rng.uniform(0.0, 3.0)
        steps.append(Step(at, "upload", some_user(rng), f"b{number}", number=number))
        for _ in range(rng.randint(0, 2)):
            at += rng.uniform(0.5, 15.0)
            steps.append(Step(at, "sign", some_user(rng), f"b{number}"))
        for _ in range(rng.randint(3, 8)):
            when, kind = rng.uniform(2.0, NIGHT_SECS), rng.choice(USES)
            host, secs = f"supervisor-{rng.randint(1, hosts)}", rng.uniform(0.5, 5.0)
            steps.append(Step(when, kind, host, f"b{number}", secs=secs, number=number))
    for _ in range(rng.randint(0, 2)):
        number, kind = rng.randint(1, 4), rng.choice(["again", "remove"])
        steps.append(Step(rng.uniform(5.0, NIGHT_SECS), kind, some_user(rng), f"b{number}", number=number))
    rare = faults(seed, hosts_of(masters, hosts), masters, NIGHT_SECS, MILD)[: rng.randint(0, 3)]
    return told("signed", seed, masters, hosts, [*steps, *rare])


def _small_stores(rng: random.Random, hosts: list[str], rooms: list[int]) -> list[Step]:
    """Gives each host one of these rooms, in bytes, and uploads four bundles."""
    stores = [Step(0.0, "small store", host, number=rng.choice(rooms)) for host in hosts]
    uploads = [Step(rng.uniform(0.0, 3.0), "upload", some_user(rng), f"b{n}", number=n) for n in range(1, 5)]
    return [*stores, *uploads]


def _reads(rng: random.Random, host: str, at: float, count: int) -> list[Step]:
    steps = []
    for _ in range(count):
        at, number = at + rng.uniform(0.5, 3.0), rng.randint(1, 3)
        kind = rng.choice(["open", "open", "objects", "untar"])
        steps.append(Step(at, kind, host, f"b{number}", number=number))
    return steps
