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

from ottla.coordinators.requests import InitProducerId, InitResult, ProducerIdAndEpoch
from ottla.coordinators.timers import Now
from ottla.coordinators.transaction import ENDING, TransactionState
from ottla.coordinators.transaction_records import read_transaction, transaction_value
from ottla.coordinators.transactions import FENCING, PendingTombstones, Transactions
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.protocol import NO_PRODUCER_EPOCH

ID = "id"
START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
EXPIRATION_MS = 600_000
PARTITIONS = [TopicPartition("t", n) for n in range(3)]
E, S = ErrorCode, TransactionState


class Request:
    def __init__(self, machine, what, producer=None, partitions=()):
        self.machine = machine
        self.what, self.producer, self.partitions = what, producer, partitions
        self.answers = []

    def on_result(self, result):
        self.machine.answered(self, result)


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.decider = Transactions(900_000, EXPIRATION_MS, self)
        self.now = START_MS
        self.shard = self.decider.start_loading(0, 0)
        self.record = None  # the last value in the log, None for a tombstone or nothing
        self.held, self.sends, self.retries = [], [], []
        self.open = False  # whether any producer has asked for more since the last end it heard of
        self.requests = []
        self.producers = []  # all that were ever given an id and epoch
        self.next_id = 0
        self.life = 0
        # What each partition saw: {(producer id, epoch of the data): {partition: committed}}.
        self.marks = {}
        self.highest = {}

    @property
    def at(self):
        return Now(float(self.now - START_MS), self.now)

    # --- the port -----------------------------------------------------------------------------

    def store(self, pending):
        self.held.append(pending)
        reason = getattr(pending, "reason", None)
        assert reason not in FENCING or self.open, "fenced for what it has ended"

    def send_markers(self, markers):
        self.sends.append(markers)

    def retry_later(self, pending):
        self.retries.append(pending)

    def answered(self, request, result):
        request.answers.append(result)
        assert len(request.answers) == 1
        error = result.error if request.what == "init" else result
        if error is not E.NONE:
            return
        # What the log says must agree at once: whoever reads it now decides the same.
        known = read_transaction(ID, self.record)
        if request.what == "init":
            given = ProducerIdAndEpoch(result.producer_id, result.epoch)
            assert (known.producer_id, known.epoch, known.state) == (*given, S.EMPTY)
            if given not in self.producers:
                self.producers.append(given)
            return
        assert (known.producer_id, known.epoch) == request.producer
        if request.what == "add":
            assert known.state is S.ONGOING
            assert known.partitions >= request.partitions
        else:
            wanted = "COMMIT" if request.what == "commit" else "ABORT"
            assert known.state.name.endswith(wanted), (request.what, known.state)
            self.open = False

    def ask(self, what, producer=None, partitions=frozenset()):
        self.requests.append(Request(self, what, producer, partitions))
        return self.requests[-1]

    # --- requests ---------------------------------------------------------------------------

    @initialize()
    def first(self):
        self.init(None)

    @rule(data=st.data())
    def init_again(self, data):
        self.init(data.draw(st.sampled_from([None, *self.producers])))

    def init(self, expected):
        init = InitProducerId(ID, TIMEOUT_MS, expected, self.ask("init"))
        if not self.decider.init_producer_id(0, init, None, self.at):
            self.next_id += 1
            assert self.decider.init_producer_id(0, init, self.next_id, self.at)

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def add(self, data, partitions):
        producer = data.draw(st.sampled_from(self.producers[-3:]))
        request = self.ask("add", producer, frozenset(partitions))
        self.open = True
        self.now += 1  # `marks` knows transactions of one producer apart by when they began
        self.decider.add_partitions(0, ID, producer, partitions, request, self.at)
        self.check_fenced(request)

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), committed=st.booleans())
    def end(self, data, committed):
        producer = data.draw(st.sampled_from(self.producers[-3:]))
        request = self.ask("commit" if committed else "abort", producer)
        self.decider.end(0, ID, producer, request, self.at, committed=committed)
        self.check_fenced(request)

    def check_fenced(self, request):
        it = self.shard.transactions.get(ID)
        if it is None or (it.producer_id, it.epoch) != request.producer:
            assert request.answers
            assert request.answers[0] is not E.NONE, "a producer that is not the newest was heard"

    @rule(wait_ms=st.sampled_from([1, 1_000, TIMEOUT_MS, TIMEOUT_MS + 1]))
    def time_goes_by(self, wait_ms):
        self.now += wait_ms
        self.decider.abort_timed_out(self.at)

    @rule()
    def nobody_comes_for_long(self):
        self.now += EXPIRATION_MS
        self.decider.expire(self.now)

    # --- the log and the partitions -----------------------------------------------------------

    @precondition(lambda self: self.held)
    @rule(how=st.sampled_from(["ok", "ok", "ok", "refused", "in doubt"]))
    def append_ends(self, how):
        """In doubt: the record is in the log, but whoever wrote it is told that it may not be."""
        pending = self.held.pop(0)
        resigned = pending.shard.resigned
        if how != "refused" and not resigned:
            removed = isinstance(pending, PendingTombstones)
            self.record = None if removed else transaction_value(pending.to)
        error = E.NONE if how == "ok" else E.COORDINATOR_NOT_AVAILABLE
        if resigned:
            error = E.NOT_COORDINATOR
        self.decider.stored(pending, error, self.at, in_doubt=how == "in doubt")

    @precondition(lambda self: self.sends)
    @rule(data=st.data())
    def marker_arrives(self, data):
        """Also one of a coordinator that is no more: the partition knows the higher epochs."""
        markers = data.draw(st.sampled_from(self.sends))
        self.mark(markers, data.draw(st.sampled_from(sorted(markers.partitions))))

    def mark(self, markers, tp):
        to = markers.completion
        key = (tp, to.producer_id)
        epochs = (to.epoch, markers.shard.epoch)
        known = self.highest.get(key, (-1, -1))
        if epochs[0] >= known[0] and epochs[1] >= known[1]:
            self.highest[key] = epochs
            marks = self.marks.setdefault((to.producer_id, to.start_ms), {})
            committed = markers.committed
            assert marks.setdefault(tp, committed) is committed, "commit and abort"
        self.decider.markers_written(markers, [tp])

    @precondition(lambda self: self.retries)
    @rule()
    def try_again(self):
        self.decider.retry(self.retries.pop(0))

    @rule()
    def coordination_moves(self):
        self.decider.resign(0)
        held, self.held = self.held, []
        for pending in held:
            self.decider.stored(pending, E.NOT_COORDINATOR, self.at, in_doubt=True)
        while self.retries:
            self.try_again()
        assert not self.held
        assert not any(markers.needed for markers in self.sends)
        self.life += 1
        self.shard = self.decider.start_loading(0, self.life)
        if self.record is not None:
            self.shard.transactions[ID] = read_transaction(ID, self.record)
        self.decider.loaded(0, self.at)

    @rule()
    def all_goes_well(self):
        """What is under way comes to its end: else few runs would see a second transaction."""
        for _ in range(10):
            while self.held or self.retries:
                while self.retries:
                    self.try_again()
                while self.held:
                    self.append_ends("ok")
            for markers in self.current_sends():
                for tp in sorted(markers.partitions):
                    self.mark(markers, tp)

    def current_sends(self):
        return [m for m in self.sends if m.shard.epoch == self.life]

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
            assert (it.state, it.epoch) == (S.EMPTY, NO_PRODUCER_EPOCH), (
                "served, but not in the log"
            )
            return
        known = read_transaction(ID, self.record)
        # Memory may be ahead by one epoch, to shut out a producer; the log refused to take it.
        epoch = known.epoch + it.fence_failed
        assert (it.state, it.producer_id, it.epoch) == (known.state, known.producer_id, epoch)
        assert (it.partitions, it.timeout_ms) == (known.partitions, known.timeout_ms)
        assert (it.start_ms, it.update_ms) == (known.start_ms, known.update_ms)

    def teardown(self):
        for _ in range(200):
            if not (self.held or self.retries or self.current_sends()):
                break
            while self.held:
                self.append_ends("ok")
            sends, self.sends = self.sends, []
            for markers in sends:
                self.decider.markers_written(markers, markers.partitions)
            while self.retries:
                self.try_again()
        assert all(len(t.answers) == 1 for t in self.requests), "somebody waits for ever"
        it = self.shard.transactions.get(ID)
        assert it is None or it.pending is None
        assert it is None or it.state not in ENDING
        assert {type(a) for t in self.requests for a in t.answers} <= {
            InitResult,
            ErrorCode,
        }


TransactionMachine.TestCase.settings = settings(stateful_step_count=40)
TestTransactions = TransactionMachine.TestCase
