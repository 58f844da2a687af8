"""Simulated transactional clients: consume, transform, produce, exactly once.

Invariants: errors are distinguished as Kafka's `TransactionManager` does: try again, abort and
start over (`AbortableError`), or give up, as another has our transactional id (`FencedError`); a
batch is sent with its sequence until its outcome is known or the producer's patience ends, and then
the epoch is raised (KIP-360); offsets go into the transaction with the member's generation
(KIP-447).
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.client.client import Client
from ottla.client.transactional_producer import TransactionalProducer
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.sim.clients import REQUEST_TIMEOUT_S, may_try_again, produce
from ottla.sim.history import Commit, Fenced, History, Init, Transaction
from ottla.sim.members import Member, ask_patiently
from ottla.wire.records import Record, build_batch

TRANSACTION_TIMEOUT_MS = 10_000
DELIVERY_TIMEOUT_S = 8.0
"""How long one batch is tried; Kafka's `delivery.timeout.ms`."""
POLL_BYTES = 2_048
ABORT_SHARE = 0.12
IDLE_S = 0.2
REST_S = 15.0
"""How long a copier rests after its coordinator was away for so long: beyond any timeout."""
PAUSE_S = 0.3
"""The mean time between two transactions of one copier: faults meet them as well as in a rush."""

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
ABORTABLE = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
RENEWING = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
"""After these the producer asks for a new epoch once it has aborted."""


class FencedError(Exception):
    """Another producer has our transactional id, or our transaction was ended over our head."""


class AbortableError(Exception):
    """The transaction under way has to be aborted; then all goes on."""


class CopyProducer(TransactionalProducer):
    """One producer with a transactional id; one transaction at a time."""

    def __init__(
        self, world: World, client: Client, name: str, transactional_id: str, history: History
    ) -> None:
        super().__init__(
            client,
            transactional_id,
            patience_s=math.inf,
            request_timeout_s=REQUEST_TIMEOUT_S,
            timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        self.world = world
        self.name = name
        self.history = history
        self.present: Transaction | None = None
        self.gave_up = False
        """Whether partitions may have been added, but no one has said so in time."""
        self._renew = False
        self.count = 0

    # --- its life ---------------------------------------------------------------------------------

    async def init(self, *, renew: bool = False) -> None:
        """Take over the transactional id; what another left open is aborted."""
        noted = Init(self.name, self.transactional_id, _now())
        self.history.inits.append(noted)
        await self.open(renew=renew)
        noted.producer_id = self._sequences.producer_id
        noted.epoch = self._sequences.producer_epoch
        noted.completed_s = _now()
        self._renew = False

    def begin(self) -> Transaction:
        self.count += 1
        self.present = Transaction(self.name, self.transactional_id, self.count, _now())
        self.history.transactions.append(self.present)
        self._added.clear()
        self.gave_up = False
        return self.present

    async def send_all(self, batches: Mapping[TopicPartition, Sequence[bytes]]) -> None:
        """Write to partitions, all at once, within the transaction."""
        try:
            async with asyncio.timeout(DELIVERY_TIMEOUT_S):
                await self.add(sorted(batches))
        except TimeoutError:
            self.gave_up = True
            raise AbortableError("AddPartitionsToTxn: no answer in time") from None
        sending = [self._produce(tp, tuple(batches[tp])) for tp in sorted(batches)]
        for outcome in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def finish(self, *, commit: bool) -> None:
        """Commit or abort; returns once the coordinator has decided so."""
        present = self.present
        assert present is not None
        present.commit, present.end_invoked_s = commit, _now()
        if self._added or self.gave_up:
            await self.end(committed=commit)
        present.outcome, present.ended_s = commit, _now()
        self.present = None
        if self._renew:
            await self.init(renew=True)

    def note_fenced(self) -> None:
        """Note that another has our place, as the coordinator reports."""
        began_s = None if self.present is None else self.present.began_s
        self.history.fenced.append(Fenced(self.name, self.transactional_id, began_s, _now()))

    # --- parts ------------------------------------------------------------------------------------

    async def _ask(self, request: Any, code_of: Callable[[Any], int], **how: Any) -> Any:
        return await ask_patiently(self._coordinator, request, code_of, **how)

    async def _produce(self, tp: TopicPartition, values: tuple[bytes, ...]) -> None:
        """Send one batch until its outcome is known; AbortableError if it never will be."""
        write = self.history.invoke(self.name, tp, values, -1, _now())
        batch = build_batch(
            [Record(-1, self.world.clock.wall_ms(), None, v) for v in values],
            is_transactional=True,
            **self._sequences.take(tp, len(values)),
        )
        until_s = _now() + DELIVERY_TIMEOUT_S
        refresh, why = False, f"no answer in {DELIVERY_TIMEOUT_S:g} s"
        while _now() < until_s:
            try:
                offset = await produce(
                    self._client,
                    tp,
                    batch,
                    transactional_id=self.transactional_id,
                    refresh=refresh,
                )
            except OttlaError as error:
                if not may_try_again(error):
                    why = error.code.name
                    break
            else:
                if offset < 0:
                    write.abandoned = True  # it is there, but not known where
                else:
                    write.acknowledged(offset, _now())
                return
            refresh = True
            await asyncio.sleep(0.1 + 0.2 * self.world.random.random())
        # The batch is given up: sequences have a hole now, so that the epoch has to be raised.
        write.abandoned = self._renew = True
        raise AbortableError(f"Produce to {tp}: {why}")

    def _check(self, what: str, code: int) -> None:
        if not code or (code == ErrorCode.INVALID_TXN_STATE and what == "EndTxn" and self.gave_up):
            return  # nothing was begun in the second case
        text = f"{what}: {ErrorCode(code).name}"
        if code in ABORTABLE:
            self._renew |= code in RENEWING
            raise AbortableError(text)
        if code not in FENCED and code != ErrorCode.INVALID_TXN_STATE:
            # That one is what a zombie may receive whose transaction timed out meanwhile.
            self.history.complaints.append(f"{self.name} {what} got {ErrorCode(code).name}")
        raise FencedError(text)


def _now() -> float:
    return asyncio.get_running_loop().time()


class Copier:
    """A process that copies records as a member of a group, each exactly once.

    The copy of a record goes to the partition with its own partition's number, and says whence it
    is and in which try it was made: `topic-partition@offset try=value`.
    """

    def __init__(
        self,
        world: World,
        bootstrap: Sequence[tuple[str, int]],
        name: str,
        transactional_id: str,
        group: str,
        source: Sequence[TopicPartition],
        target: str,
        history: History,
    ) -> None:
        self.client = Client(world, bootstrap, name, timeout_s=REQUEST_TIMEOUT_S)
        self.world = world
        self.name = name
        self.target = target
        self.stopping = False
        self.doomed = False
        """Whether to open one more transaction and never end it."""
        self.left_open = False
        self.hurried = False
        """Whether to copy without pauses: nothing new comes."""
        self.member = Member(world, self.client, group, source, history, name)
        self.producer = CopyProducer(world, self.client, name, transactional_id, history)

    async def run(self) -> None:
        """Copy until `stopping`, or until another has taken over."""
        beating = asyncio.ensure_future(self.member.beat())
        try:
            await self.producer.init()
            while not self.stopping:
                await self._generation()
            await self.member.leave()
        except (FencedError, AbortableError) as error:
            if isinstance(error, FencedError):
                self.producer.note_fenced()
            await self.member.leave()
        finally:
            beating.cancel()
            await self.client.close()

    async def _generation(self) -> None:
        member = self.member
        await member.join()
        positions = await member.committed()
        while not self.stopping and not member.due:
            if self.doomed and not self.left_open:
                await self._leave_open()
            batches, reached = await self._read(positions)
            if not batches:
                positions.update(reached)  # nothing but markers there
                await asyncio.sleep(IDLE_S)
            elif await self._copy(batches, reached):
                positions.update(reached)
                if not self.hurried:
                    await asyncio.sleep(self.world.random.expovariate(1.0 / PAUSE_S))
            elif self.producer.present is not None:
                await self.producer.finish(commit=False)
                if self.producer.gave_up and not self.hurried:
                    await asyncio.sleep(REST_S)

    async def _read(
        self, positions: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, list[bytes]], dict[TopicPartition, int]]:
        """Return what is to be written where, and where that leads in the source."""
        batches: dict[TopicPartition, list[bytes]] = {}
        reached = {}
        mark = b"%s.%d" % (self.name.encode(), self.producer.count + 1)
        for tp, offset in positions.items():
            records, end = await self.member.poll(
                tp, offset, committed_only=True, max_bytes=POLL_BYTES
            )
            if records or end > offset:
                reached[tp] = end
            if records:
                values = [
                    b"%s@%d %s=%s" % (str(tp).encode(), r.offset, mark, r.value or b"")
                    for r in records
                ]
                batches.setdefault(TopicPartition(self.target, tp.partition), []).extend(values)
        return batches, reached

    async def _copy(
        self,
        batches: Mapping[TopicPartition, Sequence[bytes]],
        reached: Mapping[TopicPartition, int],
    ) -> bool:
        """Write copies and the offsets in one transaction; False if it has to be aborted."""
        producer = self.producer
        seat = self.member.seat
        transaction = producer.begin()
        transaction.values += [v for values in batches.values() for v in values]
        tried: list[Commit] = []
        change_of_mind = self.world.random.random()
        try:
            await producer.send_all(batches)
            if change_of_mind < ABORT_SHARE / 2:
                return False
            tried = self.member.note_commits(reached, seat.generation)
            await producer.send_offsets(reached, self.member, seat)
            if change_of_mind < ABORT_SHARE:
                return False
            await producer.finish(commit=True)
        except AbortableError:
            return False
        for commit in tried:
            commit.completed_s = _now()
        return True

    async def _leave_open(self) -> None:
        """Write one record in a transaction that no one ends: its timeout has to."""
        tp = TopicPartition(self.target, 0)
        transaction = self.producer.begin()
        transaction.values.append(b"doomed %s" % self.name.encode())
        self.left_open = True
        try:
            await self.producer.send_all({tp: transaction.values})
        except AbortableError:
            self.left_open = False
            await self.producer.finish(commit=False)
            return
        await asyncio.Event().wait()
