"""A job's driver in YARN, while hosts, submissions and ResourceManagers fail at any moment: two
drivers never run at the same time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st
from property_size import examples

from torrentdist.supervisor.yarn.application_plan import (
    LIVE,
    SETTLE_SECS,
    ApplicationEnd,
    Followed,
    YarnApplication,
    after_submission,
    before_submission,
)

STEP = 0.5
LAG = SETTLE_SECS / 2 - STEP
"""Longest time that a submission is on its way, and that processes outlive their application."""
FAULTS_UNTIL, ENDS = 120.0, 240.0


@dataclass
class Yarn:
    """A ResourceManager that is sometimes silent, and the processes of drivers."""

    rng: random.Random
    now: float = 0.0
    silent_until: float = 0.0
    on_the_way: list[tuple[float, int]] = field(default_factory=list)
    applications: dict[str, YarnApplication] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    """When the processes of each ended application are gone."""

    def submit(self, fencing: int) -> None:
        self.on_the_way.append((self.now + self.rng.uniform(0, LAG), fencing))

    def pass_time(self) -> None:
        self.now += STEP
        for arrives, fencing in [each for each in self.on_the_way if each[0] <= self.now]:
            self.on_the_way.remove((arrives, fencing))
            id_ = f"application_1_{len(self.applications)}"
            self.applications[id_] = YarnApplication(id_, fencing, self.rng.choice(LIVE))

    def end(self, id_: str, state: str, final: str = "") -> None:
        known = self.applications[id_]
        if known.is_alive:
            self.applications[id_] = YarnApplication(id_, known.fencing, state, final)
            self.ends[id_] = self.now + self.rng.uniform(0, LAG)

    def forget(self) -> None:
        """A ResourceManager without a state store starts anew, and ends what it does not know."""
        for id_ in list(self.applications):
            self.end(id_, "KILLED")
            self.ends[f"forgotten {id_}"] = self.ends.pop(id_)
        self.applications = {f"forgotten {id_}": each for id_, each in self.applications.items()}

    def listed(self, fencing: int) -> list[YarnApplication] | None:
        if self.now < self.silent_until:
            return None
        known = [each for id_, each in self.applications.items() if not id_.startswith("forgotten")]
        return [each for each in known if each.is_alive or each.fencing == fencing]

    def has_any(self, fencing: int) -> bool:
        """Whether an application of this run is alive or on its way."""
        waiting = [number for _, number in self.on_the_way]
        return fencing in (*waiting, *(each.fencing for each in self.applications.values() if each.is_alive))

    def drivers(self) -> list[str]:
        """Returns the applications of which a process may run."""
        return [id_ for id_, each in self.applications.items() if each.is_alive or self.now < self.ends[id_]]


@dataclass
class Run:
    """One run of the job's worker, and the supervisor that follows it."""

    fencing: int
    wanted: bool = True
    clear_since: float | None = None
    submits_until: float | None = None
    """When the process that submits ends; None: it has not started."""
    followed: Followed = field(default_factory=lambda: Followed(0))
    end: ApplicationEnd | None = None

    def look(self, yarn: Yarn) -> None:
        found = yarn.listed(self.fencing)
        if self.submits_until is None:
            if found is None or not self.wanted:
                self.clear_since = None
                return
            gate = before_submission(found, self.fencing, self.clear_since, yarn.now)
            self.clear_since = gate.clear_since
            for id_ in gate.kill:
                yarn.end(id_, "KILLED")
            if gate.may_submit:
                yarn.submit(self.fencing)
                self.submits_until = yarn.now + yarn.rng.uniform(0, 2 * LAG)
                self.followed = Followed(self.fencing)
        elif yarn.now >= self.submits_until or not self.wanted:
            look = after_submission(self.followed, found, yarn.now, wanted=self.wanted)
            self.followed, self.end = look.followed, look.end
            for id_ in look.kill:
                yarn.end(id_, "KILLED")


def fault(yarn: Yarn, run: Run) -> Run | None:
    """Lets something happen. Returns the run, or None if its host is lost."""
    match yarn.rng.randrange(40):
        case 0:
            return None
        case 1:
            yarn.silent_until = yarn.now + yarn.rng.uniform(0, 15)
        case 2:
            run.wanted = False
        case 3:
            yarn.forget()
        case 4:  # the supervisor is restarted: it knows what was on its disk
            run.clear_since = None
            run.followed = Followed(run.fencing)
            run.submits_until = yarn.now if run.submits_until is not None else None
        case 5 if yarn.applications:
            how = yarn.rng.choice([("FINISHED", "SUCCEEDED"), ("FINISHED", "FAILED"), ("FAILED", ""), ("KILLED", "")])
            yarn.end(yarn.rng.choice(list(yarn.applications)), *how)
    return run


@given(st.integers(0, 2**32))
@example(3252192)  # an application that comes and is forgotten between two looks
@example(393305)  # one that comes and ends between two looks
@settings(max_examples=examples(1000), deadline=None)
def test_two_drivers_never_run_at_once(seed: int) -> None:
    """If this fails, a job that should run once runs twice in YARN. A later run begins at any
    moment after its predecessor's host is lost, or after its end."""
    yarn, run, latest = Yarn(random.Random(seed)), Run(1), 1
    while yarn.now < ENDS:
        yarn.pass_time()

        assert len(yarn.drivers()) <= 1, f"two drivers at {yarn.now}"
        kept: Run | None = run
        if yarn.now < FAULTS_UNTIL:
            kept = fault(yarn, run)
        if kept is not None:
            kept.look(yarn)
        if kept is None or kept.end is not None or (not kept.wanted and kept.submits_until is None):
            assert kept is None or not yarn.has_any(kept.fencing), "its application outlives a run"
            latest += 1
            run = Run(latest)

    assert run.wanted
    assert [latest] == [each.fencing for each in yarn.applications.values() if each.is_alive]
