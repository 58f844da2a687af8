"""Transactions by example: what the coordinator decides, each case of Kafka's own tests of it."""

import pytest

from ottla.coordinators import transactions
from ottla.coordinators.requests import InitProducerId, InitResult, ProducerIdAndEpoch
from ottla.coordinators.timers import Now
from ottla.coordinators.transaction import (
    MAX_EPOCH,
    TRANSACTION_TRANSITIONS,
    Transaction,
    TransactionState,
    check_transaction_transition,
)
from ottla.coordinators.transactions import PendingStore, Transactions
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.transitions import IllegalTransitionError

S = TransactionState
E = ErrorCode
ID = "id"
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
NOW = 1_700_000_000_000
JUMP_MS = 3_600_000


class Request:
    """A request that waits for its response. It may be answered once."""

    def __init__(self):
        self.answer = None

    def on_result(self, result):
        assert self.answer is None, "answered twice"
        self.answer = result


class Bench:
    """The decider's port, and one shard; `log` says how writes end, None holds them."""

    def __init__(self):
        self.decider = Transactions(900_000, 1_000, self)
        self.shard = self.decider.start_loading(0, 7)
        self.log = E.NONE
        self.in_doubt = False
        """whether what fails may be in the log"""
        self.held = []
        self.sends = []
        self.retries = []
        self.written = []
        self.now = NOW
        self.jumped_ms = 0
        self.next_id = 100
        self.requests = []

    # --- the port ---------------------------------------------------------------------------

    def store(self, pending):
        self.held.append(pending)
        if self.log is not None:
            self.write(self.log)

    def retry_later(self, pending):
        self.retries.append(pending)

    def send_markers(self, markers):
        self.sends.append(markers)

    # --- what happens -----------------------------------------------------------------------

    def write(self, error=E.NONE):
        """End the oldest write."""
        pending = self.held.pop(0)
        if error is E.NONE and isinstance(pending, PendingStore):
            self.written.append(pending.to.state)
        in_doubt = self.in_doubt and error is not E.NONE
        self.decider.stored(pending, error, self.at, in_doubt=in_doubt)

    def try_again(self):
        self.decider.retry(self.retries.pop())

    @property
    def at(self):
        return Now(float(self.now - NOW), self.now + self.jumped_ms)

    @property
    def it(self):
        return self.shard.transactions[ID]

    def ask(self):
        request = Request()
        self.requests.append(request)
        return request

    def init(self, expected=None, timeout_ms=60_000, name=ID):
        """Pass in a request; return the response, None if there is none yet."""
        request = self.ask()
        init = InitProducerId(name, timeout_ms, expected, request)
        if not self.decider.init_producer_id(0, init, None, self.at):
            self.next_id += 1
            assert self.decider.init_producer_id(0, init, self.next_id, self.at)
        return request.answer

    def me(self):
        return ProducerIdAndEpoch(self.it.producer_id, self.it.epoch)

    def add(self, *partitions, who=None):
        request = self.ask()
        self.decider.add_partitions(0, ID, who or self.me(), partitions, request, self.at)
        return request.answer

    def end(self, committed=True, who=None):
        request = self.ask()
        self.decider.end(0, ID, who or self.me(), request, self.at, committed=committed)
        return request.answer

    def verify(self, *partitions, who=None):
        return self.decider.verify_partitions(0, ID, who or self.me(), partitions)

    def mark(self):
        """Have all markers written."""
        sends, self.sends = self.sends, []
        for markers in sends:
            self.decider.markers_written(markers, markers.partitions)

    def abort_timed_out(self, at=None):
        """Return how many transactions were aborted."""
        before = self.decider.timed_out_total
        self.decider.abort_timed_out(at or self.at)
        return self.decider.timed_out_total - before

    def expire(self, wall_ms):
        """Return how many ids were to be removed."""
        before = self.decider.expired_total
        self.decider.expire(wall_ms)
        return self.decider.expired_total - before


@pytest.fixture
def bench():
    return Bench()


def test_every_move_is_in_the_table_or_raises():
    for before in S:
        for after in S:
            if before in TRANSACTION_TRANSITIONS[after]:
                check_transaction_transition(ID, before, after)
            else:
                with pytest.raises(
                    IllegalTransitionError, match=f"{ID}: {before.name} -> {after.name}"
                ):
                    check_transaction_transition(ID, before, after)
    assert S.PREPARE_EPOCH_FENCE.label == "PrepareEpochFence"


def test_a_transaction_from_beginning_to_end(bench):
    assert bench.init() == InitResult(E.NONE, 101, 0)
    assert bench.add(A) is E.NONE
    assert bench.add(B) is E.NONE
    assert (bench.it.state, bench.it.partitions, bench.it.start_ms) == (S.ONGOING, {A, B}, NOW)
    bench.now += 10
    assert bench.end() is E.NONE, "answered before the markers are written"
    assert bench.it.state is S.PREPARE_COMMIT
    (send,) = bench.sends
    assert (send.committed, send.partitions) == (True, {A, B})
    bench.decider.markers_written(send, [A])
    assert bench.it.state is S.PREPARE_COMMIT, "B has no marker yet"
    bench.decider.markers_written(send, [A, B])
    assert (bench.it.state, bench.it.partitions) == (S.COMPLETE_COMMIT, set())
    assert bench.written == [S.EMPTY, S.ONGOING, S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT]


@pytest.mark.parametrize(
    ("state", "committed", "code"),
    [
        (S.EMPTY, True, E.INVALID_TXN_STATE),
        (S.EMPTY, False, E.INVALID_TXN_STATE),
        (S.PREPARE_COMMIT, False, E.INVALID_TXN_STATE),
        (S.PREPARE_ABORT, True, E.INVALID_TXN_STATE),
        (S.COMPLETE_COMMIT, True, E.NONE),
        (S.COMPLETE_COMMIT, False, E.INVALID_TXN_STATE),
        (S.COMPLETE_ABORT, False, E.NONE),
        (S.COMPLETE_ABORT, True, E.INVALID_TXN_STATE),
    ],
)
def test_an_end_that_comes_again_or_contradicts(bench, state, committed, code):
    bench.init()
    bench.it.state = state
    assert bench.end(committed) is code


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_while_markers_are_on_their_way_all_must_wait(bench, state):
    bench.init()
    bench.add(A)
    bench.end(committed=state is S.PREPARE_COMMIT)
    assert bench.it.state is state
    assert bench.add(B) is E.CONCURRENT_TRANSACTIONS
    assert bench.end(committed=state is S.PREPARE_COMMIT) is E.CONCURRENT_TRANSACTIONS
    assert bench.init() == InitResult(E.CONCURRENT_TRANSACTIONS)
    assert bench.verify(A) == {A: E.CONCURRENT_TRANSACTIONS}


def test_while_an_append_is_under_way_all_must_wait(bench):
    bench.init()
    bench.log = None
    assert bench.add(A) is None
    added = bench.requests[-1]
    assert bench.add(B) is E.CONCURRENT_TRANSACTIONS
    assert bench.end() is E.CONCURRENT_TRANSACTIONS
    assert bench.init() == InitResult(E.CONCURRENT_TRANSACTIONS)
    bench.write()
    assert added.answer is E.NONE
    assert bench.it.partitions == {A}


def test_requests_of_another_producer(bench):
    nobody = ProducerIdAndEpoch(5, 0)
    assert bench.add(A, who=nobody) is E.INVALID_PRODUCER_ID_MAPPING
    assert bench.end(who=nobody) is E.INVALID_PRODUCER_ID_MAPPING
    bench.init()
    bench.init()
    me = bench.me()
    assert bench.add(A, who=nobody) is E.INVALID_PRODUCER_ID_MAPPING
    older, newer = me._replace(epoch=0), me._replace(epoch=2)
    for other in (older, newer):
        assert bench.add(A, who=other) is E.PRODUCER_FENCED
        assert bench.end(who=other) is E.PRODUCER_FENCED
        assert bench.verify(A, who=other) == {A: E.PRODUCER_FENCED}


def test_partitions_known_already_need_no_record(bench):
    bench.init()
    bench.add(A, B)
    written = len(bench.written)
    assert bench.add(B) is E.NONE
    assert len(bench.written) == written


def test_verification_looks_at_what_is_in_the_log(bench):
    bench.init()
    bench.add(A)
    assert bench.verify(A, B) == {A: E.NONE, B: E.TRANSACTION_ABORTABLE}


def test_a_new_producer_first_aborts_what_the_old_one_left(bench):
    bench.init()
    old = bench.me()
    bench.add(A)
    assert bench.init() == InitResult(E.CONCURRENT_TRANSACTIONS)
    (send,) = bench.sends
    assert not send.committed
    assert send.completion.epoch == 1, (
        "the marker's epoch shuts the old producer out of the partition"
    )
    assert bench.end(who=old) is E.PRODUCER_FENCED
    bench.mark()
    assert bench.init() == InitResult(E.NONE, 101, 2)


def test_a_fence_that_was_not_written_does_not_use_up_an_epoch(bench):
    bench.init()
    bench.add(A)
    for _ in range(3):
        bench.log = E.COORDINATOR_NOT_AVAILABLE
        assert bench.init() == InitResult(E.COORDINATOR_NOT_AVAILABLE)
        assert (bench.it.epoch, bench.it.state) == (1, S.ONGOING)
    bench.log = E.NONE
    assert bench.init() == InitResult(E.CONCURRENT_TRANSACTIONS)
    bench.mark()
    assert bench.it.fence_failed is False
    assert bench.init() == InitResult(E.NONE, 101, 2)


def test_epochs_are_raised_for_a_producer_that_goes_on_after_an_error(bench):
    """KIP-360: the producer names what it has, and may repeat the question."""
    bench.init()
    me = bench.me()
    assert bench.init(me) == InitResult(E.NONE, 101, 1)
    assert bench.init(me) == InitResult(E.NONE, 101, 1), "it missed the first answer"
    assert bench.init(me._replace(epoch=1)) == InitResult(E.NONE, 101, 2)
    assert bench.init(me) == InitResult(E.PRODUCER_FENCED)
    assert bench.init(ProducerIdAndEpoch(5, 2)) == InitResult(E.PRODUCER_FENCED)


def test_a_new_instance_leaves_no_way_back_to_the_older(bench):
    bench.init()
    me = bench.me()
    bench.init()
    assert bench.init(me) == InitResult(E.PRODUCER_FENCED)


def test_used_up_epochs_bring_a_new_producer_id(bench):
    bench.init()
    bench.it.epoch = MAX_EPOCH - 1
    me = bench.me()
    assert bench.init(me) == InitResult(E.NONE, 102, 0)
    assert bench.it.last_producer_id == 101
    assert bench.init(me) == InitResult(E.NONE, 102, 0), "it missed the first answer"
    assert bench.init(me._replace(epoch=5)) == InitResult(E.PRODUCER_FENCED)


def test_the_last_epoch_is_for_fencing_alone(bench):
    bench.init()
    bench.it.epoch = MAX_EPOCH - 1
    old = bench.me()
    bench.add(A)
    assert bench.init() == InitResult(E.CONCURRENT_TRANSACTIONS)
    assert bench.it.epoch == MAX_EPOCH
    bench.mark()
    assert bench.init(old) == InitResult(E.PRODUCER_FENCED)
    assert bench.init() == InitResult(E.NONE, 102, 0)


def test_timeouts_must_be_allowed():
    decider = Transactions(max_timeout_ms=900, id_expiration_ms=1, port=None)
    assert [decider.allows_timeout(ms) for ms in (-1, 0, 1, 900, 901)] == [
        False,
        False,
        True,
        True,
        False,
    ]


def test_what_takes_too_long_is_aborted_once(bench):
    bench.init(timeout_ms=1_000)
    bench.add(A)
    bench.now += 1_000
    assert bench.abort_timed_out() == 0, "exactly at its time is in time"
    bench.now += 1
    assert bench.abort_timed_out() == 1
    assert (bench.it.state, bench.it.epoch) == (S.PREPARE_ABORT, 1)
    assert bench.abort_timed_out() == 0
    bench.mark()
    assert bench.it.state is S.COMPLETE_ABORT
    assert all(request.answer is not None for request in bench.requests)


@pytest.mark.parametrize("by_ms", [JUMP_MS, -JUMP_MS])
def test_a_transactions_time_does_not_jump_with_the_wall_clock(bench, by_ms):
    """F23: Kafka's coordinator aborts every open transaction when the clock jumps forward."""
    bench.init(timeout_ms=60_000)
    bench.add(A)
    bench.now += 1_000
    bench.jumped_ms = by_ms
    assert bench.abort_timed_out() == 0, "it began a second ago"
    bench.add(B)
    bench.now += 59_000
    assert bench.abort_timed_out() == 0
    bench.now += 1
    assert bench.abort_timed_out() == 1, "nor is it open for longer"


@pytest.mark.parametrize("by_ms", [JUMP_MS, -JUMP_MS, 0])
def test_a_transaction_that_was_loaded_has_its_full_timeout_again(bench, by_ms):
    """F23: the former coordinator's clock may be another."""
    shard = bench.decider.start_loading(1, 9)
    shard.transactions["o"] = Transaction(
        "o", 5, 0, 60_000, S.ONGOING, {A}, NOW - 50_000 + by_ms, NOW - 50_000 + by_ms
    )
    bench.decider.loaded(shard.partition, bench.at)
    bench.now += 60_000
    assert bench.abort_timed_out() == 0
    bench.now += 1
    assert bench.abort_timed_out() == 1


def test_an_append_that_fails_changes_nothing(bench):
    bench.init()
    bench.add(A)
    bench.log = E.COORDINATOR_NOT_AVAILABLE
    assert bench.end() is E.COORDINATOR_NOT_AVAILABLE
    assert (bench.it.state, bench.it.pending, bench.sends) == (S.ONGOING, None, [])
    bench.log = E.NONE
    assert bench.end() is E.NONE


def test_an_append_in_doubt_is_written_again_until_the_log_is_known(bench):
    """Kafka goes back to the state before, and so answers from a state the log may not have.

    A client that ends its transaction would hear that it is over while the log says Ongoing: the
    next coordinator aborts it in time, with a higher epoch, and fences a healthy producer.
    """
    bench.init()
    me = bench.me()
    bench.add(A)
    bench.end(committed=False)
    bench.mark()
    bench.log, bench.in_doubt = E.COORDINATOR_NOT_AVAILABLE, True
    assert bench.add(A) is E.COORDINATOR_NOT_AVAILABLE
    bench.in_doubt = False  # refused from now on: that tells nothing of the first try
    for attempts in range(1, 4):
        assert bench.it.pending is S.ONGOING
        assert bench.end(committed=False) is E.CONCURRENT_TRANSACTIONS
        assert bench.add(A) is E.CONCURRENT_TRANSACTIONS
        assert bench.init() == InitResult(E.CONCURRENT_TRANSACTIONS)
        assert bench.abort_timed_out(Now(1e9, NOW)) == 0
        (retry,) = bench.retries
        assert (retry.request, retry.in_doubt, retry.attempts) == (None, True, attempts)
        bench.try_again()
    bench.log = E.NONE
    bench.try_again()
    assert (bench.it.state, bench.it.pending, bench.me()) == (S.ONGOING, None, me)
    assert bench.end(committed=False) is E.NONE
    bench.mark()
    assert bench.me() == me


@pytest.mark.parametrize("committed", [True, False])
def test_a_decision_in_doubt_is_not_turned_round(bench, committed):
    bench.init()
    bench.add(A)
    bench.log, bench.in_doubt = E.COORDINATOR_NOT_AVAILABLE, True
    assert bench.end(committed) is E.COORDINATOR_NOT_AVAILABLE
    assert bench.sends == [], "no marker before the decision is known to stand"
    assert bench.end(not committed) is E.CONCURRENT_TRANSACTIONS
    bench.log = E.NONE
    bench.try_again()
    (send,) = bench.sends
    assert send.committed is committed
    bench.mark()
    assert bench.end(not committed) is E.INVALID_TXN_STATE
    assert bench.end(committed) is E.NONE


def test_an_epoch_in_doubt_is_not_given_to_two(bench):
    bench.log, bench.in_doubt = E.COORDINATOR_NOT_AVAILABLE, True
    assert bench.init() == InitResult(E.COORDINATOR_NOT_AVAILABLE)
    assert bench.init() == InitResult(E.CONCURRENT_TRANSACTIONS)
    bench.log = E.NONE
    bench.try_again()
    assert bench.init() == InitResult(E.NONE, 101, 1)


def test_a_fence_in_doubt_goes_on_to_the_abort(bench):
    bench.init(timeout_ms=1_000)
    bench.add(A)
    bench.log, bench.in_doubt = E.COORDINATOR_NOT_AVAILABLE, True
    assert bench.abort_timed_out(Now(1_001, NOW)) == 1
    assert bench.init() == InitResult(E.CONCURRENT_TRANSACTIONS)
    bench.log = E.NONE
    bench.try_again()
    (send,) = bench.sends
    assert (send.committed, send.completion.epoch) == (False, 1)


def test_a_tombstone_in_doubt_is_written_again(bench):
    bench.init()
    bench.now += 1_000
    bench.log, bench.in_doubt = E.COORDINATOR_NOT_AVAILABLE, True
    assert bench.expire(bench.now) == 1
    assert bench.add(A) is E.CONCURRENT_TRANSACTIONS, "the log may not know this id any more"
    bench.in_doubt = False
    bench.try_again()
    assert bench.it.pending is S.DEAD
    bench.log = E.NONE
    bench.try_again()
    assert list(bench.decider) == []


def test_completion_is_written_until_it_stands(bench):
    bench.init()
    bench.add(A)
    bench.end()
    bench.log = E.COORDINATOR_NOT_AVAILABLE
    bench.mark()
    assert bench.it.state is S.PREPARE_COMMIT
    assert bench.init() == InitResult(E.CONCURRENT_TRANSACTIONS)
    bench.log = E.NONE
    bench.try_again()
    assert bench.it.state is S.COMPLETE_COMMIT


def test_the_next_coordinator_goes_on_with_what_was_decided(bench):
    shard = bench.decider.start_loading(1, 9)
    for name, state in (("c", S.PREPARE_COMMIT), ("a", S.PREPARE_ABORT), ("o", S.ONGOING)):
        one = Transaction(name, 5, 0, 60_000, state, {A}, NOW, NOW)
        shard.transactions[name] = one
    gone = Transaction("g", 6, 0, 60_000, S.PREPARE_COMMIT, set(), NOW, NOW)
    shard.transactions["g"] = gone
    bench.decider.loaded(shard.partition, bench.at)
    found = {s.transaction.transactional_id: (s.committed, s.shard.epoch) for s in bench.sends}
    assert found == {"c": (True, 9), "a": (False, 9)}
    assert gone.state is S.COMPLETE_COMMIT, "without a partition there is nothing to wait for"


def test_an_older_leadership_changes_nothing_any_more(bench):
    bench.init()
    bench.log = None
    bench.add(A)
    bench.decider.resign(0)
    bench.write()
    assert bench.requests[-1].answer is E.NOT_COORDINATOR
    assert list(bench.decider) == []
    late = Bench()
    late.init()
    late.add(A, B)
    late.end()
    (send,) = late.sends
    assert send.needed
    late.decider.resign(0)
    assert not send.needed
    written = list(late.written)
    late.decider.markers_written(send, [A, B])
    assert late.written == written
    doubt = Bench()
    doubt.log, doubt.in_doubt = E.COORDINATOR_NOT_AVAILABLE, True
    doubt.init()
    doubt.decider.resign(0)
    doubt.log = None
    doubt.try_again()
    assert doubt.held == []


def test_many_unused_ids_are_removed_in_batches(bench):
    names = [f"id-{n}" for n in range(450)]
    for name in names:
        bench.shard.transactions[name] = Transaction(name, 1, 0, 1, S.EMPTY, set(), -1, NOW)
    bench.log = None
    assert bench.expire(NOW + 1_000) == 450
    assert [len(pending.transactions) for pending in bench.held] == [200, 200, 50]
    assert [t.transactional_id for p in bench.held for t in p.transactions] == names
    bench.write(E.COORDINATOR_NOT_AVAILABLE)
    bench.write()
    assert set(bench.shard.transactions) == {*names[:200], *names[400:]}
    bench.write()
    assert all(t.pending is None for t in bench.decider)


def test_unused_ids_expire(bench):
    bench.init()
    bench.now += 999
    assert bench.expire(bench.now) == 0
    bench.now += 1
    bench.log = E.COORDINATOR_NOT_AVAILABLE
    assert bench.expire(bench.now) == 1
    assert bench.it.pending is None, "its tombstone was not written, so it lives on"
    bench.log = E.NONE
    assert bench.expire(bench.now) == 1
    assert list(bench.decider) == []


def test_ids_with_a_transaction_never_expire(bench):
    bench.init()
    bench.add(A)
    assert bench.expire(NOW + 10**9) == 0


def test_listing_filters(bench):
    bench.init()
    bench.add(A)
    bench.now += 50

    def names(producers=(), states=(), duration=-1):
        found, unknown = bench.decider.select(producers, states, duration, bench.now)
        return [t.transactional_id for t in found], unknown

    assert names() == ([ID], [])
    assert names(producers=[101]) == ([ID], [])
    assert names(producers=[1]) == ([], [])
    assert names(states=["Ongoing", "Nonsense"]) == ([ID], ["Nonsense"])
    assert names(states=["Nonsense"]) == ([], ["Nonsense"])
    assert names(states=["Empty"]) == ([], [])
    assert names(duration=49) == ([ID], [])
    assert names(duration=50) == ([], [])


def test_what_ids_leave_is_bounded_however_long_they_are(monkeypatch):
    monkeypatch.setattr(transactions, "MOST_ID_BYTES", 4 * 10_000)
    bench = Bench()

    def init(name):
        return bench.init(name=name).error

    found = [init(f"{n}" * 1000) for n in range(10)] + [init("one more")]
    assert found == [E.NONE] * 10 + [E.POLICY_VIOLATION]
    assert init("0" * 1000) is E.NONE, "a known one goes on"
    bench.decider.expire(NOW + JUMP_MS)
    assert bench.shard.transactions == {}
    assert bench.shard.id_bytes == 0
    assert init("one more") is E.NONE
