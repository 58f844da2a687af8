"""Exposition: figures as text, in Prometheus's format or in OpenMetrics.

Invariants: one family stands in one piece, with its type and what it means; a text is made family
by family, so that the event loop has turns between them; names of MBeans are translated once
(`bean_names`). The formats: "Text-based format" 0.0.4 of Prometheus, OpenMetrics 1.0.0.
"""

import functools
from collections.abc import Iterator, Mapping

from ottla.broker.metrics.bean_names import (
    COUNTER,
    HISTOGRAM,
    UNKNOWN,
    Sample,
    label_text,
    parse_bean,
    samples_of,
)

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
NAMES = 4096
"""Names of MBeans whose translation is kept: a broker without topics has about 400."""


class Family:
    """One metric with its series. `name` of a counter ends in `_total`."""

    __slots__ = ("help", "kind", "lines", "name")

    def __init__(self, name: str, kind: str, help_text: str) -> None:
        self.name = name
        self.kind = kind
        self.help = help_text
        self.lines: list[str] = []


class Families:
    """The metrics of one scrape, in the order in which they were added."""

    def __init__(self, help_of: Mapping[str, str]) -> None:
        """`help_of` has what each family means, by its name."""
        self._help_of = help_of
        self._families: dict[str, Family] = {}

    def family(self, name: str, kind: str) -> Family:
        """Return the family of a name, new or known."""
        found = self._families.get(name)
        if found is None:
            found = Family(name, kind, self._help_of.get(name, ""))
            self._families[name] = found
        return found

    def add_figure(self, bean: str, values: Mapping[str, float]) -> None:
        """Add all that there is of an MBean."""
        for attribute, value in values.items():
            for prefix, sample in _translated(bean, attribute):
                self.family(sample.family, sample.kind).lines.append(f"{prefix} {value}\n")

    def add_histogram(self, name: str, buckets: Mapping[str, int], total: float) -> None:
        """Add a histogram: counts up to each bound, `+Inf` last, and the sum of all values."""
        lines = self.family(name, HISTOGRAM).lines
        count = 0
        for bound, count in buckets.items():
            lines.append(f'{name}_bucket{{le="{bound}"}} {count}\n')
        lines.append(f"{name}_count {count}\n{name}_sum {total}\n")

    def texts(self, *, open_metrics: bool) -> Iterator[bytes]:
        """Yield the text of each family, and what ends it all."""
        for family in self._families.values():
            name = family.name
            if open_metrics and family.kind == COUNTER:
                name = name.removesuffix("_total")
            kind = family.kind
            if kind == UNKNOWN and not open_metrics:
                kind = "untyped"
            head = f"# TYPE {name} {kind}\n"
            if family.help:
                head = f"# HELP {name} {family.help}\n{head}"
            yield (head + "".join(family.lines)).encode()
        if open_metrics:
            yield b"# EOF\n"


@functools.lru_cache(maxsize=NAMES)
def _translated(bean: str, attribute: str) -> tuple[tuple[str, Sample], ...]:
    """Return each series of an attribute, with what stands before its value."""
    return tuple(
        (f"{sample.family}{sample.suffix}{label_text(sample.labels)}", sample)
        for sample in samples_of(parse_bean(bean), attribute)
    )


def wants_open_metrics(accept: str) -> bool:
    """Return whether a client's field Accept prefers OpenMetrics to Prometheus's own format."""
    best = {"open": 0.0, "text": 0.0}
    for part in accept.split(","):
        kind, *parameters = (p.strip().lower() for p in part.split(";"))
        share = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    share = float(parameter[2:])
                except ValueError:
                    share = 0.0
        if kind == "application/openmetrics-text":
            best["open"] = max(best["open"], share)
        elif kind in ("text/plain", "text/*", "*/*"):
            best["text"] = max(best["text"], share)
    return best["open"] > 0 and best["open"] >= best["text"]
