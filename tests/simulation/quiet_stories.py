"""Stories in which each change is alone: nothing else goes on until it has had its effect.

Pure: the same seed gives the same story.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from simulation.steps import CONTENTS, USES, Step
from simulation.story_maker import Story, hosts_of, some_user

FEWEST_CHANGES, MOST_CHANGES = 6, 14
LONG = ("kill", "kill leader", "wipe")
"""Steps after which a daemon is sometimes away for so long that it is called gone."""
JOBS = ("j1", "j2")
USED_SECS = 0.5
"""How long a program that holds a bundle uses it."""


@dataclass
class Planned:
    """What there is when the next step begins."""

    rng: random.Random
    masters: int
    hosts: int
    bundles: dict[str, int] = field(default_factory=dict)
    """The content of each bundle."""
    used: set[int] = field(default_factory=set)
    """The contents that were ever uploaded."""
    job: str = ""
    count: int = 0
    tokens: int = 0

    def next_steps(self) -> list[Step]:
        kinds = ["upload", "upload", "stop", "kill", "kill leader", "transfer", "wipe"]
        kinds += ["read", "token"]
        if self.bundles:
            kinds += ["distribute", "distribute", "send", "send", "wave", "remove", "pins", "retain", "use", "use"]
            kinds += ["download", "sign", "swap", "prune"]
        if self.hosts > 1 and not self.job and self.unused():
            kinds.append("hurt wave")
        if self.job:
            kinds += ["rebalance", "kill job", "rest", "drain"]
        elif self.hosts > 1:
            kinds += ["submit", "submit"]
        return self._steps(self.rng.choice(kinds))

    def _steps(self, kind: str) -> list[Step]:
        rng, user = self.rng, some_user(self.rng)
        host = f"supervisor-{rng.randint(1, self.hosts)}"
        secs = rng.uniform(18.5, 19.5) if kind in LONG and rng.random() < 0.4 else rng.uniform(0.1, 1.0)
        match kind:
            case "stop" | "kill" | "wipe":
                return [Step(0.0, kind, rng.choice(hosts_of(self.masters, self.hosts)), secs=secs)]
            case "kill leader":
                return [Step(0.0, kind, "", secs=secs)]
            case "transfer":
                return [Step(0.0, kind, user, f"master-{rng.randint(1, self.masters)}")]
            case "read":
                return [Step(0.0, kind, user)]
            case "token":
                self.tokens += 1
                return [Step(0.0, f"{verb} token", user, f"t{self.tokens}") for verb in ("make", "use", "revoke")]
            case "submit":
                self.job = rng.choice(JOBS)
                return [Step(0.0, kind, user, self.job)]
            case "rebalance" | "kill job" | "rest" | "drain":
                return self._of_job(kind, user, host)
        return self._of_bundle(kind, user, host)

    def _of_job(self, kind: str, user: str, host: str) -> list[Step]:
        job = self.job
        if kind == "rebalance":
            return [Step(0.0, kind, user, job, number=self.rng.randint(1, 4))]
        if kind == "drain":
            return [Step(0.0, kind, user, host), Step(0.0, "undrain", user, host)]
        if kind == "rest":
            return [Step(0.0, "deactivate", user, job), Step(0.0, "activate", user, job)]
        self.job = ""
        return [Step(0.0, kind, user, job)]

    def _of_bundle(self, kind: str, user: str, host: str) -> list[Step]:
        if kind == "upload":
            return [self.upload(user, self.rng.choice(CONTENTS))]
        if kind == "hurt wave":
            return self._hurt_wave(user)
        bundle = self.rng.choice(sorted(self.bundles))
        content = self.bundles[bundle]
        if kind == "pins":
            return [Step(0.0, "pin", user, bundle), Step(0.0, "unpin", user, bundle)]
        if kind == "retain":
            newest = sorted(self.bundles, key=lambda name: int(name[1:]))[-2:]
            self.bundles = {name: number for name, number in self.bundles.items() if name in newest}
            return [Step(0.0, "retain", user, number=2), Step(0.0, "unretain", user)]
        if kind == "remove":
            del self.bundles[bundle]
        if kind == "swap":
            return [Step(0.0, verb, user, bundle, number=content) for verb in ("remove", "upload", "distribute")]
        if kind == "send":
            return [Step(0.0, kind, user, bundle, number=self.rng.randint(1, self.hosts))]
        if kind == "use":
            return [Step(0.0, self.rng.choice(USES), host, bundle, secs=USED_SECS, number=content)]
        return [Step(0.0, kind, host if kind == "prune" else user, bundle, number=content)]

    def upload(self, user: str, content: int) -> Step:
        self.count += 1
        self.bundles[f"b{self.count}"] = content
        self.used.add(content)
        return Step(0.0, "upload", user, f"b{self.count}", number=content)

    def unused(self) -> list[int]:
        """Returns the contents that no host has."""
        return sorted(set(CONTENTS) - self.used)

    def _hurt_wave(self, user: str) -> list[Step]:
        """A host that cannot write, in any wave but the last."""
        upload = self.upload(user, self.rng.choice(self.unused()))
        size = self.rng.choice([1, 2]) if self.hosts > 2 else 1
        waves = -(-self.hosts // size)
        kind = "hurt pairs" if size == 2 else "hurt wave"
        return [upload, Step(0.0, kind, user, upload.what, number=self.rng.randint(1, (waves - 1) * size))]


def quiet(seed: int) -> Story:
    """Users and operators change one thing after the other, and daemons stop and die between."""
    rng = random.Random(seed)
    planned = Planned(rng, rng.choice([2, 3, 3, 4]), rng.choice([1, 2, 3, 5]))
    return play(planned, "quiet", seed)


def play(planned: Planned, name: str, seed: int) -> Story:
    """Makes a story of one change after the other."""
    rng, hosts = planned.rng, planned.hosts
    steps = [planned.upload("ann", rng.choice(CONTENTS))]
    for _ in range(rng.randint(FEWEST_CHANGES, MOST_CHANGES)):
        steps += planned.next_steps()
    return Story(seed, name, planned.masters, hosts, tuple(steps), in_turn=True)
