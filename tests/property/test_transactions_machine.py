"""A transactional id under any order of requests, failures of the log, moves of its coordinator.

Laws: where nothing is pending, memory is what the log says; an answer of success is what the log
says at that moment, whatever was asked; a transaction whose commit was acknowledged is committed
in each of its partitions, and one whose abort was is aborted; no partition gets both markers for
one transaction; markers carry epochs that never go back; a fenced producer changes nothing; nobody
is shut out for a transaction that it has ended; every question is answered once; in the end nothing
is left pending.
"""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordinators.timers import Now
from ottla.coordinators.transaction import NO_EPOCH
from ottla.coordinators.transaction_records import read_transaction, transaction_value
from ottla.coordinators.transaction_states import ENDING, TransactionState
from ottla.coordinators.transactions import (
    FENCING,
    Again,
    Append,
    Forget,
    InitResult,
    ProducerIdAndEpoch,
    Reply,
    Send,
    Transactions,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

ID = "id"
START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
EXPIRATION_MS = 600_000
PARTITIONS = [TopicPartition("t", n) for n in range(3)]
E, S = ErrorCode, TransactionState


class Ticket:
    def __init__(self, what, producer=None, partitions=()):
        self.what, self.producer, self.partitions = what, producer, partitions
        self.answers = []


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.decider = Transactions(900_000, EXPIRATION_MS)
        self.now = START_MS
        self.shard = self.decider.begin(0, 0)
        self.record = None  # the last value in the log, None for a tombstone or nothing
        self.held, self.sends, self.again = [], [], []
        self.open = False  # whether any producer has asked for more since the last end it heard of
        self.tickets = []
        self.producers = []  # all that were ever given an id and epoch
        self.next_id = 0
        self.life = 0
        # What each partition saw: {(producer id, epoch of the data): {partition: committed}}.
        self.marks = {}
        self.highest = {}

    @property
    def at(self):
        return Now(float(self.now - START_MS), self.now)

    # --- carrying out -----------------------------------------------------------------------

    def settle(self):
        while effects := self.decider.take_effects():
            for effect in effects:
                if isinstance(effect, Reply):
                    self.answered(effect.ticket, effect.result)
                elif isinstance(effect, Append | Forget):
                    self.held.append(effect)
                    reason = getattr(effect, "reason", None)
                    assert reason not in FENCING or self.open, "fenced for what it has ended"
                elif isinstance(effect, Send):
                    self.sends.append(effect)
                else:
                    assert isinstance(effect, Again)
                    self.again.append(effect.what)

    def answered(self, ticket, result):
        ticket.answers.append(result)
        assert len(ticket.answers) == 1
        error = result.error if ticket.what == "init" else result
        if error is not E.NONE:
            return
        # What the log says must agree at once: whoever reads it now decides the same.
        known = read_transaction(ID, self.record)
        if ticket.what == "init":
            given = ProducerIdAndEpoch(result.producer_id, result.epoch)
            assert (known.producer_id, known.epoch, known.state) == (*given, S.EMPTY)
            if given not in self.producers:
                self.producers.append(given)
            return
        assert (known.producer_id, known.epoch) == ticket.producer
        if ticket.what == "add":
            assert known.state is S.ONGOING
            assert known.partitions >= ticket.partitions
        else:
            wanted = "COMMIT" if ticket.what == "commit" else "ABORT"
            assert known.state.name.endswith(wanted), (ticket.what, known.state)
            self.open = False

    def ask(self, what, producer=None, partitions=frozenset()):
        ticket = Ticket(what, producer, partitions)
        self.tickets.append(ticket)
        return ticket

    # --- requests ---------------------------------------------------------------------------

    @initialize()
    def first(self):
        self.init(None)

    @rule(data=st.data())
    def init_again(self, data):
        self.init(data.draw(st.sampled_from([None, *self.producers])))

    def init(self, expected):
        ticket = self.ask("init")
        args = (self.shard, ID, TIMEOUT_MS, expected)
        if not self.decider.init_producer_id(*args, None, ticket, self.at):
            self.next_id += 1
            assert self.decider.init_producer_id(*args, self.next_id, ticket, self.at)
        self.settle()

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def add(self, data, partitions):
        producer = data.draw(st.sampled_from(self.producers[-3:]))
        ticket = self.ask("add", producer, frozenset(partitions))
        self.open = True
        self.now += 1  # `marks` knows transactions of one producer apart by when they began
        self.decider.add_partitions(self.shard, ID, producer, partitions, ticket, self.at)
        self.settle()
        self.check_fenced(ticket)

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), committed=st.booleans())
    def end(self, data, committed):
        producer = data.draw(st.sampled_from(self.producers[-3:]))
        ticket = self.ask("commit" if committed else "abort", producer)
        self.decider.end(self.shard, ID, producer, ticket, self.at, committed=committed)
        self.settle()
        self.check_fenced(ticket)

    def check_fenced(self, ticket):
        it = self.shard.transactions.get(ID)
        if it is None or (it.producer_id, it.epoch) != ticket.producer:
            assert ticket.answers
            assert ticket.answers[0] is not E.NONE, "a producer that is not the newest was heard"

    @rule(wait_ms=st.sampled_from([1, 1_000, TIMEOUT_MS, TIMEOUT_MS + 1]))
    def time_goes_by(self, wait_ms):
        self.now += wait_ms
        self.decider.abort_timed_out(self.at)
        self.settle()

    @rule()
    def nobody_comes_for_long(self):
        self.now += EXPIRATION_MS
        self.decider.expire(self.now)
        self.settle()

    # --- the log and the partitions -----------------------------------------------------------

    @precondition(lambda self: self.held)
    @rule(how=st.sampled_from(["ok", "ok", "ok", "refused", "in doubt"]))
    def append_ends(self, how):
        """In doubt: the record is in the log, but whoever wrote it is told that it may not be."""
        effect = self.held.pop(0)
        if how != "refused" and not effect.shard.over:
            gone = isinstance(effect, Forget)
            self.record = None if gone else transaction_value(effect.to)
        error = E.NONE if how == "ok" else E.COORDINATOR_NOT_AVAILABLE
        if effect.shard.over:
            error = E.NOT_COORDINATOR
        self.tell(effect, error, in_doubt=how == "in doubt")

    def tell(self, effect, error, *, in_doubt=False):
        if isinstance(effect, Forget):
            self.decider.forgotten(effect, error, in_doubt=in_doubt)
        else:
            self.decider.appended(effect, error, self.at, in_doubt=in_doubt)
        self.settle()

    @precondition(lambda self: self.sends)
    @rule(data=st.data())
    def marker_arrives(self, data):
        """Also one of a coordinator that is no more: the partition knows the higher epochs."""
        send = data.draw(st.sampled_from(self.sends))
        self.mark(send, data.draw(st.sampled_from(sorted(send.partitions))))

    def mark(self, send, tp):
        key = (tp, send.then.producer_id)
        epochs = (send.then.epoch, send.shard.epoch)
        known = self.highest.get(key, (-1, -1))
        if epochs[0] >= known[0] and epochs[1] >= known[1]:
            self.highest[key] = epochs
            marks = self.marks.setdefault((send.then.producer_id, send.then.start_ms), {})
            assert marks.setdefault(tp, send.committed) is send.committed, "commit and abort"
        self.decider.marked(send, [tp])
        self.settle()

    @precondition(lambda self: self.again)
    @rule()
    def try_again(self):
        self.decider.again(self.again.pop(0))
        self.settle()

    @rule()
    def coordination_moves(self):
        self.decider.unload(0)
        held, self.held, self.again = self.held, [], []
        for effect in held:
            self.tell(effect, E.NOT_COORDINATOR, in_doubt=True)
        self.life += 1
        self.shard = self.decider.begin(0, self.life)
        if self.record is not None:
            self.shard.transactions[ID] = read_transaction(ID, self.record)
        self.decider.serve(self.shard, self.at)
        self.settle()

    @rule()
    def all_goes_well(self):
        """What is under way comes to its end: else few runs would see a second transaction."""
        for _ in range(10):
            while self.held or self.again:
                while self.again:
                    self.try_again()
                while self.held:
                    self.append_ends("ok")
            for send in [s for s in self.sends if not s.shard.over]:
                for tp in sorted(send.partitions):
                    self.mark(send, tp)

    # --- laws -------------------------------------------------------------------------------

    @invariant()
    def memory_is_what_the_log_says_or_waits(self):
        it = self.shard.transactions.get(ID)
        if it is None:
            assert self.record is None, "forgotten, but not by the log"
            return
        if it.pending is not None:
            return
        assert it.state not in ENDING, "decided, but nobody sends the markers"
        if self.record is None:
            assert (it.state, it.epoch) == (S.EMPTY, NO_EPOCH), "served, but not in the log"
            return
        known = read_transaction(ID, self.record)
        # Memory may be ahead by one epoch, to shut out a producer; the log refused to take it.
        epoch = known.epoch + it.fence_failed
        assert (it.state, it.producer_id, it.epoch) == (known.state, known.producer_id, epoch)
        assert (it.partitions, it.timeout_ms) == (known.partitions, known.timeout_ms)
        assert (it.start_ms, it.update_ms) == (known.start_ms, known.update_ms)

    def teardown(self):
        for _ in range(200):
            if not (self.held or self.again or any(not s.shard.over for s in self.sends)):
                break
            while self.held:
                self.append_ends("ok")
            sends, self.sends = self.sends, []
            for send in sends:
                self.decider.marked(send, send.partitions)
            self.settle()
            while self.again:
                self.try_again()
        assert all(len(t.answers) == 1 for t in self.tickets), "somebody waits for ever"
        it = self.shard.transactions.get(ID)
        assert it is None or it.pending is None
        assert it is None or it.state not in ENDING
        assert {type(a) for t in self.tickets for a in t.answers} <= {InitResult, ErrorCode}


TransactionMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
TestTransactions = TransactionMachine.TestCase
