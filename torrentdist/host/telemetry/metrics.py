"""Prometheus metrics: values read from the daemon's state at each scrape, and counters and
histograms of what happens in between, in Prometheus' text format.

Always: every metric is a row of metric_table.py.
"""

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from torrentdist.host.telemetry.metric_table import METRICS, PREFIX, MetricKind, MetricRow

_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Sample(msgspec.Struct, frozen=True):
    """One value of a gauge, or of a counter that something else keeps."""

    name: str
    value: float
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class Metrics:
    """`read` returns the samples of a scrape."""

    def __init__(self, read: Callable[[], Iterable[Sample]]) -> None:
        self.cluster = ""
        """The label `cluster` of every series; empty: none."""
        self._read = read
        self._kept: dict[str, dict[tuple[str, ...], list[float]]] = {}
        """By the values of the labels: the value of a counter; of a histogram the number of
        observations up to each limit and above the last one, and their sum."""

    def has(self, *names: str) -> None:
        """Shows these counters and histograms from now on, with 0 for every value of a label."""
        for row in (METRICS[name] for name in names):
            size = len(row.buckets) + 2 if row.buckets else 1
            self._kept[row.name] = {values: [0.0] * size for values in itertools.product(*row.labels.values())}

    def count(self, name: str, by: float = 1.0, **labels: str) -> None:
        self._kept[name][self._values(name, labels)][0] += by

    def observe(self, name: str, value: float, **labels: str) -> None:
        kept = self._kept[name][self._values(name, labels)]
        kept[bisect_left(METRICS[name].buckets, value)] += 1
        kept[-1] += value

    def _values(self, name: str, labels: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(labels[label] for label in METRICS[name].labels)

    def render(self) -> bytes:
        """Returns the answer to a scrape."""
        samples: dict[str, list[Sample]] = {}
        for sample in self._read():
            samples.setdefault(sample.name, []).append(sample)
        for name, kept in self._kept.items():
            samples[name] = [sample for values, numbers in kept.items() for sample in _series(name, values, numbers)]
        return "".join(line for name, found in samples.items() for line in self._lines(METRICS[name], found)).encode()

    def _lines(self, row: MetricRow, samples: Iterable[Sample]) -> Iterator[str]:
        yield f"# HELP {PREFIX}{row.name} {row.help}\n# TYPE {PREFIX}{row.name} {row.kind}\n"
        for sample in samples:
            labels = {"cluster": self.cluster, **sample.labels} if self.cluster else sample.labels
            shown = ",".join(f'{label}="{value.translate(_ESCAPED)}"' for label, value in sorted(labels.items()))
            yield f"{PREFIX}{sample.name}{'{' if shown else ''}{shown}{'}' if shown else ''} {float(sample.value)!r}\n"


def _series(name: str, values: tuple[str, ...], numbers: list[float]) -> Iterator[Sample]:
    """Returns the samples of a counter or histogram for one set of labels."""
    row = METRICS[name]
    labels = dict(zip(row.labels, values, strict=True))
    if row.kind is not MetricKind.HISTOGRAM:
        yield Sample(name, numbers[0], labels)
        return
    *counts, total = numbers
    limits = [*map(repr, row.buckets), "+Inf"]
    for limit, count in zip(limits, itertools.accumulate(counts), strict=True):
        yield Sample(f"{name}_bucket", count, {**labels, "le": limit})
    yield Sample(f"{name}_count", sum(counts), labels)
    yield Sample(f"{name}_sum", total, labels)
