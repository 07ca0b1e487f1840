"""Prometheus metrics: values read from the daemon's state at each scrape, and counters and
histograms of what happens in between.

Always: every metric is a row of metric_table.py.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from torrentdist.host.telemetry.metric_table import METRICS, PREFIX, MetricKind, MetricRow

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # a series more for each counter


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a gauge, or of a counter that something else keeps."""

    name: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


class Metrics(Collector):
    """`read` returns the samples of a scrape."""

    def __init__(self, read: Callable[[], Iterable[Sample]]) -> None:
        self.cluster = ""
        """The label `cluster` of every series; empty: none."""
        self._read = read
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    def has(self, *names: str) -> None:
        """Shows these counters and histograms from now on, with 0 for every value of a label."""
        for row in (METRICS[name] for name in names):
            full, labels = PREFIX + row.name, [*row.labels]
            made: Counter | Histogram
            if row.kind is MetricKind.HISTOGRAM:
                made = self._histograms[row.name] = Histogram(
                    full, row.help, labels, buckets=row.buckets, registry=self._registry
                )
            else:
                made = self._counters[row.name] = Counter(full, row.help, labels, registry=self._registry)
            if labels:
                for values in itertools.product(*row.labels.values()):
                    made.labels(*values)

    def count(self, name: str, by: float = 1.0, **labels: str) -> None:
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(by)

    def observe(self, name: str, value: float, **labels: str) -> None:
        histogram = self._histograms[name]
        (histogram.labels(**labels) if labels else histogram).observe(value)

    def describe(self) -> list[Family]:
        return []  # Which rows this daemon has is known only at the scrape.

    def collect(self) -> Iterator[Family]:
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for sample in self._read():
            family = families.get(sample.name)
            if family is None:
                family = families[sample.name] = _family(METRICS[sample.name])
            family.add_metric([*sample.labels.values()], sample.value)
        yield from families.values()

    def render(self) -> bytes:
        return generate_latest(_Labelled(self._registry, self.cluster))


class _Labelled(CollectorRegistry):
    """A registry whose series all have one more label."""

    def __init__(self, registry: CollectorRegistry, cluster: str) -> None:
        super().__init__()
        self._inner = registry
        self._more = {"cluster": cluster} if cluster else {}

    def collect(self) -> Iterator[Family]:
        for family in self._inner.collect():
            family.samples = [sample._replace(labels={**self._more, **sample.labels}) for sample in family.samples]
            yield family


def _family(row: MetricRow) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if row.kind is MetricKind.COUNTER else GaugeMetricFamily
    return kind(PREFIX + row.name, row.help, labels=[*row.labels])
