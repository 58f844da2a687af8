"""Bean names: what an MBean's attribute is called in Prometheus.

Pure. Invariant: the names and labels are those that the rules for Kafka of the usual JMX exporter
give (`kafka-2_0_0.yml`, lower-case names), so that boards and alerts made for Kafka find them;
figures of Ottla's own follow the same rules with `ottla` in the place of `kafka`. Names are added
that other rules in wide use give: `..._percent` for shares, the attributes of
`socket-server-metrics`, and those of quotas by kind.
"""

import re
from typing import NamedTuple

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
