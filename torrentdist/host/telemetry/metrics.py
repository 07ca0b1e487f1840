"""Prometheus metrics, read from the daemon's state at each scrape. There are no separate counters
to keep in step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


@dataclass(frozen=True)
class Sample:
    """One value of a metric. The `name` of a counter ends in _total."""

    name: str
    help: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


class Metrics(Collector):
    def __init__(self, read: Callable[[], Iterable[Sample]]) -> None:
        self._read = read
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def describe(self) -> list[Metric]:
        return []  # Names are known only at the scrape.

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for sample in self._read():
            family = families.get(sample.name)
            if family is None:
                kind = CounterMetricFamily if sample.name.endswith("_total") else GaugeMetricFamily
                family = families[sample.name] = kind(
                    f"torrentdist_{sample.name}", sample.help, labels=[*sample.labels]
                )
            family.add_metric([*sample.labels.values()], sample.value)  # type: ignore[attr-defined]
        yield from families.values()

    def render(self) -> bytes:
        return generate_latest(self._registry)
