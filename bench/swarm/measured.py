"""The runs of a case and their results: each with its own T and its peers, and the median of all.

Always: compared values come from the same run, and every value is kept beside the median.
Never: leave out a run because it was slow, or because a host did not finish.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from bench.swarm.cases import Case
from bench.swarm.peers import SETTINGS
from bench.swarm.scenario import Outcome, median


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    link_time: float
    """T in seconds."""
    ours: Outcome
    base: Outcome | None = None
    peers: dict[str, Outcome] = field(default_factory=dict)
    load: float = 0.0
    """Load of the machine just before the run."""

    def ratio(self, outcome: Outcome | None) -> float | None:
        return None if outcome is None or not outcome.ends else outcome.last_done / self.link_time


@dataclass(frozen=True)
class MeasuredCase:
    case: Case
    runs: list[ComparedRun]

    def each(self) -> list[float]:
        return [self.case.measured(run.ours, run.base, run.link_time) for run in self.runs]

    def answer(self) -> dict[str, Any]:
        """Returns the run as one line of JSON has it."""
        middle, scenario = self.middle(), self.case.scenario
        measured = statistics.median(self.each())
        return {
            "hosts": scenario.hosts,
            "rate": scenario.rate,
            "size": scenario.size,
            "holders": scenario.holders,
            "link_time": _rounded(middle.link_time),
            "last_done": _rounded(middle.ours.last_done),
            "ratio": self._median(lambda run: run.ratio(run.ours)),
            "stock_ratio": self._median(lambda run: run.ratio(run.peers.get("stock"))),
            "seeder_copies": self._median(lambda run: run.ours.seeder_copies),
            "stock_seeder_copies": self._median(lambda run: run.peers["stock"].seeder_copies)
            if "stock" in middle.peers
            else None,
            "longest": self._median(lambda run: run.ours.longest / run.link_time),
            "done": len(middle.ours.ends),
            "cpu_secs": self._median(lambda run: run.ours.cpu_secs),
            "python_secs": self._median(lambda run: run.ours.python_secs),
            "duplicates": self._median(lambda run: run.ours.duplicates),
            "ratios": [_rounded(run.ratio(run.ours)) for run in self.runs],
            "base_ratios": [_rounded(run.ratio(run.base)) for run in self.runs if run.base],
            "measured": _rounded(measured),
            "bar": self.case.bar,
            "met": all(self.case.met(run.ours, measured) for run in self.runs),
            "failed": sorted({name for run in self.runs for name in run.ours.failed}),
            "peers": {kind: self._peer(kind) for kind in middle.peers},
        }

    def row(self) -> dict[str, Any]:
        """Returns the row to keep: the answer, and every value of every run."""
        return {
            "what": self.case.what,
            "by": self.case.by.value,
            "each": [_rounded(value) for value in self.each()],
            "loads": [round(run.load, 1) for run in self.runs],
            "begins": [_rounded(begin) for begin in self.middle().ours.begins],
            **self.answer(),
        }

    def middle(self) -> ComparedRun:
        """Returns the run whose last host has the median time."""
        middle = median([run.ours for run in self.runs])
        return next(run for run in self.runs if run.ours is middle)

    def contenders(self) -> dict[str, Outcome]:
        """Returns the contenders of the median run, for its picture."""
        run = self.middle()
        beside = {self.case.beside: run.base} if run.base else {}
        return {"ours": run.ours, **beside, **run.peers}

    def table(self) -> str:
        """Returns a table of ours and the references."""
        lines = ["| who | last host | holder sent | not done | settings |", "|---|---|---|---|---|"]
        for name, outcome in self.contenders().items():
            ratio, copies = self._figures(name, outcome)
            failed = f"{len(outcome.failed)} of {len(outcome.failed) + len(outcome.ends)}" if outcome.failed else ""
            lines.append(f"| {name} | {ratio} | {copies} | {failed} | {SETTINGS.get(name, 'as it ships')} |")
        return "\n".join(lines)

    def _figures(self, name: str, outcome: Outcome) -> tuple[str, str]:
        middle = self.middle()
        if name in middle.peers:
            peer = self._peer(name)
            ratio, copies = peer["ratio"], peer["seeder_copies"]
        else:
            ratio, copies = _rounded(middle.ratio(outcome)), _rounded(outcome.seeder_copies)
        return "nobody" if ratio is None else f"{ratio:.2f} T", f"{copies:.2f} copies"

    def _peer(self, kind: str) -> dict[str, Any]:
        seen = [(run, run.peers[kind]) for run in self.runs if kind in run.peers]
        return {
            "ratio": _median(run.ratio(outcome) for run, outcome in seen),
            "ratios": [_rounded(run.ratio(outcome)) for run, outcome in seen],
            "seeder_copies": _median(outcome.seeder_copies for _, outcome in seen),
            "failed": max(len(outcome.failed) for _, outcome in seen),
            "settings": SETTINGS[kind],
        }

    def _median(self, value: Callable[[ComparedRun], float | None]) -> float | None:
        return _median(value(run) for run in self.runs)


def _median(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return _rounded(statistics.median(found)) if found else None


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 3)
