"""Simulated transactional clients: consume, transform, produce, exactly once.

Invariants: errors are distinguished as Kafka's `TransactionManager` does: try again, abort and
start over (`AbortableError`), or give up, as another has our transactional id (`FencedError`); a
batch is sent with its sequence until its outcome is known or the producer's patience ends, and then
the epoch is raised (KIP-360); offsets go into the transaction with the member's generation
(KIP-447).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ottla.client.client import Client
from ottla.client.coordinators import TRANSACTION
from ottla.model.errors import RETRIABLE, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.sim.clients import PERHAPS, REQUEST_TIMEOUT_S, produce, produce_request
from ottla.sim.coordinated import Coordinator
from ottla.sim.history import Commit, Fenced, History, Init, Transaction, Write
from ottla.sim.members import Member, Seat, code_of, partition_codes
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from ottla.wire.records import Record, build_batch

TRANSACTION_TIMEOUT_MS = 10_000
DELIVERY_TIMEOUT_S = 8.0
"""How long one batch is tried; Kafka's `delivery.timeout.ms`."""
CLIENTS_VERSION = 3
"""The last AddPartitionsToTxn of clients."""
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


class TransactionalProducer:
    """One producer with a transactional id; one transaction at a time."""

    def __init__(
        self, world: World, client: Client, name: str, transactional_id: str, history: History
    ) -> None:
        self.world = world
        self.client = client
        self.name = name
        self.transactional_id = transactional_id
        self.history = history
        self.producer_id, self.epoch = -1, -1
        self.present: Transaction | None = None
        self._coordinator = Coordinator(world, client, transactional_id, TRANSACTION)
        self._sequences: dict[TopicPartition, int] = {}
        self._partitions: set[TopicPartition] = set()
        self._offsets_added = False
        self._unanswered = False
        """Whether partitions may have been added, but no one has said so in time."""
        self._renew = False
        self.count = 0

    # --- its life ---------------------------------------------------------------------------------

    async def init(self) -> None:
        """Take over the transactional id; what another left open is aborted."""
        loop = asyncio.get_running_loop()
        noted = Init(self.name, self.transactional_id, loop.time())
        self.history.inits.append(noted)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
        )
        response = await self._coordinator.ask(request, code_of, again=RETRIABLE)
        self._check("InitProducerId", response.error_code)
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        noted.producer_id, noted.epoch = self.producer_id, self.epoch
        noted.completed_s = loop.time()
        self._sequences.clear()
        self._renew = False

    def begin(self) -> Transaction:
        self.count += 1
        now = asyncio.get_running_loop().time()
        self.present = Transaction(self.name, self.transactional_id, self.count, now)
        self.history.transactions.append(self.present)
        self._partitions.clear()
        self._offsets_added = self._unanswered = False
        return self.present

    async def send(self, batches: Mapping[TopicPartition, Sequence[bytes]]) -> None:
        """Write to partitions, all at once, within the transaction."""
        new = sorted(set(batches) - self._partitions)
        if new:
            await self._add(new)
        sending = [self._produce(tp, tuple(batches[tp])) for tp in sorted(batches)]
        for outcome in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int], member: Member, seat: Seat
    ) -> None:
        """Make a group's offsets part of the transaction, as of the member's generation."""
        if not self._offsets_added:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=member.group,
            )
            response = await self._coordinator.ask(request, code_of, again=RETRIABLE)
            self._check("AddOffsetsToTxn", response.error_code)
            self._offsets_added = True
        by_topic: dict[str, list[Any]] = {}
        r = TxnOffsetCommitRequest
        for tp, offset in sorted(offsets.items()):
            by_topic.setdefault(tp.topic, []).append(
                r.TxnOffsetCommitRequestPartition(
                    partition_index=tp.partition, committed_offset=offset, committed_metadata=""
                )
            )
        commit = r(
            transactional_id=self.transactional_id,
            group_id=member.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=seat.generation,
            member_id=seat.member_id,
            group_instance_id=member.instance_id,
            topics=[
                r.TxnOffsetCommitRequestTopic(name=t, partitions=p) for t, p in by_topic.items()
            ],
        )
        response = await member.ask(commit, partition_codes, again=RETRIABLE)
        for code in sorted(set(partition_codes(response))):
            self._check("TxnOffsetCommit", code)

    async def end(self, *, commit: bool) -> None:
        """Commit or abort; returns once the coordinator has decided so."""
        present = self.present
        assert present is not None
        loop = asyncio.get_running_loop()
        present.commit, present.end_invoked_s = commit, loop.time()
        if self._partitions or self._offsets_added or self._unanswered:
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            )
            response = await self._coordinator.ask(request, code_of, again=RETRIABLE)
            nothing_begun = self._unanswered and response.error_code == ErrorCode.INVALID_TXN_STATE
            if not nothing_begun:
                self._check("EndTxn", response.error_code)
        present.outcome, present.ended_s = commit, loop.time()
        self.present = None
        if self._renew:
            await self.init()

    @property
    def gave_up(self) -> bool:
        """Whether the last transaction was aborted because the coordinator did not respond."""
        return self._unanswered

    def note_fenced(self) -> None:
        """Note that another has our place, as the coordinator reports."""
        began_s = None if self.present is None else self.present.began_s
        now = asyncio.get_running_loop().time()
        self.history.fenced.append(Fenced(self.name, self.transactional_id, began_s, now))

    # --- parts ------------------------------------------------------------------------------------

    async def _add(self, partitions: Sequence[TopicPartition]) -> None:
        by_topic: dict[str, list[int]] = {}
        for tp in partitions:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        r = AddPartitionsToTxnRequest
        request = r(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                r.AddPartitionsToTxnTopic(name=t, partitions=p) for t, p in by_topic.items()
            ],
        )

        def codes(response: Any) -> list[int]:
            return [
                int(p.partition_error_code)
                for t in response.results_by_topic_v3_and_below
                for p in t.results_by_partition
            ]

        try:
            async with asyncio.timeout(DELIVERY_TIMEOUT_S):
                response = await self._coordinator.ask(
                    request, codes, version=CLIENTS_VERSION, again=RETRIABLE
                )
        except TimeoutError:
            self._unanswered = True
            raise AbortableError("AddPartitionsToTxn: no answer in time") from None
        for code in sorted(set(codes(response))):
            self._check("AddPartitionsToTxn", code)
        self._partitions.update(partitions)

    async def _produce(self, tp: TopicPartition, values: tuple[bytes, ...]) -> None:
        """Send one batch until its outcome is known; AbortableError if it never will be."""
        loop = asyncio.get_running_loop()
        write = self.history.invoke(self.name, tp, values, -1, loop.time())
        sequence = self._sequences.get(tp, 0)
        self._sequences[tp] = sequence + len(values)
        batch = build_batch(
            [Record(-1, self.world.clock.wall_ms(), None, v) for v in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce_request(tp, batch, transactional_id=self.transactional_id)
        until = loop.time() + DELIVERY_TIMEOUT_S
        refresh = False
        while loop.time() < until:
            response = await produce(self.world, self.client, tp, request, refresh=refresh)
            if response is not None:
                code = ErrorCode(response.error_code)
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    write.offset, write.completed_s = response.base_offset, loop.time()
                    if response.base_offset < 0:
                        write.completed_s, write.abandoned = None, True
                    return
                if code not in RETRIABLE and code not in PERHAPS:
                    self._lose(write)
                    raise AbortableError(f"Produce to {tp}: {code.name}")
            refresh = True
            await asyncio.sleep(0.1 + 0.2 * self.world.random.random())
        self._lose(write)
        raise AbortableError(f"Produce to {tp}: no answer in {DELIVERY_TIMEOUT_S:g} s")

    def _lose(self, write: Write) -> None:
        """Give a batch up: sequences have a hole now, so that the epoch has to be raised."""
        write.abandoned = True
        self._renew = True

    def _check(self, what: str, number: int) -> None:
        if number != ErrorCode.NONE:
            self._fail(what, ErrorCode(number))

    def _fail(self, what: str, code: ErrorCode) -> NoReturn:
        if code in FENCED:
            raise FencedError(f"{what}: {code.name}")
        if code in ABORTABLE:
            self._renew |= code in RENEWING
            raise AbortableError(f"{what}: {code.name}")
        if code is not ErrorCode.INVALID_TXN_STATE:
            # That one is what a zombie may receive whose transaction timed out meanwhile.
            self.history.complaints.append(f"{self.name} {what} got {code.name}")
        raise FencedError(f"{what}: {code.name}")


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
        self.producer = TransactionalProducer(world, self.client, name, transactional_id, history)

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
                await self.producer.end(commit=False)
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
            await producer.send(batches)
            if change_of_mind < ABORT_SHARE / 2:
                return False
            tried = self.member.note_commits(reached, seat.generation)
            await producer.send_offsets(reached, self.member, seat)
            if change_of_mind < ABORT_SHARE:
                return False
            await producer.end(commit=True)
        except AbortableError:
            return False
        for commit in tried:
            commit.completed_s = asyncio.get_running_loop().time()
        return True

    async def _leave_open(self) -> None:
        """Write one record in a transaction that no one ends: its timeout has to."""
        tp = TopicPartition(self.target, 0)
        transaction = self.producer.begin()
        transaction.values.append(b"doomed %s" % self.name.encode())
        self.left_open = True
        try:
            await self.producer.send({tp: transaction.values})
        except AbortableError:
            self.left_open = False
            await self.producer.end(commit=False)
            return
        await asyncio.Event().wait()
