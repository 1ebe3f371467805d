"""What an event and a metric are. Plain values."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]

MILLISECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
WORK = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 36000.0)


class Metric(NamedTuple):
    """A time series (one for each combination of its labels) as Prometheus reads it."""

    kind: Kind
    name: str
    text: str
    labels: tuple[str, ...] = ()
    """Fields of the event that tell the series apart."""
    value: str = ""
    """The field that is added or observed; empty counts the event."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, in the unit of its value."""


class Event(NamedTuple):
    """Something that happened in a pod."""

    name: str
    text: str
    fields: tuple[str, ...]
    metrics: tuple[Metric, ...]
