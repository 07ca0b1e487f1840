"""Chooses what goes wrong in a story, and when.

Pure: the same seed gives the same faults.
"""

from __future__ import annotations

import random
from dataclasses import replace

from simulation.steps import UNHEARD, UNSENT, Step

FAULTS = {
    "kill": 4, "kill leader": 4, "stop": 2, "crash": 6, "pause": 2, "pause leader": 2, "expire": 3, "expire leader": 3,
    "deaf": 2, "mute": 2, "no zookeeper": 3, "cut": 3, "one way": 2, "isolate": 2, "zookeeper down": 1,
    "zookeeper frozen": 1, "slow link": 2, "reset": 2, "clock": 1, "full": 2, "slow disk": 1, "wipe": 1,
    "crash at write": 6, "slow zookeeper": 2, "slow reader": 2, "torn answer": 3, "drift": 1,
    "follower": 2, "broken disk": 2, "power": 4, "disk error": 3, "bit flip": 1, "read-only disk": 1,
}  # fmt: skip
"""How often each kind of fault is chosen, beside the others."""
RARER = FAULTS | {"follower": 10, "broken disk": 6, "power": 16, "disk error": 10, "bit flip": 5}
ALONE = frozenset({"wipe", "crash", "crash at write", "clock", "drift", "disk error"})
"""Faults that are never the second of a pair."""


def faults(seed: int, hosts: list[str], masters: int, secs: float, weights: dict[str, int]) -> list[Step]:
    """Returns the faults of a story. `secs`: how long it lasts."""
    rng = random.Random(seed ^ 0xFA017)
    steps: list[Step] = []
    kinds, often = list(weights), list(weights.values())
    wiped = False
    for _ in range(rng.choice([0, 1, 2, 3, 4, 6, 8])):
        kind = rng.choices(kinds, often)[0]
        who, what = rng.choice(hosts), rng.choice(hosts)
        at = rng.uniform(0.0, secs)
        if (kind == "wipe" and (wiped or masters < 3)) or (kind == "bit flip" and masters < 2):
            continue  # What every holder lost is lost.
        wiped = wiped or kind == "wipe"
        lasts = rng.choice([0.2, 1.0, 5.0, 8.0, 15.0]) * rng.uniform(0.5, 1.5)
        steps.append(_numbered(rng, Step(at, kind, who, what, secs=lasts)))
        if rng.random() < 0.4:  # Faults in pairs find what single ones do not.
            pair = rng.choices(kinds, often)[0]
            if pair not in ALONE:
                other = rng.choice([who, rng.choice(hosts)])
                later = rng.choice([0.0, rng.uniform(0.0, 2.0)])
                steps.append(Step(at + later, pair, other, what, secs=rng.uniform(0.5, 10.0)))
    return steps


def _numbered(rng: random.Random, step: Step) -> Step:
    match step.kind:
        case "crash" | "disk error":
            return replace(step, number=rng.choice([0, 1, 2, 3, 5, 8, 13, 21, 34]))
        case "crash at write":
            number, what = rng.choice([0, 0, 1, 2, 3, 5, 8, 13, 21]), rng.choice([UNSENT, UNHEARD])
            return replace(step, number=number, what=what)
        case "drift":
            return replace(step, number=rng.choice([-20, -3, 3, 20]))
        case "slow zookeeper":
            return replace(step, number=rng.randint(1, 1000))
        case "clock":
            return replace(step, number=rng.choice([-86_400, -30, 30, 3600, 86_400 * 30]))
    return step
