"""Exposition: figures as text, in Prometheus's format or in OpenMetrics.

Invariants: one family stands in one piece, with its type and what it means; a text is made family
by family, so that the event loop has turns between them; names of MBeans are translated once
(`samples_of`). The formats: "Text-based format" 0.0.4 of Prometheus, OpenMetrics 1.0.0.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
NAMES = 4096
"""Names of MBeans whose translation is kept: a broker without topics has about 400."""


_UNSAFE = re.compile(r"[^a-zA-Z0-9_]+")
_PER_SEC = re.compile(r"(.+)PerSec\w*")
_PERCENTILE = re.compile(r"(\d+)thPercentile")
_PERCENT = re.compile(r"(.+)Percent\w*")
_DOMAIN = re.compile(r"(kafka|ottla)(?:\.(.+))?")

QUOTAS = frozenset({"Produce", "Fetch", "Request"})
QUOTA_LABELS = {"client-id": "clientId"}

COUNTER, GAUGE, SUMMARY, UNKNOWN = "counter", "gauge", "summary", "unknown"
HISTOGRAM = "histogram"


class Bean(NamedTuple):
    """An MBean's name in its parts: `kafka.server:type=ReplicaManager,name=LeaderCount`."""

    domain: str
    type: str
    name: str
    tags: tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One series: the family it belongs to, the kind of that, what follows its name, its labels."""

    family: str
    kind: str
    suffix: str
    labels: tuple[tuple[str, str], ...]


def parse_bean(text: str) -> Bean:
    """Return the parts of an MBean's name; `name` is empty where it has none."""
    domain, _, properties = text.partition(":")
    pairs = [(key, value) for key, _, value in (p.partition("=") for p in properties.split(","))]
    kind, name = "", ""
    tags = []
    for key, value in pairs:
        if key == "type":
            kind = value
        elif key == "name":
            name = value
        else:
            tags.append((key, value))
    return Bean(domain, kind, name, tuple(tags))


def _joined(*parts: str) -> str:
    return _UNSAFE.sub("_", "_".join(part for part in parts if part)).lower()


def samples_of(bean: Bean, attribute: str) -> tuple[Sample, ...]:
    """Return what series an attribute becomes; none where the rules leave it out."""
    found = _DOMAIN.fullmatch(bean.domain)
    assert found is not None, bean
    prefix = _joined(found[1], found[2] or "", bean.type)
    labels = tuple((_UNSAFE.sub("_", key), value) for key, value in bean.tags)
    if not bean.name:  # socket-server-metrics, quotas
        kind = COUNTER if attribute.endswith("-total") else GAUGE
        sample = Sample(_joined(prefix, attribute), kind, "", labels)
        if bean.type not in QUOTAS:
            return (sample,)
        family = _joined(found[1], found[2] or "", "quota", attribute)
        tags = tuple((QUOTA_LABELS.get(key, key), value) for key, value in bean.tags)
        return (sample, Sample(family, GAUGE, "", (("resource", bean.type), *tags)))
    name = _joined(prefix, bean.name)
    percent = _PERCENT.fullmatch(bean.name)
    samples = []
    if percent and attribute in ("Value", "OneMinuteRate"):
        samples.append(Sample(f"{_joined(prefix, percent[1])}_percent", GAUGE, "", labels))
    if attribute == "Value":
        samples.append(Sample(name, GAUGE, "", labels))
    elif attribute == "Count":
        per_sec = _PER_SEC.fullmatch(bean.name)
        if per_sec:
            samples.append(Sample(f"{_joined(prefix, per_sec[1])}_total", COUNTER, "", labels))
        elif percent:
            samples.append(Sample(f"{name}_count", UNKNOWN, "", labels))
        else:
            samples.append(Sample(name, SUMMARY, "_count", labels))
    elif found := _PERCENTILE.fullmatch(attribute):
        quantile = ("quantile", f"0.{found[1]}")
        samples.append(Sample(name, SUMMARY, "", (*labels, quantile)))
    return tuple(samples)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def label_text(labels: tuple[tuple[str, str], ...]) -> str:
    """Return labels as they stand after a name: `{topic="t"}`, empty without any."""
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels) + "}"


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
