"""Prometheus' metrics of one process, made from the table in `throttle.events`.

Events come from several threads, the loop's first of all, and are put into a queue; whoever answers for the metrics
works it off. So a scrape never holds up a task, and a task never a scrape.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from throttle import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from prometheus_client import Metric as Family

    from throttle.events import Event, Metric

UNHEARD = 100_000
"""Events that may wait for somebody to look at them; a second's worth of a very busy pod is a tenth of that."""

Reading = tuple[tuple[str, ...], float]
"""Values of the labels, and the value."""


class Metrics(Collector):
    """A registry of its own, a listener for the events, and the collector of what is read at a scrape."""

    def __init__(self, read: Callable[[], Mapping[str, Sequence[Reading]]] | None = None) -> None:
        """Collect; `read` answers what is read at a scrape, by the name of the metric."""
        self._unheard: deque[tuple[Event, Sequence[object]]] = deque(maxlen=UNHEARD)
        self._read = read
        self._lock = threading.Lock()
        self.registry = CollectorRegistry()
        self._series: dict[str, list[tuple[Any, tuple[int, ...], int | None]]] = {
            event.name: [self._made(event, metric) for metric in event.metrics] for event in events.EVENTS
        }
        self._adds: dict[tuple[Any, ...], Callable[[float], None]] = {}
        """What adds to a series, by its metric and the values of its labels."""
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def hear(self, event: Event, values: Sequence[object]) -> None:
        """Note an event. From any thread, at once."""
        self._unheard.append((event, values))

    def work_off(self) -> None:
        """Count what was heard. From any thread of those that serve."""
        with self._lock:
            while True:
                try:
                    event, values = self._unheard.popleft()
                except IndexError:
                    return
                self._count(event, values)

    def page(self, accept: str) -> tuple[str, bytes]:
        """Content type and body of the metrics, in the format that is asked for."""
        self.work_off()
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self.registry)

    def collect(self) -> Iterable[Family]:
        """What is read now."""
        found: Mapping[str, Sequence[Reading]] = self._read() if self._read is not None else {}
        for metric in events.READINGS:
            readings = found.get(metric.name)
            if readings is None:
                continue
            counts = metric.kind == "counter"
            name = metric.name.removesuffix("_total") if counts else metric.name
            made = (CounterMetricFamily if counts else GaugeMetricFamily)(name, metric.text, labels=metric.labels)
            for labels, value in readings:
                made.add_metric(labels, value)
            yield made

    def describe(self) -> Iterable[Family]:
        """Nothing beforehand: what is read differs from pod to pod."""
        return ()

    def _made(self, event: Event, metric: Metric) -> tuple[Any, tuple[int, ...], int | None]:
        options = {"labelnames": metric.labels, "registry": self.registry}
        if metric.kind == "histogram":
            made: Any = Histogram(metric.name, metric.text, buckets=metric.buckets, **cast("Any", options))
        else:
            made = Counter(metric.name, metric.text, **cast("Any", options))
        labels = tuple(event.fields.index(name) for name in metric.labels)
        return made, labels, event.fields.index(metric.value) if metric.value else None

    def _count(self, event: Event, values: Sequence[object]) -> None:
        for made, labels, at in self._series[event.name]:
            value = 1.0 if at is None else values[at]
            if value is None:  # nobody knows it this time
                continue
            add = self._adds.get(key := (made, *[values[i] for i in labels]))
            if add is None:  # prometheus_client looks a series up in some ten times what adding to it takes
                series = made.labels(*map(str, key[1:])) if labels else made
                add = self._adds[key] = series.observe if isinstance(made, Histogram) else series.inc
            add(max(0.0, cast("float", value)))
