"""Transactions: who may begin, join and end one, decided for all transactional ids of a broker.

A decider: time (`Now`: how long a transaction lasts goes by the monotonic clock) and new producer
ids are arguments. Who may call: `transaction_coordinator`. It
answers with effects, in order: `Reply` to whoever asked, `Append` to the log, `Send` markers,
`Forget` expired ids. Invariants:
- while an append is under way nobody else changes that id (CONCURRENT_TRANSACTIONS)
- an append in doubt (written, but not known to be committed) stays under way: it is written again
  until it is known to stand in the log. So memory never differs from the log where nothing is
  pending; Kafka's goes back to the state before, which the log may not have any more
- a decision to commit or abort is final once it is in the log: whoever coordinates next sends the
  markers again, with its own, higher coordinator epoch
- what an older leadership (`Shard`) still has under way changes nothing any more

Kafka: `TransactionCoordinator` and to the cache of `TransactionStateManager`.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import NamedTuple

from ottla.coordinators.timers import Now
from ottla.coordinators.transaction import (
    NO_EPOCH,
    ProducerFencedError,
    Transaction,
    Transition,
    is_exhausted,
)
from ottla.coordinators.transaction_states import ENDING, MAY_EXPIRE, TransactionState
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

logger = logging.getLogger(__name__)

S = TransactionState


class ProducerIdAndEpoch(NamedTuple):
    """Who a producer says it is."""

    producer_id: int
    epoch: int


class InitResult(NamedTuple):
    """The answer to InitProducerId."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1


class Reason(Enum):
    """Why a record is written, and so what its being written means."""

    INIT = auto()
    ADD = auto()
    END = auto()
    FENCE = auto()
    """to end the transaction of a producer that another takes over from"""
    TIMEOUT = auto()
    CONCLUDE = auto()


FENCING = frozenset({Reason.FENCE, Reason.TIMEOUT})


@dataclass(slots=True, eq=False)
class Shard:
    """The transactional ids of one partition, for one leadership; `epoch` is the coordinator's."""

    index: int
    epoch: int
    transactions: dict[str, Transaction] = field(default_factory=dict)
    over: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Append:
    """Effect: write `to`, then say how it went (`appended`)."""

    shard: Shard
    transaction: Transaction
    to: Transition
    reason: Reason
    ticket: object = None
    in_doubt: bool = False
    """an earlier try may stand in the log"""
    tries: int = 0
    """how often it was tried before"""


@dataclass(frozen=True, slots=True, eq=False)
class Send:
    """Effect: have `partitions` marked; then say which are (`marked`). `then` is what follows."""

    shard: Shard
    transaction: Transaction
    then: Transition
    partitions: frozenset[TopicPartition]

    @property
    def committed(self) -> bool:
        return self.then.state is S.COMPLETE_COMMIT


@dataclass(frozen=True, slots=True, eq=False)
class Forget:
    """Effect: write tombstones, then say how it went (`forgotten`)."""

    shard: Shard
    transactions: tuple[Transaction, ...]
    in_doubt: bool = False
    tries: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Again:
    """Effect: hand this to `again` a little later, the later the more `tries` it has."""

    what: Append | Forget


class Reply(NamedTuple):
    """Effect: tell whoever waits with this ticket."""

    ticket: object
    result: InitResult | ErrorCode


Effect = Append | Again | Send | Forget | Reply


class Transactions:
    """All transactional ids whose partition of `__transaction_state` this broker leads."""

    def __init__(self, max_timeout_ms: int, id_expiration_ms: int) -> None:
        self.shards: dict[int, Shard] = {}
        self._max_timeout_ms = max_timeout_ms
        self._id_expiration_ms = id_expiration_ms
        self._effects: list[Effect] = []

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def __iter__(self) -> Iterator[Transaction]:
        for shard in self.shards.values():
            yield from shard.transactions.values()

    def _reply(self, ticket: object, reason: Reason, error: ErrorCode) -> None:
        if ticket is None:
            return
        if reason is Reason.FENCE:
            # It shall ask again: then the old transaction is over, and the epoch rises once more.
            again = ErrorCode.CONCURRENT_TRANSACTIONS
            self._effects.append(
                Reply(ticket, InitResult(again if error is ErrorCode.NONE else error))
            )
        elif reason is Reason.INIT:
            self._effects.append(Reply(ticket, InitResult(error)))
        else:
            self._effects.append(Reply(ticket, error))

    # --- leadership -------------------------------------------------------------------------------

    def begin(self, index: int, epoch: int) -> Shard:
        """Make an empty shard for a partition that is being read; `serve` completes it."""
        shard = self.shards[index] = Shard(index, epoch)
        return shard

    def serve(self, shard: Shard, now: Now) -> None:
        """Go on with what the last coordinator had decided but not finished.

        An open transaction gets its whole time once more: when it began is known by the other
        broker's wall clock only, and one that is wrong must not abort what began a second ago.
        """
        if shard.over:
            return
        for transaction in list(shard.transactions.values()):
            if transaction.state in ENDING and transaction.pending is None:
                self._send(shard, transaction, now)
            elif transaction.state is S.ONGOING:
                transaction.began_mono_ms = now.mono_ms

    def unload(self, index: int) -> None:
        """Forget a partition's ids: another broker coordinates them now."""
        shard = self.shards.pop(index, None)
        if shard is not None:
            shard.over = True

    # --- InitProducerId ---------------------------------------------------------------------------

    def allows(self, timeout_ms: int) -> bool:
        """Tell whether a producer may ask for this transaction.timeout.ms."""
        return 0 < timeout_ms <= self._max_timeout_ms

    def init_producer_id(
        self,
        shard: Shard,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        new_id: int | None,
        ticket: object,
        now: Now,
    ) -> bool:
        """Give a producer its id and epoch; False, and nothing done, if `new_id` is needed."""
        transaction = shard.transactions.get(transactional_id)
        if transaction is None:
            if new_id is None:
                return False
            transaction = Transaction(transactional_id, new_id, update_ms=now.wall_ms)
            shard.transactions[transactional_id] = transaction
        error = self._may_init(transaction, expected)
        if error is not ErrorCode.NONE:
            self._effects.append(Reply(ticket, InitResult(error)))
        elif transaction.state is S.ONGOING:
            self._fence(shard, transaction, Reason.FENCE, ticket, now)
        elif transaction.exhausted and (expected is None or expected.epoch == transaction.epoch):
            if new_id is None:
                return False
            to = transaction.next_producer_id(
                new_id, timeout_ms, now.wall_ms, keep_last_epoch=expected is not None
            )
            self._effects.append(Append(shard, transaction, to, Reason.INIT, ticket))
        else:
            try:
                to = transaction.next_epoch(
                    timeout_ms, None if expected is None else expected.epoch, now.wall_ms
                )
            except ProducerFencedError as fenced:
                logger.info("producer fenced id=%s %s", transactional_id, fenced)
                self._effects.append(Reply(ticket, InitResult(ErrorCode.PRODUCER_FENCED)))
            else:
                self._effects.append(Append(shard, transaction, to, Reason.INIT, ticket))
        return True

    @staticmethod
    def _may_init(transaction: Transaction, expected: ProducerIdAndEpoch | None) -> ErrorCode:
        if transaction.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if expected is not None and transaction.epoch != NO_EPOCH:
            renewed = expected.producer_id == transaction.last_producer_id and is_exhausted(
                expected.epoch
            )
            if expected.producer_id != transaction.producer_id and not renewed:
                return ErrorCode.PRODUCER_FENCED
            # Whoever was shut out with the last epoch of an id is not asked for its next one.
            if transaction.exhausted and expected.epoch != transaction.epoch:
                return ErrorCode.PRODUCER_FENCED
        if transaction.state in ENDING:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE

    # --- partitions -------------------------------------------------------------------------------

    def add_partitions(
        self,
        shard: Shard,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        ticket: object,
        now: Now,
    ) -> None:
        """Make partitions part of the transaction, which begins with the first of them."""
        transaction, error = self._find(shard, transactional_id, producer)
        if transaction is not None and error is ErrorCode.NONE:
            if transaction.pending is not None or transaction.state in ENDING:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
            elif transaction.state is not S.ONGOING or not transaction.partitions.issuperset(
                partitions
            ):
                to = transaction.add(partitions, now)
                self._effects.append(Append(shard, transaction, to, Reason.ADD, ticket))
                return
        self._reply(ticket, Reason.ADD, error)

    def verify_partitions(
        self,
        shard: Shard,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Tell which partitions are part of the transaction under way (KIP-890).

        An append under way does not matter: the log that is written to checks once more.
        """
        transaction, error = self._find(shard, transactional_id, producer)
        if transaction is not None and error is ErrorCode.NONE and transaction.state in ENDING:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if transaction is None or error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        known = transaction.partitions
        return {
            tp: ErrorCode.NONE if tp in known else ErrorCode.TRANSACTION_ABORTABLE
            for tp in partitions
        }

    @staticmethod
    def _find(
        shard: Shard, transactional_id: str, producer: ProducerIdAndEpoch
    ) -> tuple[Transaction | None, ErrorCode]:
        transaction = shard.transactions.get(transactional_id)
        if transaction is None or transaction.producer_id != producer.producer_id:
            return transaction, ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if transaction.epoch != producer.epoch:
            return transaction, ErrorCode.PRODUCER_FENCED
        return transaction, ErrorCode.NONE

    # --- the end of a transaction -----------------------------------------------------------------

    def end(
        self,
        shard: Shard,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        ticket: object,
        now: Now,
        *,
        committed: bool,
    ) -> None:
        """Commit or abort; whoever asked is answered when the decision is in the log."""
        transaction, error = self._find(shard, transactional_id, producer)
        if transaction is not None and error is ErrorCode.NONE:
            if transaction.pending is not None:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
            elif transaction.state is S.ONGOING:
                to = transaction.end(committed=committed, now_ms=now.wall_ms)
                self._effects.append(Append(shard, transaction, to, Reason.END, ticket))
                return
            else:
                error = self._already(transaction, committed=committed)
        self._reply(ticket, Reason.END, error)

    @staticmethod
    def _already(transaction: Transaction, *, committed: bool) -> ErrorCode:
        """Answer an EndTxn where no transaction is under way: perhaps it was sent once more."""
        if transaction.state is (S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT):
            return ErrorCode.NONE
        if transaction.state is (S.PREPARE_COMMIT if committed else S.PREPARE_ABORT):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.INVALID_TXN_STATE

    def _fence(
        self, shard: Shard, transaction: Transaction, reason: Reason, ticket: object, now: Now
    ) -> None:
        """Abort the transaction under way with an epoch of its own, above its producer's."""
        fenced = transaction.fence()
        transaction.pending = None
        transaction.epoch, transaction.last_epoch = fenced.epoch, NO_EPOCH
        to = transaction.end(committed=False, now_ms=now.wall_ms)
        self._effects.append(Append(shard, transaction, to, reason, ticket))

    def abort_timed_out(self, now: Now) -> int:
        """Abort what has been under way for longer than its producer allowed; return how many."""
        late = 0
        for shard in self.shards.values():
            for transaction in shard.transactions.values():
                if (
                    transaction.state is S.ONGOING
                    and transaction.pending is None
                    and now.mono_ms - transaction.began_mono_ms > transaction.timeout_ms
                ):
                    late += 1
                    logger.info(
                        "transaction timed out id=%s producer_id=%d epoch=%d timeout_ms=%d",
                        transaction.transactional_id, transaction.producer_id,
                        transaction.epoch, transaction.timeout_ms,
                    )  # fmt: skip
                    self._fence(shard, transaction, Reason.TIMEOUT, None, now)
        return late

    # --- what the log took ------------------------------------------------------------------------

    def appended(
        self, append: Append, error: ErrorCode, now: Now, *, in_doubt: bool = False
    ) -> None:
        """Hear of an append's end; `error` is one that a client may be told.

        `in_doubt`: there is an error, but the record was written and may come to be committed.
        """
        shard, transaction, reason = append.shard, append.transaction, append.reason
        if shard.over:
            lost = ErrorCode.NOT_COORDINATOR if error is ErrorCode.NONE else error
            self._reply(append.ticket, reason, lost)
            return
        if error is not ErrorCode.NONE:
            in_doubt = in_doubt or append.in_doubt
            if in_doubt or reason is Reason.CONCLUDE:
                # In doubt: whoever asked may ask again and is told to wait until the log is known.
                # Concluding: its markers stand; nothing else may become of it.
                self._reply(append.ticket, reason, error)
                again = replace(append, ticket=None, in_doubt=in_doubt, tries=append.tries + 1)
                self._effects.append(Again(again))
                return
            transaction.pending = None
            if reason in FENCING:
                transaction.fence_failed = True
            self._reply(append.ticket, reason, error)
            return
        transaction.complete(append.to)
        if reason is Reason.INIT:
            to = append.to
            if append.ticket is not None:
                result = InitResult(ErrorCode.NONE, to.producer_id, to.epoch)
                self._effects.append(Reply(append.ticket, result))
            return
        self._reply(append.ticket, reason, ErrorCode.NONE)
        if append.to.state in ENDING:
            self._send(shard, transaction, now)

    def again(self, what: Append | Forget) -> None:
        """Try what could not be written, unless it is another's by now."""
        if not what.shard.over:
            self._effects.append(what)

    def _send(self, shard: Shard, transaction: Transaction, now: Now) -> None:
        then = transaction.conclude(now.wall_ms)
        partitions = frozenset(transaction.partitions)
        if partitions:
            self._effects.append(Send(shard, transaction, then, partitions))
        else:
            transaction.conclusion = None
            self._effects.append(Append(shard, transaction, then, Reason.CONCLUDE))

    def marked(self, send: Send, partitions: Iterable[TopicPartition]) -> None:
        """Hear that partitions have their marker, or are gone."""
        shard, transaction = send.shard, send.transaction
        if shard.over or transaction.conclusion is not send.then:
            return
        transaction.partitions.difference_update(partitions)
        if not transaction.partitions:
            transaction.conclusion = None
            self._effects.append(Append(shard, transaction, send.then, Reason.CONCLUDE))

    # --- ids nobody uses --------------------------------------------------------------------------

    def expire(self, now_ms: int) -> int:
        """Forget ids without a transaction that were silent for too long; return how many."""
        oldest_ms = now_ms - self._id_expiration_ms
        expired = 0
        for shard in self.shards.values():
            late = [
                t
                for t in shard.transactions.values()
                if t.pending is None and t.state in MAY_EXPIRE and t.update_ms <= oldest_ms
            ]
            for transaction in late:
                transaction.expire()
            if late:
                self._effects.append(Forget(shard, tuple(late)))
            expired += len(late)
        return expired

    def forgotten(self, forget: Forget, error: ErrorCode, *, in_doubt: bool = False) -> None:
        """Hear whether the tombstones are in the log; `in_doubt` as with `appended`."""
        if forget.shard.over:
            return
        in_doubt = in_doubt or forget.in_doubt
        if error is not ErrorCode.NONE and in_doubt:
            self._effects.append(Again(replace(forget, in_doubt=True, tries=forget.tries + 1)))
            return
        for transaction in forget.transactions:
            if error is ErrorCode.NONE:
                forget.shard.transactions.pop(transaction.transactional_id, None)
            else:
                transaction.pending = None

    # --- questions --------------------------------------------------------------------------------

    def select(
        self,
        producer_ids: Collection[int],
        states: Collection[str],
        min_duration_ms: int,
        now_ms: int,
    ) -> tuple[list[Transaction], list[str]]:
        """Return the ids that pass all filters, and the names of states that are none."""
        known: Mapping[str, TransactionState] = {state.label: state for state in TransactionState}
        wanted = {known[name] for name in states if name in known}
        found = [
            t
            for t in self
            if (not producer_ids or t.producer_id in producer_ids)
            and (not states or t.state in wanted)
            and (min_duration_ms < 0 or now_ms - t.start_ms > min_duration_ms)
        ]
        return found, [name for name in states if name not in known]
