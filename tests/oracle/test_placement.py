"""Where replicas of new topics and partitions go, beside Kafka 3.9.1's own class `AdminUtils`.

Random cases: with racks of all sizes and without, with errors, from every start, and partitions
that are added to a topic. Kafka takes one number for both start and shift where they are not drawn,
and brokers in the order given: its callers give them by id.
"""

import random
import subprocess
from pathlib import Path

import pytest

from ottla.model.errors import OttlaError
from ottla.placement.assignment import BrokerRack, assign_added, assign_replicas
from support import kafka_tools

PROGRAM = Path(__file__).parents[1] / "support" / "Placement.java"
pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]
CASES = 2000


def drawn(chance):
    """One case: brokers, partitions, factor, start, first partition."""
    count = chance.randint(1, 12)
    ids = chance.sample(range(40), count)
    kind = chance.random()
    names = "abcdefgh"[: chance.randint(1, 8)]
    racks = {i: None if kind < 0.4 else chance.choice(names) for i in ids}
    if kind > 0.95:
        racks[chance.choice(ids)] = None  # some without: refused
    factor = chance.randint(0, min(count, 5) + 1)
    partitions = chance.randint(0, 40)
    first = chance.choice((0, 0, chance.randint(1, 30)))
    brokers = [BrokerRack(i, racks[i]) for i in ids]
    return brokers, partitions, factor, chance.randrange(count), first


def kafkas(cases):
    lines = "".join(
        f"{partitions} {factor} {start} {first} "
        + " ".join(f"{b.id}:{b.rack}" if b.rack else str(b.id) for b in sorted(brokers))
        + "\n"
        for brokers, partitions, factor, start, first in cases
    )
    done = subprocess.run(
        kafka_tools.command(str(PROGRAM)),
        input=lines, capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    return done.stdout.rstrip("\n").split("\n")


def ours(brokers, partitions, factor, start, first):
    try:
        placed = assign_replicas(
            brokers, partitions, factor, start=start, shift=start, first_partition=first
        )
    except OttlaError as error:
        return f"error {error}"
    return " ".join(f"{p}={','.join(map(str, r))}" for p, r in sorted(placed.items()))


def test_random_cases_are_placed_as_by_kafka():
    chance = random.Random(39)
    cases = [drawn(chance) for _ in range(CASES)]
    answers = kafkas(cases)
    assert len(answers) == CASES
    for case, expected in zip(cases, answers, strict=True):
        assert ours(*case) == expected, case
    errors = sum(a.startswith("error") for a in answers)
    with_racks = sum(any(b.rack for b in c[0]) for c in cases)
    assert 0.02 * CASES < errors < 0.5 * CASES
    assert 0.4 * CASES < with_racks < 0.8 * CASES


def test_added_partitions_go_on_as_by_kafka():
    """As `AdminZkClient.createNewPartitionsAssignment`: from the first broker of partition 0."""
    chance = random.Random(40)
    cases, added = [], []
    for _ in range(500):
        brokers, partitions, factor, start, _ = drawn(chance)
        if not 0 < factor <= len(brokers) or partitions == 0:
            continue
        if 0 < sum(b.rack is not None for b in brokers) < len(brokers):
            continue
        existing = assign_replicas(brokers, partitions, factor, start=start, shift=start)
        more = chance.randint(1, 20)
        by_id = sorted(b.id for b in brokers)
        begin = next(i for i, b in enumerate(by_id) if b >= existing[0][0])
        cases.append((brokers, more, factor, begin, partitions))
        found = assign_added(brokers, existing, more)
        added.append(" ".join(f"{p}={','.join(map(str, r))}" for p, r in sorted(found.items())))
    assert len(cases) > 200
    assert kafkas(cases) == added
