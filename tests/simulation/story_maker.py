"""Makes a story from a seed: a cluster, what users do, and what goes wrong.

Pure: the same seed gives the same story.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from simulation.fault_maker import FAULTS, RARER, faults
from simulation.steps import CONTENTS, USERS, Step

NIGHT_SECS = 40.0


@dataclass(frozen=True)
class Story:
    seed: int
    name: str
    masters: int
    supervisors: int
    steps: tuple[Step, ...]
    secs: float = NIGHT_SECS
    """Time until the calm."""
    in_turn: bool = False
    """Each step begins when the one before has had its effect, which must be soon."""

    def sentences(self) -> list[str]:
        head = f"story {self.name} with seed {self.seed}: {self.masters} masters and {self.supervisors} supervisors"
        return [head, *(step.sentence() for step in self.steps)]


def thread(seed: int) -> Story:
    """The plainest story: upload, distribute, kill the leader, remove."""
    steps = (
        Step(0.0, "upload", "ann", "b1", number=1),
        Step(2.0, "distribute", "ann", "b1"),
        Step(4.0, "kill leader", "", secs=5.0),
        Step(4.5, "remove", "ann", "b1"),
    )
    return Story(seed, "thread", 3, 5, steps)


def night(seed: int) -> Story:
    """Some users, some faults, then calm."""
    return _story("night", seed, FAULTS)


def storm(seed: int) -> Story:
    """A night with rarer faults: disks and ZooKeeper servers that can be read and not written, and
    losses of power, also as bytes arrive and as a daemon starts."""
    story, rng = _story("storm", seed, RARER), random.Random(seed ^ 0x570)
    steps = [*story.steps]
    if rng.random() < 0.5:
        aimed = rng.choice(["power at record", "power at replica"])
        steps.append(Step(rng.uniform(0.0, 10.0), aimed, "", secs=rng.choice([0.1, 1.0, 5.0])))
    if rng.random() < 0.5:
        at, who = rng.uniform(0.0, NIGHT_SECS - 5.0), rng.choice(hosts_of(story.masters, story.supervisors))
        for _ in range(rng.randint(2, 4)):
            steps.append(Step(at, "power", who, secs=0.1))
            at += 0.1 + rng.choice([0.03, 0.1, 0.3]) * rng.random()
    return told("storm", seed, story.masters, story.supervisors, steps)


def hosts_of(masters: int, supervisors: int) -> list[str]:
    return [f"master-{n + 1}" for n in range(masters)] + [f"supervisor-{n + 1}" for n in range(supervisors)]


def told(name: str, seed: int, masters: int, supervisors: int, steps: list[Step], secs: float = NIGHT_SECS) -> Story:
    return Story(seed, name, masters, supervisors, tuple(sorted(steps, key=lambda step: step.at)), secs)


def _story(name: str, seed: int, weights: dict[str, int]) -> Story:
    rng = random.Random(seed)
    masters, supervisors = rng.choice([1, 2, 3, 3, 3, 3, 4, 5]), rng.choice([0, 1, 2, 3, 5])
    steps = [*user_steps(rng, supervisors), *faults(seed, hosts_of(masters, supervisors), masters, NIGHT_SECS, weights)]
    return told(name, seed, masters, supervisors, steps)


def user_steps(rng: random.Random, hosts: int, secs: float = NIGHT_SECS) -> list[Step]:
    steps = []
    for number in range(rng.randint(1, 4)):
        bundle, at = f"b{number + 1}", rng.uniform(0.0, secs / 2)
        content = rng.choice(CONTENTS)
        steps.append(Step(at, "upload", some_user(rng), bundle, number=content))
        for _ in range(rng.randint(0, 4)):
            at += rng.choice([0.01, 0.5, 2.0, 8.0]) * rng.random()
            kind = rng.choice(["distribute", "distribute", "remove", "download", "read", "upload", "open", "again"])
            if kind == "open" and hosts == 0:
                continue
            who = f"supervisor-{rng.randint(1, hosts)}" if kind == "open" else some_user(rng)
            steps.append(Step(at, kind, who, bundle, number=content))
    for number in range(rng.choice([0, 0, 1, 2]) if hosts > 0 else 0):
        job, at = f"j{number + 1}", rng.uniform(0.0, secs / 2)
        steps.append(Step(at, "submit", some_user(rng), job))
        if rng.random() < 0.5:
            steps.append(Step(at + rng.uniform(1.0, 15.0), "rebalance", some_user(rng), job, number=rng.randint(1, 3)))
        if rng.random() < 0.4:
            steps.append(Step(at + rng.uniform(1.0, 25.0), "kill job", some_user(rng), job))
    return steps


def some_user(rng: random.Random) -> str:
    return rng.choice(["ann", "bob", "cem"])


def smaller(story: Story) -> list[Story]:
    """Returns stories that lack something of this one, the boldest cut first."""
    steps = story.steps
    found = [replace(story, steps=steps[:half] + steps[half + size :]) for size, half in _cuts(len(steps))]
    if story.supervisors:
        found.append(replace(story, supervisors=story.supervisors - 1))
    if story.masters > 1:
        found.append(replace(story, masters=story.masters - 1))
    return [one for one in found if any(step.kind in USERS for step in one.steps) or one.steps]


def _cuts(count: int) -> list[tuple[int, int]]:
    cuts, size = [], count // 2
    while size >= 1:
        cuts += [(size, start) for start in range(0, count - size + 1, size)]
        size //= 2
    return cuts
