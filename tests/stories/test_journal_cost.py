"""What the journal and state-change.log cost a failover: CPU in all, and in the longest step.

`pytest -s tests/stories/test_journal_cost.py` prints the figures. CPU is counted, not time: other
work on the machine changes nothing.
"""

import asyncio
import gc
import logging
import time

import pytest
from story_harness import Cluster

from ottla.broker.process_log import wall_ms, write_state_changes
from ottla.controller import snapshot
from ottla.controller.journal import Journal
from ottla.controller.state_change_logger import StateChangeLogger
from ottla.log.files import OsFiles
from ottla.log.rolling_file import RollingFile
from ottla.model.journal_schema import JOURNAL_NAME
from ottla.model.state_changes import LOGGER_NAME

PARTITIONS = 3000
LONGEST_STEP_MS = 20


class Meter:
    """CPU spent in functions that were wrapped, those they call among each other counted once."""

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch
        self.spent_ms = {}
        self.longest_ms = 0.0
        self.inside = False

    def watch(self, owner, name):
        function = getattr(owner, name)

        def measured(*arguments, **named):
            if self.inside:
                return function(*arguments, **named)
            self.inside = True
            began = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self.inside = False
                took_ms = (time.thread_time() - began) * 1000
                self.spent_ms[name] = self.spent_ms.get(name, 0.0) + took_ms
                self.longest_ms = max(self.longest_ms, took_ms)

        self.monkeypatch.setattr(owner, name, measured)


@pytest.fixture
def state_changes(tmp_path):
    logger = logging.getLogger(LOGGER_NAME)
    before = logger.handlers[:], logger.level, logger.propagate
    write_state_changes(OsFiles(), str(tmp_path / "state-change.log"))
    yield
    for handler in set(logger.handlers) - set(before[0]):
        handler.close()
    logger.handlers, logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


@pytest.fixture
def no_garbage():
    """Collect none meanwhile, as in a broker: here it is that of all tests of this process."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def failover(folder, meter):
    """Return the CPU ms from the controller's death until nobody has it in an ISR."""
    cluster = await Cluster.create()
    files = []
    try:
        for broker in (1, 2, 3):
            await cluster.start(broker)
        await cluster.settle()
        replicas = {p: tuple((p + i) % 3 + 1 for i in range(3)) for p in range(PARTITIONS)}
        await cluster.create_topic("t", replicas, {})

        async def until(holds):
            while True:
                active = [b for b, s in cluster.brokers.items() if s.controller.is_active]
                if active:
                    known = cluster.brokers[active[0]].controller.context.leadership
                    states = [k.leader_and_isr for k in known.values()]
                    if len(states) == PARTITIONS and all(map(holds, states)):
                        return active[0]
                await asyncio.sleep(0.005)

        victim = await until(lambda state: state.has_leader)
        await cluster.settle()
        for broker, stub in cluster.brokers.items():
            file = RollingFile(OsFiles(), f"{folder}/{JOURNAL_NAME}.{broker}", wall_ms)
            files.append(file)
            stub.controller._journal_write = file.write
        for owner, name in (
            *((Journal, n) for n in ("event", "decision", "state_changes", "request", "snapshot")),
            (snapshot, "_partition_facts"),
            *((StateChangeLogger, n) for n in ("changed", "sent")),
            (RollingFile, "_slice"),
        ):
            meter.watch(owner, name)
        began = time.thread_time()
        await cluster.kill(victim)
        await until(lambda state: state.has_leader and victim not in state.isr)
        await cluster.settle()
        return (time.thread_time() - began) * 1000
    finally:
        await cluster.close()
        for file in files:
            file.close()


@pytest.mark.timeout(180)
def test_a_failover_writes_itself_down_in_short_steps(
    tmp_path, monkeypatch, state_changes, no_garbage
):
    meter = Meter(monkeypatch)
    total_ms = asyncio.run(failover(tmp_path, meter))
    spent_ms = sum(meter.spent_ms.values())
    size = sum(f.stat().st_size for f in tmp_path.glob(f"{JOURNAL_NAME}*"))
    print(
        f"\n{PARTITIONS} partitions: {spent_ms:.0f} ms CPU for {size / 1e6:.1f} MB of journal and "
        f"state-change.log, longest step {meter.longest_ms:.1f} ms; all of the failover with its "
        f"three brokers and ZooKeeper in one process {total_ms:.0f} ms"
    )
    assert size > 100 * PARTITIONS
    assert (tmp_path / "state-change.log").stat().st_size > 100 * PARTITIONS
    assert meter.longest_ms < LONGEST_STEP_MS
    assert spent_ms < total_ms / 3
