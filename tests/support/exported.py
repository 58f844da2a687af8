"""What brokers and the lake job show to Prometheus, by the code's own catalogue."""

import functools

from ottla.broker.metrics.catalogue import LATENESS, beans, process_metrics
from ottla.pipelines.lake import metrics as lake

SUFFIXES = {"times": ("", "_count"), "timer": ("", "_count")}


@functools.cache
def exported():
    """Return the labels of each series, by its name: of brokers, and of the lake job."""
    found = {one.bean: set() for one in process_metrics()}
    found |= {f"ottla_lake_{name}": {"topic"} for name in lake.HELP}
    for one in beans():
        labels = {tag.replace("-", "_") for tag in one.tags if tag}
        for family in one.families:
            if family == LATENESS:
                found |= {f"{family}_bucket": {"le"}, f"{family}_count": set()}
                continue
            for suffix in SUFFIXES.get(one.kind, ("",)):
                more = {"quantile"} if suffix == "" and one.kind in SUFFIXES else set()
                found[family + suffix] = labels | more
    return found
