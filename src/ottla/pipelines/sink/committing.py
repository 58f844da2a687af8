"""The tasks' transactions end as one: all of a write's rows are committed, or none.

A task writes in a transaction of its own and leaves it open; its commit message says which one it
is. When all tasks are done the driver first writes the decision, the list of these transactions, to
the topic PREFIX, and then commits them. So a micro-batch that Spark runs again is either decided,
then its transactions are committed if they were not yet and its rows are skipped, or nothing of it
was committed and nothing will be, however many tasks it has then and whatever rows they have.

Invariants: who plans a write takes the driver's transactional id first, so that no earlier driver
can decide any more, and completes what it decided before a task can take over an id. A decision
names the query: the numbers of another query's micro-batches mean nothing. What a broker aborted
after it was decided, because the driver was away for longer than the transactions' timeout, is
written again by the tasks that had written it, which must have as many rows and bytes as before.
Kafka: KIP-98; KIP-939 will spare the decision.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from ottla.client.transactional_producer import TransactionalProducer
from ottla.client.transactions import describe, list_transactions
from ottla.model.errors import ConfigError, ErrorCode, OttlaError, ProducerFencedError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import LATEST
from ottla.pipelines.sink import progress
from ottla.pipelines.sink.options import SinkOptions
from ottla.pipelines.source.cluster import Cluster

T = TypeVar("T")

ONGOING = "Ongoing"
KEY = b"decision"
TAIL = 16
"""Offsets at the end of the topic that hold the newest decision, almost always."""


class Prepared(msgspec.Struct, frozen=True, array_like=True):
    """A task's transaction that has all its rows and is still open."""

    task: int
    attempt: int
    producer_id: int
    epoch: int
    rows: int
    bytes: int

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.epoch


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The newest write of a prefix that is to be committed; `finished` once all of it is."""

    query: str
    batch: int
    finished: bool
    tasks: list[Prepared]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What was found when a write was planned; goes to its tasks and comes back by them.

    `driver`: who may decide. `last`: the last decision, without its tasks and note. `lost`: what of
    it has to be written again, by task.
    """

    prefix: str
    driver: tuple[int, int] | None = None
    last: Decision | None = None
    lost: Mapping[int, Prepared] = field(default_factory=dict)

    def repeats(self, query: str, batch: int | None) -> bool:
        """Return whether a write is the last one, of which rows were lost."""
        last = self.last
        return bool(self.lost) and last is not None and (last.query, last.batch) == (query, batch)

    def skips(self, query: str, batch: int | None, task: int) -> bool:
        """Return whether a task's rows are in the topic already."""
        last = self.last
        if last is None or batch is None or last.query != query or batch > last.batch:
            return False
        return batch < last.batch or task not in self.lost


def transactional_id(prefix: str, task: int, attempt: int) -> str:
    """Return the id of an attempt: two that run at once are not in each other's way.

    No prefix has a slash, so no id is another prefix's.
    """
    return f"{prefix}/{task}/{attempt}"


def producer_of(cluster: Cluster, options: SinkOptions, name: str) -> TransactionalProducer:
    return TransactionalProducer(
        cluster.client,
        name,
        options.codec,
        patience_s=options.delivery_timeout_ms / 1000,
        request_timeout_s=options.request_timeout_s,
        timeout_ms=options.transaction_timeout_ms,
        any_time=True,
    )


class Committer:
    """The driver's side of a write."""

    def __init__(self, cluster: Cluster, options: SinkOptions, plan: Plan) -> None:
        self._cluster = cluster
        self._options = options
        self.plan = plan
        self.last: Decision | None = None
        """The decision that `open` has found."""
        self._driver = producer_of(cluster, options, plan.prefix)
        self._decisions = TopicPartition(plan.prefix, 0)

    def open(self) -> Plan:
        """Shut out earlier drivers, and complete what they decided."""
        prefix = self.plan.prefix
        progress.ensure_topic(self._cluster, prefix, 1, progress.CONFIGS)
        self._cluster.run(self._driver.open())
        last, lost = self._newest(), {}
        if last is not None and not last.finished:
            lost = self._complete(last)
            if not lost:
                self._write(msgspec.structs.replace(last, finished=True))
                self._cluster.run(self._driver.open())  # its sequence numbers begin at 0 again
        self.clear()
        self.last = last
        brief = None if last is None else msgspec.structs.replace(last, tasks=[], note="")
        self.plan = Plan(prefix, self._driver.identity, brief, lost)
        return self.plan

    def commit(self, query: str, batch: int | None, prepared: Sequence[Prepared]) -> None:
        """Commit what tasks have prepared; OttlaError if that cannot be done as a whole."""
        self._refuse_gone(prepared)
        if batch is None:
            self._commit_undecided(prepared)
            return
        plan = self.plan
        assert plan.driver is not None
        if plan.repeats(query, batch):
            self._refuse_others(batch, plan.lost, prepared)
        if not prepared and (plan.skips(query, batch, -1) or not self._options.note):
            return
        decision = Decision(
            query=query, batch=batch, finished=False, tasks=list(prepared), note=self._options.note
        )
        self._driver.resume(plan.driver)
        self._write(decision)
        if gone := self._complete(decision):
            raise self._aborted(gone.values(), "decided")
        self._write(msgspec.structs.replace(decision, finished=True))

    def abort(self) -> None:
        """Abort all that is open, unless it was decided: then it is completed.

        If another driver has taken over, that is its work.
        """
        if self.plan.driver is None:
            self.clear()
            return
        found = self._cluster.run(describe(self._cluster.client, self.plan.prefix))
        if (found.producer_id, found.producer_epoch) == self.plan.driver:
            self.open()

    def clear(self) -> None:
        """Abort the transactions of attempts that nobody will commit: readers wait for them."""
        prefix = self.plan.prefix + "/"
        found = self._cluster.run(list_transactions(self._cluster.client, [ONGOING], []))
        names = [one.transactional_id for one in found if one.transactional_id.startswith(prefix)]
        producers = [producer_of(self._cluster, self._options, name) for name in names]
        self._cluster.run(_all(producer.open() for producer in producers))

    def _complete(self, decision: Decision) -> dict[int, Prepared]:
        """Commit the transactions of a decision; return those that brokers had aborted."""

        async def end(one: Prepared) -> Prepared | None:
            try:
                await self._resumed(one).end(committed=True)
            except ProducerFencedError:
                return one
            return None

        gone = self._cluster.run(_all(end(one) for one in decision.tasks))
        return {one.task: one for one in gone if one is not None}

    def _commit_undecided(self, prepared: Sequence[Prepared]) -> None:
        """Commit a batch write that has no number; nobody will run it again as the same one."""
        decision = Decision(query="", batch=0, finished=False, tasks=list(prepared))
        if gone := self._complete(decision):
            raise self._aborted(gone.values(), "committed in part")
        self.clear()

    def _resumed(self, one: Prepared) -> TransactionalProducer:
        name = transactional_id(self.plan.prefix, one.task, one.attempt)
        producer = producer_of(self._cluster, self._options, name)
        producer.resume(one.identity)
        return producer

    def _refuse_gone(self, prepared: Sequence[Prepared]) -> None:
        """Raise OttlaError if a transaction is not open any more, before anything is decided."""

        async def is_open(one: Prepared) -> Prepared | None:
            name = transactional_id(self.plan.prefix, one.task, one.attempt)
            try:
                found = await describe(self._cluster.client, name)
            except OttlaError as error:
                if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
                return one
            same = (found.producer_id, found.producer_epoch) == one.identity
            return None if same and found.state == ONGOING else one

        gone = [one for one in self._cluster.run(_all(map(is_open, prepared))) if one is not None]
        if gone:
            raise self._aborted(gone, "not committed")

    def _refuse_others(
        self, batch: int, lost: Mapping[int, Prepared], prepared: Sequence[Prepared]
    ) -> None:
        now = {one.task: (one.rows, one.bytes) for one in prepared}
        before = {task: (one.rows, one.bytes) for task, one in lost.items()}
        if now != before:
            raise ConfigError(
                f"micro-batch {batch} was committed in part before brokers aborted the "
                f"transactions of tasks {_few(before)}, and these have other rows now: run it with "
                "as many tasks and the same rows as before, or give another "
                "transactional.id.prefix to write all of it again (what was committed stands twice)"
            )

    def _aborted(self, gone: Iterable[Prepared], state: str) -> OttlaError:
        timeout = self._options.transaction_timeout_ms
        return OttlaError(
            f"the write is {state}: the transactions of tasks {_few(one.task for one in gone)} "
            "were aborted. Another run of this query took over, or they were open for longer than "
            f"kafka.transaction.timeout.ms={timeout}: raise it (brokers allow up to their "
            "transaction.max.timeout.ms), write less at once, or use ottla.delivery=at-least-once"
        )

    def _write(self, decision: Decision) -> None:
        note = progress.encoded(KEY, decision)
        at = self._cluster.run(self._driver.send(self._decisions, note))
        if at < 0:
            raise OttlaError(f"{self._decisions} has a decision of this driver already")
        self._cluster.run(self._driver.commit())

    def _newest(self) -> Decision | None:
        return newest_decision(self._cluster, self.plan.prefix)


def newest_decision(cluster: Cluster, prefix: str, *, wait: bool = True) -> Decision | None:
    """Return the last decision of a prefix; None if there is none. `wait` for one in the making."""
    tp = TopicPartition(prefix, 0)
    end = cluster.offsets({tp: LATEST})[tp].offset
    for start in (max(0, end - TAIL), 0):
        found = progress.newest(cluster, tp, start, wait=wait)
        if KEY in found:
            return progress.decoded(found, KEY, Decision)
    return None


async def _all(work: Iterable[Awaitable[T]]) -> list[T]:
    return list(await asyncio.gather(*work))


def _few(tasks: Iterable[int]) -> str:
    numbers = sorted(tasks)
    return ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
