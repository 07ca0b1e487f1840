"""Kinds of stories whose faults are aimed at what is under way: answers that are lost, workers that
start, and everything that operators do.

Pure: the same seed gives the same story.
"""

from __future__ import annotations

import random

from simulation.fault_maker import FAULTS, faults
from simulation.steps import Step
from simulation.story_maker import NIGHT_SECS, Story, hosts_of, night, some_user, storm, thread, told, user_steps

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
    rare = _few(faults(seed, hosts_of(3, 2), 3, NIGHT_SECS, FAULTS), 2)
    return told("retries", seed, 3, 2, [*steps, *rare])


def _retried(rng: random.Random, bundle: str, job: str, at: float) -> list[Step]:
    """Returns a change of a user, and a fault that waits for its answer."""
    content, kind = rng.randint(1, 4), rng.choice(["remove", "remove", "submit", "pin", "distribute", "kill job"])
    begin = [Step(at, "submit", "ann", job)] if kind == "kill job" else []
    if kind != "submit":
        begin.append(Step(at, "upload", "ann", bundle, number=content))
    aimed, later = rng.choices(list(AIMED_AT_ANSWERS), list(AIMED_AT_ANSWERS.values()))[0], at + rng.uniform(2.0, 5.0)
    what = job if kind in ("submit", "kill job") else bundle
    change = [Step(later, aimed, "", secs=rng.uniform(0.5, 12.0)), Step(later + 0.01, kind, "bob", what)]
    again = rng.choice(["upload", "read", "remove", "submit"])
    what = job if again == "submit" else bundle
    return [*begin, *change, Step(later + rng.uniform(0.1, 8.0), again, "cem", what, number=content)]


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
    rare = _few(faults(seed, hosts_of(masters, hosts), masters, NIGHT_SECS, FAULTS), 4)
    return told("jobs", seed, masters, hosts, [*steps, *rare])


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
    rare = _few(faults(seed, hosts_of(masters, hosts), masters, NIGHT_SECS, FAULTS), 4)
    return told("operators", seed, masters, hosts, [*steps, *rare])


OPERATIONS = ("wave", "wave", "cancel", "cancel", "pin", "unpin", "retain", "unretain", "sign", "make token",
              "revoke token", "use token", "transfer", "backup", "deactivate", "activate", "drain", "undrain",
              "remove", "read", "upload")  # fmt: skip
NEED_HOSTS = frozenset({"wave", "drain", "undrain"})


def _few(chosen: list[Step], most: int) -> list[Step]:
    return chosen[:most]


STORIES = {
    "thread": thread, "night": night, "storm": storm, "retries": retries, "jobs": jobs, "operators": operators,
}  # fmt: skip
