"""Figures in README.md and docs/OPERATIONS.md: those of docs/BENCHMARKS.md, limits of the code."""

import re
from pathlib import Path

import pytest

from ottla.admin.local.cluster import MAX_BROKERS
from ottla.broker.topic_creation import MAX_NEW_PARTITIONS
from ottla.model.config import OUR_DEFAULTS
from ottla.model.config_keys import broker_keys, our_keys
from ottla.model.descriptors import split_descriptors
from ottla.wire.codec import MAX_ELEMENTS, MAX_ELEMENTS_AT_ONCE

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
OPERATIONS = ROOT / "docs" / "OPERATIONS.md"
BENCHMARKS = (ROOT / "docs" / "BENCHMARKS.md").read_text(encoding="utf-8")
START = "ZooKeeper + 3 brokers, to the first acks=all record"
MEAN = "EndToEndLatency, RF 3, acks=all, mean"
RF3 = "ProducerPerformance 100 B, 64 KiB batches, RF 3, acks=all"
LEADER = "kill -9 of a leader: ... until every partition is led again"
CONTROLLER = "kill -9 of the controller: ... until every partition is led again"
# page, beginning of its row, row of the table of `make bench-quick`
FIGURES = [
    (README, "ZooKeeper and three brokers", START),
    (README, "memory of an idle broker", "resident memory of an idle broker"),
    (README, "end to end", MEAN),
    (README, "produced with three replicas", RF3),
    (README, "read by one consumer", "ConsumerPerformance, 1 consumer, hot"),
    (README, "`kill -9` of a leader", LEADER),
    (README, "`kill -9` of the controller", CONTROLLER),
    (OPERATIONS, "memory of an idle broker", "resident memory of an idle broker"),
    (OPERATIONS, "... with 2,000 replicas", "resident memory of a broker after that"),
    (
        OPERATIONS,
        "produce, 100-byte records",
        "ProducerPerformance 100 B, 64 KiB batches, RF 1, acks=1",
    ),
    (OPERATIONS, "... RF 3, acks=all", RF3),
    (OPERATIONS, "consume, one consumer", "ConsumerPerformance, 1 consumer, hot"),
    (OPERATIONS, "... from disk", "... 1 consumer, cold"),
    (
        OPERATIONS,
        "processor time of brokers",
        "... CPU seconds of the brokers per GB consumed, hot",
    ),
    (OPERATIONS, "latency, RF 3", MEAN),
    (OPERATIONS, "... 99 of 100", "EndToEndLatency, RF 3, acks=all, p99"),
    (OPERATIONS, "start of ZooKeeper", START),
    (OPERATIONS, "restart of a broker", "its restart, until it is back in every ISR"),
    (OPERATIONS, "after the session timeout: leader killed", LEADER),
    (OPERATIONS, "... controller killed", CONTROLLER),
]


def numbers(cell):
    return [float(text.replace(",", "")) for text in re.findall(r"\d[\d,]*(?:\.\d+)?", cell)]


def cells(text, beginning):
    rows = [line for line in text.split("\n") if line.startswith(f"| {beginning}")]
    assert len(rows) == 1, f"{beginning}: {len(rows)} rows"
    return [cell.strip() for cell in rows[0].strip("| ").split(" | ")]


@pytest.mark.parametrize(("page", "row", "measured"), FIGURES)
def test_a_figure_is_the_one_that_was_measured(page, row, measured):
    said = [numbers(cell)[0] for cell in cells(page.read_text(encoding="utf-8"), row)[1:]]
    _, kafka, ottla, *_ = cells(BENCHMARKS, measured)
    found = [numbers(kafka)[0], numbers(ottla)[0]][-len(said) :]
    for ours, theirs in zip(said, found, strict=True):
        assert ours == pytest.approx(theirs, rel=0.03), f"{row}: measured {kafka}, {ottla}"


def defaults(name):
    keys = broker_keys() | our_keys()
    return int(OUR_DEFAULTS.get(name, keys[name].default))


def test_limits_are_those_of_the_code():
    page = OPERATIONS.read_text(encoding="utf-8")
    small, large = split_descriptors(1024), split_descriptors(65536)
    mib = 2**20
    for row, wanted in {
        "connections of a broker": [defaults("max.connections")],
        "connections from one address": [defaults("max.connections.per.ip")],
        "descriptors": [16, 256, 1024, small.files, small.connections, 65536, large.files],
        "one request": [defaults("socket.request.max.bytes") / mib],
        "elements of one request": [MAX_ELEMENTS, MAX_ELEMENTS_AT_ONCE],
        "what a produce request": [defaults("ottla.produce.max.decompressed.bytes") / mib],
        "requests in memory": [defaults("queued.max.request.bytes") / mib],
        "answers that clients": [defaults("ottla.queued.max.response.bytes") / mib],
        "new partitions in one request": [MAX_NEW_PARTITIONS],
        "brokers of `ottla up`": [MAX_BROKERS],
        "broker ids": [0, defaults("reserved.broker.max.id")],
    }.items():
        assert numbers(cells(page, row)[1]) == wanted, row
