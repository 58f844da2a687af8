"""A transactional id under any order of requests, failures of the log, moves of its coordinator.

Laws: a transaction whose commit was acknowledged is committed in each of its partitions, and one
whose abort was is aborted; no partition gets both markers for one transaction; markers carry epochs
that never go back; a fenced producer changes nothing; the coordinator that reads the log
comes to the same decision; every question is answered once; in the end nothing is left pending.
"""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordinators.transaction_records import read_transaction, transaction_value
from ottla.coordinators.transaction_states import ENDING, TransactionState
from ottla.coordinators.transactions import (
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
TIMEOUT_MS = 60_000
PARTITIONS = [TopicPartition("t", n) for n in range(3)]
E, S = ErrorCode, TransactionState


class Ticket:
    def __init__(self, what, producer=None, txn=None):
        self.what, self.producer, self.txn = what, producer, txn
        self.answers = []


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.decider = Transactions(900_000, 10**12)
        self.now = 1_700_000_000_000
        self.shard = self.decider.begin(0, 0)
        self.record = None  # the last value in the log
        self.held, self.sends, self.again = [], [], []
        self.tickets = []
        self.producers = []  # all that were ever given an id and epoch
        self.next_id = 0
        self.life = 0
        # What each partition saw: {(producer id, epoch of the data): {partition: committed}}.
        self.marks = {}
        self.highest = {}

    # --- carrying out -----------------------------------------------------------------------

    def settle(self):
        while effects := self.decider.take_effects():
            for effect in effects:
                if isinstance(effect, Reply):
                    self.answered(effect.ticket, effect.result)
                elif isinstance(effect, Append):
                    self.held.append(effect)
                elif isinstance(effect, Send):
                    self.sends.append(effect)
                elif isinstance(effect, Again):
                    self.again.append(effect.append)
                else:
                    assert isinstance(effect, Forget)

    def answered(self, ticket, result):
        ticket.answers.append(result)
        assert len(ticket.answers) == 1
        if ticket.what == "init":
            if result.error is E.NONE:
                given = ProducerIdAndEpoch(result.producer_id, result.epoch)
                if given not in self.producers:
                    self.producers.append(given)
        elif ticket.what in ("commit", "abort") and result is E.NONE:
            # What the log says must agree at once: whoever reads it now decides the same.
            state = read_transaction(ID, self.record).state
            wanted = "COMMIT" if ticket.what == "commit" else "ABORT"
            assert state.name.endswith(wanted), (ticket.what, state)

    def ask(self, what, producer=None):
        ticket = Ticket(what, producer)
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
        if not self.decider.init_producer_id(*args, None, ticket, self.now):
            self.next_id += 1
            assert self.decider.init_producer_id(*args, self.next_id, ticket, self.now)
        self.settle()

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def add(self, data, partitions):
        producer = data.draw(st.sampled_from(self.producers[-3:]))
        ticket = self.ask("add", producer)
        self.decider.add_partitions(self.shard, ID, producer, partitions, ticket, self.now)
        self.settle()
        self.check_fenced(ticket)

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), committed=st.booleans())
    def end(self, data, committed):
        producer = data.draw(st.sampled_from(self.producers[-3:]))
        ticket = self.ask("commit" if committed else "abort", producer)
        self.decider.end(self.shard, ID, producer, ticket, self.now, committed=committed)
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
        self.decider.abort_timed_out(self.now)
        self.settle()

    # --- the log and the partitions -----------------------------------------------------------

    @precondition(lambda self: self.held)
    @rule(how=st.sampled_from(["ok", "ok", "ok", "refused", "in doubt"]))
    def append_ends(self, how):
        """In doubt: the record is in the log, but whoever wrote it is told that it may not be."""
        append = self.held.pop(0)
        if how != "refused" and not append.shard.over:
            self.record = transaction_value(append.to)
        error = E.NONE if how == "ok" else E.COORDINATOR_NOT_AVAILABLE
        if append.shard.over:
            error = E.NOT_COORDINATOR
        self.decider.appended(append, error, self.now)
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
        for append in held:
            self.decider.appended(append, E.NOT_COORDINATOR, self.now)
            self.settle()
        self.life += 1
        self.shard = self.decider.begin(0, self.life)
        if self.record is not None:
            self.shard.transactions[ID] = read_transaction(ID, self.record)
        self.decider.serve(self.shard, self.now)
        self.settle()

    @rule()
    def all_goes_well(self):
        """What is under way comes to its end: else few runs would see a second transaction."""
        for _ in range(10):
            while self.held:
                self.append_ends("ok")
            for send in [s for s in self.sends if not s.shard.over]:
                for tp in sorted(send.partitions):
                    self.mark(send, tp)

    # --- laws -------------------------------------------------------------------------------

    @invariant()
    def memory_is_what_the_log_says_or_waits(self):
        it = self.shard.transactions.get(ID)
        if it is None or self.record is None or it.pending is not None:
            return
        assert it.state not in ENDING, "decided, but nobody sends the markers"

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
