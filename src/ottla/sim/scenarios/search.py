"""Search: many runs of a scenario, the smallest counterexamples of its promises, what would help.

Invariants: the runs are those of the seeds from the first one on, in their order, however many
processes there are; a counterexample is a run that was seen to break its promise with just the
faults it names; a remedy is said to help only after as many hours.
"""

import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import msgspec

from ottla.sim.scenarios.promises import Broken
from ottla.sim.scenarios.scenario import BATCH, GAP, KEPT, ONCE, ORDER, Scenario
from ottla.sim.scenarios.scenario_run import Job, Run
from ottla.sim.scenarios.worker import Worker
from ottla.sim.shrink import ddmin

MARGIN_S = 5.0
SHRINK_S = 45.0
"""How long fewer faults are looked for at most."""
SECONDS_PER_HOUR = 3600.0


class Hours(msgspec.Struct):
    """What some hours of simulated time came to."""

    runs: int = 0
    seconds: float = 0.0
    acknowledged: int = 0
    faults: int = 0
    longest_gap_s: float = 0.0
    first: dict[str, Run] = msgspec.field(default_factory=dict)
    """promise -> the first run that broke it"""
    first_after_s: dict[str, float] = msgspec.field(default_factory=dict)
    """promise -> simulated seconds until the end of that run"""
    unhealed: Run | None = None
    defects: list[str] = msgspec.field(default_factory=list)
    interrupted: bool = False

    def take(self, run: Run) -> None:
        """Add the next run."""
        self.runs += 1
        self.seconds += run.seconds
        self.acknowledged += run.acknowledged
        self.faults += len(run.faults)
        self.longest_gap_s = max(self.longest_gap_s, run.longest_gap[0])
        for broken in run.broken:
            if broken.promise not in self.first:
                self.first[broken.promise] = run
                self.first_after_s[broken.promise] = self.seconds
        if run.unhealed and self.unhealed is None:
            self.unhealed = run
        self.defects += [f"seed {run.seed}: {line}" for line in run.defects[:3]]


class Remedy(msgspec.Struct):
    """Changed settings, and what the same hours came to with them."""

    changes: dict[str, str]
    scenario: Scenario
    hours: Hours
    helps: bool


Said = Callable[[str], object]


class Pool:
    """Some workers of one scenario."""

    def __init__(self, scenario: Scenario, processes: int) -> None:
        self._executor = ThreadPoolExecutor(processes)
        self._workers = [Worker(scenario) for _ in range(processes)]
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)

    def submit(self, job: Job) -> "Future[Run]":
        return self._executor.submit(self._run, job)

    def _run(self, job: Job) -> Run:
        worker = self._free.get()
        try:
            return worker.run(job)
        finally:
            self._free.put(worker)

    def close(self) -> None:
        """End all processes, whatever they do."""
        for worker in self._workers:
            worker.kill()
        # A thread that still reads sees the end of its process; its pipes are closed after that.
        self._executor.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()


@contextmanager
def pool_of(scenario: Scenario, processes: int) -> Iterator[Pool]:
    """Return workers that end with the block."""
    pool = Pool(scenario, processes)
    try:
        yield pool
    finally:
        pool.close()


def search(
    scenario: Scenario, seconds: float, processes: int, first_seed: int, said: Said
) -> Hours:
    """Run seeds until so many simulated seconds are over, or each promise is broken.

    An interrupt (Ctrl-C) ends it early: what was found until then is returned.
    """
    found = Hours()
    waiting: deque[Future[Run]] = deque()
    seed = first_seed
    with pool_of(scenario, processes) as pool:
        try:
            while found.seconds < seconds and len(found.first) < len(scenario.promises):
                while len(waiting) < processes + 1:
                    waiting.append(pool.submit(Job(seed)))
                    seed += 1
                found.take(waiting.popleft().result())
                said(
                    f"{found.seconds / SECONDS_PER_HOUR:.1f} simulated hours, {found.runs:,} runs, "
                    f"broken: {', '.join(sorted(found.first)) or 'none'}"
                )
        except KeyboardInterrupt:
            found.interrupted = True
    return found


def counterexample(scenario: Scenario, run: Run, promise: str, said: Said) -> Run:
    """Return the smallest run found with the same seed that breaks the promise."""
    best, until_s = run, time.monotonic() + SHRINK_S

    with Worker(scenario) as worker:

        def breaks(numbers: list[int]) -> bool:
            nonlocal best
            if time.monotonic() > until_s:
                return False
            ends = (f.at_s + f.lasts_s - run.began_s for f in run.faults if f.number in numbers)
            length_s = max(ends, default=0.0) + scenario.catch_up_seconds + MARGIN_S
            ran = worker.run(Job(run.seed, tuple(numbers), length_s))
            said(f"looking for fewer faults: {len(best.faults)}")
            if all(broken.promise != promise for broken in ran.broken):
                return False
            best = ran
            return True

        numbers = [fault.number for fault in run.faults]
        first = broken_of(run, promise)
        # What comes after the record that shows it may have nothing to do with it.
        late_s = first.acknowledged_s + 3 * scenario.longest_detection_s
        until = [f.number for f in run.faults if first.acknowledged_s < 0 or f.at_s <= late_s]
        if len(until) < len(numbers) and breaks(until):
            numbers = until
        ddmin(numbers, breaks)
    return best


def broken_of(run: Run, promise: str) -> Broken:
    """Return how a run broke a promise."""
    return next(broken for broken in run.broken if broken.promise == promise)


def remedies(scenario: Scenario, broken: set[str]) -> Iterator[tuple[dict[str, str], Scenario]]:
    """Yield changes of settings that may keep the promises, each on top of those before."""
    changes: dict[str, str] = {}
    settings = scenario.producer_settings()
    if KEPT in broken and settings.acks != -1:
        changes["acks"] = "all"
        scenario = _with(scenario, producer=scenario.producer | {"acks": "all"})
        yield dict(changes), scenario
    if broken & {ONCE, ORDER} and not scenario.producer_settings().idempotent:
        producer = {k: v for k, v in scenario.producer.items() if k not in ("acks", BATCH)}
        producer["enable.idempotence"] = changes["enable.idempotence"] = "true"
        if settings.acks != -1:
            changes["acks"] = "all"
        if settings.in_flight > 5:
            changes[BATCH] = "5"
        producer = {k: v for k, v in producer.items() if (k, v) != ("retries", "0")}
        scenario = _with(scenario, producer=producer)
        yield dict(changes), scenario
    if broken <= {ONCE, ORDER, GAP}:
        return
    config = scenario.server_config().topic_config(scenario.topic)
    if config.unclean_leader_election_enable:
        changes["unclean.leader.election.enable"] = "false"
        scenario = _with(
            scenario, topic=scenario.topic | {"unclean.leader.election.enable": "false"}
        )
        yield dict(changes), scenario
    enough = scenario.at_once + 1
    if scenario.min_isr < enough:
        changes["min.insync.replicas"] = str(enough)
        replicas = max(scenario.replication_factor, scenario.at_once + enough)
        brokers = max(scenario.brokers, replicas)
        if replicas > scenario.replication_factor:
            changes["replication-factor"] = str(replicas)
        if brokers > scenario.brokers:
            changes["brokers"] = str(brokers)
        scenario = _with(
            scenario,
            topic=scenario.topic | {"min.insync.replicas": str(enough)},
            replication_factor=replicas,
            brokers=brokers,
        )
        yield dict(changes), scenario


def _with(scenario: Scenario, **changes: Any) -> Scenario:
    return msgspec.structs.replace(scenario, **changes)


def helping(
    scenario: Scenario,
    broken: set[str],
    seconds: float,
    processes: int,
    first_seed: int,
    said: Said,
) -> Remedy | None:
    """Return the first remedy with which the same seeds break none of the promises.

    Else the last that was tried; None where there is none to try.
    """
    tried = None
    for changes, changed in remedies(scenario, broken):
        text = ", ".join(f"{k}={v}" for k, v in changes.items())
        judged = _with(changed, promises=tuple(p for p in changed.promises if p in broken))
        said(text)
        hours = search(judged, seconds, processes, first_seed, said)
        tried = Remedy(changes, judged, hours, not hours.first and not hours.interrupted)
        if tried.helps or hours.interrupted:
            break
    return tried
