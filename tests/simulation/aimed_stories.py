"""Kinds of stories whose faults are aimed at what is under way: answers that are lost, workers that
start, and everything that operators do.

Pure: the same seed gives the same story.
"""

from __future__ import annotations

import random
from dataclasses import replace

from simulation.corner_stories import corners
from simulation.fault_maker import FAULTS, faults
from simulation.quiet_stories import quiet
from simulation.steps import CONTENTS, Step
from simulation.story_maker import NIGHT_SECS, Story, hosts_of, night, some_user, storm, thread, told, user_steps
from simulation.upheavals import caches, crowds, packed, programs, restores, rooms, signed, upgrades

AIMED_AT_ANSWERS = {"kill at answer": 6, "unheard answer": 4, "pause at answer": 2, "expire at answer": 3,
                    "kill at record": 1, "kill at epoch": 1}  # fmt: skip
AIMED_AT_WORKERS = {"isolate at barrier": 3, "pause at barrier": 2, "kill at barrier": 2, "isolate at start": 6,
                    "expire at start": 4, "pause at assignment": 2, "kill at epoch": 1}  # fmt: skip


def retries(seed: int) -> Story:
    """Users whose answers are lost between the change and their ears, and who ask again."""
    rng = random.Random(seed)
    steps, at = [], 0.0
    for number in range(rng.randint(2, 4)):
        at = rng.uniform(at, at + 6.0)
        steps += _retried(rng, f"b{number + 1}", f"j{number % 2 + 1}", at)
    if rng.random() < 0.4:
        swapped = _swapped(rng, rng.uniform(0.0, 12.0))
        steps += [*swapped, *_slow_drops(seed, swapped[0].at)]
    rare = _few(faults(seed, hosts_of(3, 2), 3, NIGHT_SECS, FAULTS), 2)
    return told("retries", seed, 3, 2, [*steps, *rare])


def _slow_drops(seed: int, at: float) -> list[Step]:
    """Masters whose disks are slow, so that an upload begins while they drop its content."""
    rng = random.Random(seed ^ 0x510)
    if rng.random() < 0.3:
        return []
    return [
        Step(at + 0.5, "slow disk", f"master-{n + 1}", secs=rng.uniform(5.0, 12.0)) for n in range(rng.randint(1, 3))
    ]


def _retried(rng: random.Random, bundle: str, job: str, at: float) -> list[Step]:
    """Returns a change of a user, and a fault that waits for its answer."""
    content, kind = rng.choice(CONTENTS), rng.choice(["remove", "remove", "submit", "pin", "distribute", "kill job"])
    begin = [Step(at, "submit", "ann", job)] if kind == "kill job" else []
    if kind != "submit":
        begin.append(Step(at, "upload", "ann", bundle, number=content))
    aimed, later = rng.choices(list(AIMED_AT_ANSWERS), list(AIMED_AT_ANSWERS.values()))[0], at + rng.uniform(2.0, 5.0)
    what = job if kind in ("submit", "kill job") else bundle
    change = [Step(later, aimed, "", secs=rng.uniform(0.5, 12.0)), Step(later + 0.01, kind, "bob", what)]
    again = rng.choice(["upload", "read", "remove", "submit"])
    what = job if again == "submit" else bundle
    return [*begin, *change, Step(later + rng.uniform(0.1, 8.0), again, "cem", what, number=content)]


def _swapped(rng: random.Random, at: float) -> list[Step]:
    """One content under two ids in turn: each time it is removed and uploaded again in the same
    moment, while masters drop it."""
    content, steps = rng.choice(CONTENTS), []
    for number in range(rng.randint(3, 6)):
        old, new = ("b6", "b7") if number % 2 else ("b7", "b6")
        steps.append(Step(at, "upload", some_user(rng), new, number=content))
        steps.append(Step(at + rng.uniform(-0.06, 0.02), "remove", some_user(rng), old))
        at += rng.uniform(1.0, 4.0)
    return [step for step in steps if step.at >= 0.0]


def jobs(seed: int) -> Story:
    """Jobs whose hosts and leaders fail in the moments that count."""
    rng = random.Random(seed)
    masters, hosts = rng.choice([2, 3, 3, 5]), rng.choice([2, 2, 3, 5])
    steps = []
    for job in ("j1", "j2")[: rng.randint(1, 2)]:
        at = rng.uniform(0.0, 6.0)
        steps.append(Step(at, "submit", "ann", job))
        for _ in range(rng.randint(0, 3)):
            kind = rng.choice(["rebalance", "kill job", "deactivate", "activate", "drain", "undrain", "submit"])
            what = f"supervisor-{rng.randint(1, hosts)}" if kind.endswith("drain") else job
            steps.append(Step(at + rng.uniform(3.0, 30.0), kind, "bob", what, number=rng.randint(1, 4)))
    for _ in range(rng.randint(1, 3)):
        aimed = rng.choices(list(AIMED_AT_WORKERS), list(AIMED_AT_WORKERS.values()))[0]
        steps.append(Step(rng.uniform(0.0, 10.0), aimed, "", secs=rng.choice([2.0, 9.0, 18.0, 30.0])))
    if masters > 1 and rng.random() < 0.4:
        steps += _unready(rng, masters, rng.uniform(8.0, 20.0))
    if rng.random() < 0.3:
        steps.append(Step(0.0, "long texts", "", number=rng.choice([300_000, 900_000, 1_500_000])))
    rare = _few(faults(seed, hosts_of(masters, hosts), masters, NIGHT_SECS, FAULTS), 4)
    rare = [step for step in rare if step.kind not in ("wipe", "bit flip")]  # What every holder lost is lost.
    return told("jobs", seed, masters, hosts, [*steps, *rare])


def _unready(rng: random.Random, masters: int, at: float) -> list[Step]:
    """A master loses its disk, the new one is full at once, and all other masters die."""
    wiped, *others = rng.sample([f"master-{n + 1}" for n in range(masters)], masters)
    steps = [Step(at, "wipe", wiped, secs=0.3), Step(at + 0.4, "full", wiped, secs=rng.uniform(10.0, 16.0))]
    return [*steps, *(Step(at + 0.4, "kill", name, secs=rng.uniform(8.0, 14.0)) for name in others)]


def identities(seed: int) -> Story:
    """A story of jobs or a night in a cluster whose hosts are users of ZooKeeper of their own."""
    story = (jobs if seed % 3 else night)(seed)
    return replace(story, name="identities", steps=(Step(0.0, "identities", ""), *story.steps))


def operators(seed: int) -> Story:
    """Everything that users and operators may do, with a few faults."""
    rng = random.Random(seed)
    masters, hosts = rng.choice([1, 2, 3, 3, 4, 5]), rng.choice([0, 1, 2, 3, 5])
    steps = [*user_steps(rng, hosts)]
    bundles = sorted({step.what for step in steps if step.kind == "upload"})
    for _ in range(rng.randint(4, 14)):
        kind, bundle = rng.choice(OPERATIONS), rng.choice(bundles)
        if kind in NEED_HOSTS and hosts == 0:
            continue
        number, what, at = rng.randint(1, 3), bundle, rng.uniform(1.0, NIGHT_SECS)
        if kind.endswith("token"):
            what = f"t{number}"
        elif kind == "transfer":
            what = f"master-{rng.randint(1, masters)}"
        elif kind.endswith("drain"):
            what = f"supervisor-{rng.randint(1, hosts)}"
        elif kind in ("deactivate", "activate"):
            what = "j1"
        elif kind in ("upload", "download"):
            number = next(step.number for step in steps if step.what == bundle)
        steps.append(Step(at, kind, some_user(rng), what, number=number))
    if rng.random() < 0.3:
        steps += _stalled(rng, rng.uniform(10.0, NIGHT_SECS - 10.0))
    if rng.random() < 0.3:
        steps += _late_news(rng, rng.uniform(2.0, NIGHT_SECS - 10.0))
    rare = _few(faults(seed, hosts_of(masters, hosts), masters, NIGHT_SECS, FAULTS), 4)
    return told("operators", seed, masters, hosts, [*steps, *rare, *_earlier_order(seed, hosts)])


def _earlier_order(seed: int, hosts: int) -> list[Step]:
    """One host gets a bundle and loses its disk, and has no room for it for a while. Meanwhile an
    order for another host is cancelled."""
    rng = random.Random(seed ^ 0xCA9CE1)
    if hosts < 2 or rng.random() < 0.5:
        return []
    (first, second), at = rng.sample(range(1, hosts + 1), 2), rng.uniform(1.0, 20.0)
    lost_at = at + rng.uniform(5.0, 7.0)
    again_at = lost_at + rng.uniform(2.0, 4.0)
    return [
        Step(at, "upload", some_user(rng), "b5", number=rng.choice(CONTENTS)),
        Step(at + 1.0, "send", some_user(rng), "b5", number=first),
        Step(lost_at, "wipe", f"supervisor-{first}", secs=0.3),
        *(Step(lost_at + 0.9, "full", f"supervisor-{number}", secs=8.0) for number in (first, second)),
        Step(again_at, "send", some_user(rng), "b5", number=second),
        Step(again_at + rng.uniform(0.3, 2.0), "cancel", some_user(rng), "b5"),
    ]


def _late_news(rng: random.Random, at: float) -> list[Step]:
    """Masters hear late of changes that users were told of, and list bundles."""
    content, steps = rng.choice(CONTENTS), [Step(at, "slow zookeeper", "", secs=8.0, number=rng.randint(1, 1000))]
    for _ in range(rng.randint(1, 3)):
        at += rng.uniform(0.2, 2.5)
        steps.append(Step(at, "again", some_user(rng), "b7", number=content))
    return steps


def _stalled(rng: random.Random, at: float) -> list[Step]:
    """A rule that keeps one version, and a new version whose upload begins and gets no further for
    a while. Nobody uses the version before it."""
    uploads = [("b8", at - 4.0), ("b9", at + 3.01)]
    steps = [Step(when, "upload", some_user(rng), what, number=rng.choice(CONTENTS)) for what, when in uploads]
    stall = Step(at + 3.0, "strand at record", "", secs=rng.uniform(3.0, 8.0))
    return [*steps, Step(at, "retain", "dee", number=1), stall]


OPERATIONS = ("wave", "wave", "cancel", "cancel", "pin", "unpin", "retain", "unretain", "sign", "make token",
              "revoke token", "use token", "transfer", "backup", "deactivate", "activate", "drain", "undrain",
              "remove", "read", "upload")  # fmt: skip
NEED_HOSTS = frozenset({"wave", "drain", "undrain"})


def _few(chosen: list[Step], most: int) -> list[Step]:
    return chosen[:most]


KINDS = (
    *(night, jobs, retries, operators, storm) * 3,
    upgrades,
    restores,
    rooms,
    identities,
    caches,
    crowds,
    programs,
    signed,
)


def mixed(seed: int) -> Story:
    """One of all kinds, in turn."""
    return KINDS[seed % len(KINDS)](seed)


STORIES = {
    "mixed": mixed, "thread": thread, "night": night, "storm": storm, "retries": retries, "jobs": jobs,
    "operators": operators, "upgrades": upgrades, "restores": restores, "crowds": crowds, "rooms": rooms,
    "caches": caches, "programs": programs, "signed": signed, "identities": identities, "packed": packed,
    "quiet": quiet, "corners": corners,
}  # fmt: skip
