"""Stories of what happens seldom, one thing after the other: hosts that join while orders stand,
hosts that are drained or not heard, retention rules, records that cannot be written, uploads that
are odd or never end, all masters at once without their disks, and nobody who answers.

Pure: the same seed gives the same story.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from simulation.quiet_stories import JOBS, Planned, play
from simulation.steps import Step
from simulation.story_maker import Story, some_user

WORKERS = {"j1": 2, "j2": 3}


@dataclass
class Corners(Planned):
    """Four of ten steps are those of a quiet story, so that there is something to stumble over."""

    shown: set[int] = field(default_factory=set)
    """The contents that the user who may not read the others has uploaded."""

    def next_steps(self) -> list[Step]:
        if self.rng.random() < 0.4:
            return super().next_steps()
        kinds = ["join", "wait", "rule", "rule", "young rule"]
        if self.bundles:
            kinds += ["stand", "stand", "masters away", "zookeeper away", "prune in use", "undropped"]
        if self._hidden():
            kinds.append("show hidden")
        if self.unused():
            kinds += ["send over http", "twins", "leave upload", "cancelled", "cancelled"]
        if self.hosts > 1 and not self.job:
            kinds += ["drained", "drained", "submit past lock"]
        if self.hosts > 1 and self.job:
            kinds += ["silence", "drained"]
        if not self.job:
            kinds.append("lose masters")
        if self.bundles and not self.job:
            kinds.append("absent")
        return self._corner(self.rng.choice(kinds))

    def _hidden(self) -> list[str]:
        return sorted(name for name, content in self.bundles.items() if content not in self.shown)

    def _corner(self, kind: str) -> list[Step]:
        rng, user = self.rng, some_user(self.rng)
        host = f"supervisor-{rng.randint(1, self.hosts)}"
        match kind:
            case "join":
                self.hosts += 1
                return [Step(0.0, kind, f"supervisor-{self.hosts}", secs=rng.uniform(0.0, 0.5))]
            case "undropped":
                what = rng.choice(sorted(self.bundles))
                del self.bundles[what]
                return [Step(0.0, kind, user, what, number=rng.randrange(60))]
            case "absent":
                what = rng.choice(sorted(self.bundles))
                return [Step(0.0, kind, host, what, number=int(host.rpartition("-")[2]))]
            case "prune in use":
                bundle = rng.choice(sorted(self.bundles))
                return [Step(0.0, kind, host, bundle, number=self.bundles[bundle])]
            case "stand" | "masters away" | "zookeeper away":
                return [Step(0.0, kind, user, rng.choice(sorted(self.bundles)))]
            case "drained":
                return [Step(0.0, "drain", user, host), *self._while_drained(), Step(0.0, "undrain", user, host)]
            case "silence":
                return [Step(0.0, kind, host)]
            case "submit past lock":
                self.job = rng.choice(JOBS)
                return [Step(0.0, kind, host, self.job, number=WORKERS[self.job])]
            case "lose masters" | "wait":
                return [Step(0.0, kind, "", secs=rng.uniform(0.1, 1.0) if kind == "lose masters" else 35.0)]
        return self._of_content(kind, user, host)

    def _while_drained(self) -> list[Step]:
        """A new leader that has heard no host for long, and work that needs a place."""
        steps = [Step(0.0, "kill leader", "", secs=self.rng.uniform(0.1, 1.0))] if self.rng.random() < 0.7 else []
        if self.job:
            return [*steps, Step(0.0, "rebalance", "ann", self.job, number=self.rng.randint(1, 4))]
        self.job = self.rng.choice(JOBS)
        return [*steps, Step(0.0, "submit", "ann", self.job)]

    def _of_content(self, kind: str, user: str, host: str) -> list[Step]:
        rng = self.rng
        match kind:
            case "show hidden":
                content = self.bundles[rng.choice(self._hidden())]
                self.count += 1
                self.shown.add(content)
                return [Step(0.0, kind, user, f"h{self.count}", number=content)]
            case "leave upload":
                self.count += 1
                return [Step(0.0, kind, user, f"x{self.count}", number=rng.choice(self.unused()))]
            case "send over http" | "cancelled":
                upload = self.upload(user, rng.choice(self.unused()))
                return [Step(0.0, kind, user, upload.what, number=upload.number)]
        uploads = [self.upload(user, number) for number in self._contents(kind)]
        if kind != "twins":
            self.bundles = {one.what: one.number for one in uploads[-2 if kind == "rule" else -1 :]}
        what, secs = "+".join(one.what for one in uploads), rng.uniform(8.0, 12.0)
        number = uploads[0].number if kind == "twins" else rng.randint(0, 1)
        return [Step(0.0, kind, user, what, secs=secs if kind == "young rule" else 0.0, number=number)]

    def _contents(self, kind: str) -> list[int]:
        if kind == "twins":
            return [self.rng.choice(self.unused())] * 2
        return [1, 2, 3] if kind == "rule" else [1]


def corners(seed: int) -> Story:
    """What happens seldom, one thing after the other."""
    rng = random.Random(seed ^ 0xC0)
    planned = Corners(rng, rng.choice([2, 3, 3]), rng.choice([1, 2, 3]))
    return play(planned, "corners", seed)
