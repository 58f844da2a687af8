"""The state of idempotent and transactional producers of one log. A decider, no I/O.

Kafka: `ProducerStateManager`, `ProducerStateEntry` and `ProducerAppendInfo`. Two steps per batch:
`check` says whether the leader may append it (or returns the earlier batch it repeats) and changes
nothing; `update` notes a batch that is in the log. Invariants: at most five batches per producer
are remembered; `first_unstable_offset` is the first record of a transaction that is ongoing, or
whose marker is above the high watermark. The snapshot's bytes are Kafka's (PROTOCOL section 7.2).
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.model.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidProducerEpochError,
    OttlaError,
    OutOfOrderSequenceError,
)
from ottla.model.ports import Buffer
from ottla.model.protocol import MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_SEQUENCE

BATCHES_KEPT = 5
_SEQUENCES = MAX_SEQUENCE + 1

_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1
_ENTRIES_AT_ONCE = 1_000
CRC_COVERS_FROM = 6
"""The snapshot's CRC covers everything from this byte on."""


TRUSTED: object = object()
"""The guard of appends that need no verification: markers, or all if it is switched off."""


class Guard:
    """Kafka's `VerificationGuard`: a transaction's first batch while its coordinator is asked.

    The append needs this very object (KIP-890): a marker between the request and the append removes
    it, so that no response is used for a later transaction.
    """

    __slots__ = ("epoch", "lowest_sequence", "timestamp")

    def __init__(self, epoch: int, sequence: int, timestamp: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.timestamp = timestamp


class WrittenBatch(NamedTuple):
    """A batch that is in the log: the last sequence and offset, and how far back it reaches."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % _SEQUENCES

    def is_followed_by(self, other: "WrittenBatch") -> bool:
        """Return whether the other batch begins with the sequence after this one's last."""
        return (self.last_sequence + 1) % _SEQUENCES == other.first_sequence


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was written, with the last stable offset once it is complete."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int


class Producer:
    """One producer id's state in this log."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "entry",
        "epoch",
        "has_earlier_batches",
        "id",
        "last_timestamp",
        "txn_first",
    )

    def __init__(self, producer_id: int) -> None:
        self.id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.txn_first: int | None = None
        self.batches: list[WrittenBatch] = []
        self.has_earlier_batches = False
        """it comes from a snapshot, which has only the last batch: the log may have those before"""
        self.entry: bytes | None = None
        """its entry in a snapshot, None since it changed; most do not change between two"""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def repeated(self, epoch: int, first_sequence: int, last_sequence: int) -> WrittenBatch | None:
        """Return the remembered batch with exactly these sequences, if there is one."""
        if epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None

    def adopt_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.batches.clear()
            self.has_earlier_batches = False
            self.epoch = epoch


def last_sequence_of(base_sequence: int, count: int) -> int:
    """Return the sequence of a batch's last record; sequences wrap from 2^31-1 to 0."""
    return (base_sequence + count - 1) % _SEQUENCES


class Producers:
    """All producers of one log, and its unfinished transactions."""

    __slots__ = (
        "_guards",
        "_ongoing",
        "expiration_ms",
        "first_unstable_offset",
        "producers",
        "unreplicated",
    )

    def __init__(self, expiration_ms: int = 86_400_000) -> None:
        self.producers: dict[int, Producer] = {}
        self.expiration_ms = expiration_ms
        self.first_unstable_offset: int | None = None
        self._ongoing: dict[int, int] = {}
        """first offset -> producer id of transactions without a marker, in offset order"""
        self.unreplicated: dict[int, int] = {}
        """first offset -> marker's offset of transactions whose marker is above the HW"""
        self._guards: dict[int, Guard] = {}
        """producer id -> the guard that its transaction's first batch here needs"""

    # Deciding --------------------------------------------------------------------------

    def check(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        count: int,
        is_transactional: bool,
        check_sequence: bool,
    ) -> WrittenBatch | None:
        """Return the batch this one repeats, or None if it may be appended; else raise.

        `check_sequence` is False for the coordinators' own appends, which have no sequences.
        """
        producer = self.producers.get(producer_id)
        if producer is None:
            return None
        in_sequence = epoch == producer.epoch and (
            not check_sequence or base_sequence == (producer.last_sequence + 1) % _SEQUENCES
        )
        if not in_sequence:
            if check_sequence:
                last_sequence = last_sequence_of(base_sequence, count)
                repeated = producer.repeated(epoch, base_sequence, last_sequence)
                if repeated is not None:
                    return repeated
            if epoch < producer.epoch:
                raise InvalidProducerEpochError(
                    f"producer {producer_id} wrote with epoch {epoch}, but epoch {producer.epoch} "
                    "is known"
                )
            if check_sequence:
                self._check_sequence(producer, epoch, base_sequence)
        if producer.txn_first is not None and not is_transactional:
            raise OttlaError(
                f"producer {producer_id} wrote outside of its transaction that began at offset "
                f"{producer.txn_first}",
                ErrorCode.INVALID_TXN_STATE,
            )
        return None

    @staticmethod
    def _check_sequence(producer: Producer, epoch: int, base_sequence: int) -> None:
        if producer.epoch == NO_PRODUCER_EPOCH:
            return
        if epoch != producer.epoch:
            if base_sequence != 0:
                raise OutOfOrderSequenceError(
                    f"producer {producer.id} begins epoch {epoch} with sequence {base_sequence}, "
                    "not 0"
                )
            return
        expected = (producer.last_sequence + 1) % _SEQUENCES
        if base_sequence != expected:
            raise OutOfOrderSequenceError(
                f"producer {producer.id} sent sequence {base_sequence}, expected {expected}"
            )

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Raise unless a coordinator of this epoch may end a transaction of this producer."""
        producer = self.producers.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch:
            raise InvalidProducerEpochError(
                f"a marker for producer {producer_id} carries epoch {epoch}, but epoch "
                f"{producer.epoch} is known"
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise OttlaError(
                f"a marker for producer {producer_id} comes from coordinator epoch "
                f"{coordinator_epoch}, but epoch {producer.coordinator_epoch} is known",
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            )

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        producer = self.producers.get(producer_id)
        return producer is not None and producer.epoch == epoch and producer.txn_first is not None

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int
    ) -> Guard | None:
        """Return the guard to append with once the transaction is verified; None: it is by now."""
        if self.has_ongoing_transaction(producer_id, epoch):
            return None
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = Guard(epoch, sequence, now_ms)
        elif epoch > guard.epoch:
            guard.epoch, guard.lowest_sequence = epoch, sequence
        elif epoch == guard.epoch:
            guard.lowest_sequence = min(sequence, guard.lowest_sequence)
        return guard

    def check_guard(self, producer_id: int, epoch: int, sequence: int, guard: object) -> None:
        """Raise unless a transactional batch belongs to a transaction its coordinator knows of."""
        known = self._guards.get(producer_id)
        if self.has_ongoing_transaction(producer_id, epoch):
            return
        if known is None or known is not guard:
            raise OttlaError(
                f"a batch of producer {producer_id} is part of no transaction under way",
                ErrorCode.INVALID_TXN_STATE,
            )
        if sequence > known.lowest_sequence:
            raise OutOfOrderSequenceError(
                f"producer {producer_id} begins its transaction with sequence {sequence}, but "
                f"{known.lowest_sequence} came before"
            )

    # Noting ----------------------------------------------------------------------------

    def update(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        count: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        is_transactional: bool,
    ) -> None:
        """Note a data batch that is in the log."""
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(producer_id)
        if epoch != producer.epoch:
            producer.adopt_epoch(epoch)
        batches = producer.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        sequence = NO_SEQUENCE
        if base_sequence >= 0:
            sequence = (base_sequence + count - 1) % _SEQUENCES
        batches.append(WrittenBatch(sequence, last_offset, last_offset - first_offset, timestamp))
        producer.last_timestamp = timestamp
        producer.entry = None
        if is_transactional and producer.txn_first is None:
            producer.txn_first = first_offset
            self._ongoing[first_offset] = producer_id
            self._guards.pop(producer_id, None)
            self._settle()

    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        marker_offset: int,
        timestamp: int,
        aborted: bool,
    ) -> CompletedTransaction | None:
        """Note a marker that is in the log; return the transaction it ended, if it held data."""
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(producer_id)
        first = producer.txn_first
        self._guards.pop(producer_id, None)
        producer.adopt_epoch(epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        producer.entry = None
        producer.txn_first = None
        if first is None:
            return None
        stable = marker_offset + 1
        for offset, owner in self._ongoing.items():
            if owner != producer_id:
                stable = offset
                break
        self._ongoing.pop(first, None)
        self.unreplicated[first] = marker_offset
        self._settle()
        return CompletedTransaction(producer_id, first, marker_offset, aborted, stable)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Remove the unreplicated transactions whose markers are replicated now."""
        if self.unreplicated:
            gone = [f for f, marker in self.unreplicated.items() if marker < high_watermark]
            for first in gone:
                del self.unreplicated[first]
            if gone:
                self._settle()

    def add_unreplicated(self, decided: Mapping[int, int]) -> None:
        """Add unreplicated transactions: snapshots do not hold transactions that have ended."""
        if decided:
            self.unreplicated.update(decided)
            self._settle()

    def _settle(self) -> None:
        firsts = [*list(self._ongoing)[:1], *self.unreplicated]
        self.first_unstable_offset = min(firsts) if firsts else None

    def expire(self, now_ms: int) -> int:
        """Forget producers without a transaction that were silent for too long."""
        limit = now_ms - self.expiration_ms
        gone = [
            p.id
            for p in self.producers.values()
            if p.txn_first is None and p.last_timestamp <= limit
        ]
        for producer_id in gone:
            del self.producers[producer_id]
        if self._guards:
            self._guards = {p: g for p, g in self._guards.items() if g.timestamp > limit}
        return len(gone)

    def clear(self) -> None:
        self.producers.clear()
        self._ongoing.clear()
        self.unreplicated.clear()
        self._guards.clear()
        self.first_unstable_offset = None

    # Snapshots -------------------------------------------------------------------------

    def restoring(self, parts: Iterable[list[Producer]], now_ms: int) -> Iterator[None]:
        """Take the state of a snapshot without expired producers; yields after each part."""
        self.clear()
        limit = now_ms - self.expiration_ms
        ongoing = []
        for part in parts:
            for producer in part:
                if producer.txn_first is not None:
                    ongoing.append((producer.txn_first, producer.id))
                elif producer.last_timestamp <= limit:
                    continue
                self.producers[producer.id] = producer
            yield
        self._ongoing = dict(sorted(ongoing))
        self._settle()


def encode_snapshot(producers: Iterable[Producer]) -> bytearray:
    """Return a snapshot whose CRC field is still 0 (see `CRC_COVERS_FROM`)."""
    entries = [p.entry or _packed(p) for p in producers]
    return bytearray(_SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, len(entries)) + b"".join(entries))


def _packed(p: Producer) -> bytes:
    batch = p.batches[-1] if p.batches else WrittenBatch(NO_SEQUENCE, -1, 0, -1)
    p.entry = _SNAPSHOT_ENTRY.pack(
        p.id,
        p.epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.offset_delta,
        p.last_timestamp,
        p.coordinator_epoch,
        -1 if p.txn_first is None else p.txn_first,
    )
    return p.entry


def decode_snapshot(data: Buffer, crc_of_rest: int) -> Iterator[list[Producer]]:
    """Read a snapshot in parts; CorruptRecordError at once unless version, CRC and size are right.

    `crc_of_rest` is the CRC-32C of what follows the CRC field.
    """
    if len(data) < _SNAPSHOT_HEAD.size:
        raise CorruptRecordError(f"a producer snapshot of {len(data)} bytes")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptRecordError(f"producer snapshot version {version}, expected 1")
    if crc != crc_of_rest:
        raise CorruptRecordError("the producer snapshot's CRC does not match")
    if count < 0 or len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise CorruptRecordError(f"a producer snapshot of {count} entries in {len(data)} bytes")
    return _entries(memoryview(data)[_SNAPSHOT_HEAD.size :])


def _entries(data: memoryview) -> Iterator[list[Producer]]:
    step = _ENTRIES_AT_ONCE * _SNAPSHOT_ENTRY.size
    for start in range(0, len(data), step):
        result = []
        for fields in _SNAPSHOT_ENTRY.iter_unpack(data[start : start + step]):
            producer = Producer(fields[0])
            producer.epoch = fields[1]
            if fields[3] >= 0:
                producer.batches = [WrittenBatch(fields[2], fields[3], fields[4], fields[5])]
                producer.has_earlier_batches = fields[2] >= 0
                if fields[7] >= -1:  # what we would write, too
                    producer.entry = _SNAPSHOT_ENTRY.pack(*fields)
            producer.last_timestamp = fields[5]
            producer.coordinator_epoch = fields[6]
            producer.txn_first = fields[7] if fields[7] >= 0 else None
            result.append(producer)
        yield result
