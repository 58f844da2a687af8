"""Markers: sent to the current leaders, again until written, and never after a resignation.

Verification beside it: who is asked, and what producers are told of the response.
"""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.coordinators import transaction_markers
from ottla.coordinators.requests import ProducerIdAndEpoch
from ottla.coordinators.transaction import Transaction, TransactionState, Transition
from ottla.coordinators.transaction_markers import TransactionMarkers
from ottla.coordinators.transaction_verifier import TransactionVerifier
from ottla.coordinators.transactions import Markers, Shard
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConnectionLostError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.transactions import AddPartitionsToTxnResponse, WriteTxnMarkersResponse

pytestmark = pytest.mark.timeout(20)

E = ErrorCode
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG = BrokerConfig({"broker.id": "0", "zookeeper.connect": "z:1", "log.dirs": "/d"})
ME = ProducerIdAndEpoch(7, 3)


class Cluster:
    """Leaders, and what brokers answer: `script` holds codes (or an error) in order."""

    def __init__(self, **leaders):
        self.leaders = {TopicPartition("t", int(k[1:])): v for k, v in leaders.items()}
        self.script = []
        self.asked = []
        self.deleted = set()
        """The partitions that ZooKeeper has deleted; an error: it cannot be read."""
        self.checked = []

    async def deleted_of(self, partitions):
        self.checked.append(sorted(partitions))
        await asyncio.sleep(0)
        if isinstance(self.deleted, Exception):
            raise self.deleted
        return self.deleted & set(partitions)

    def partition(self, topic, index):
        leader = self.leaders.get(TopicPartition(topic, index))
        return None if leader is None else SimpleNamespace(leader=leader)

    def endpoint(self, broker_id, _listener):
        return broker_id

    def connection(self, *_):
        """Return what stands for a `BrokerConnection`."""

        async def peer(endpoint):
            return SimpleNamespace(
                send=lambda request, version, _: self.send(endpoint, request, version)
            )

        return SimpleNamespace(peer=peer, close=lambda: None)

    async def send(self, endpoint, request, _version):
        self.asked.append((endpoint, request))
        await asyncio.sleep(0)
        answer = self.script.pop(0) if self.script else E.NONE
        if isinstance(answer, Exception):
            raise answer
        return self.respond(request, answer)

    def respond(self, request, code):
        r = WriteTxnMarkersResponse
        return r(
            markers=[
                r.WritableTxnMarkerResult(
                    producer_id=m.producer_id,
                    topics=[
                        r.WritableTxnMarkerTopicResult(
                            name=t.name,
                            partitions=[
                                r.WritableTxnMarkerPartitionResult(
                                    partition_index=i,
                                    error_code=code.get(i, 0) if isinstance(code, dict) else code,
                                )
                                for i in t.partition_indexes
                            ],
                        )
                        for t in m.topics
                    ],
                )
                for m in request.markers
            ]
        )


def send_of(partitions=(A, B), committed=True):
    state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    completion = Transition(state, 7, 3, 2, 60_000, frozenset(), 10, 20)
    return Markers(Shard(0, 5), Transaction("id", 7, 3), completion, frozenset(partitions))


@pytest.fixture
def run(monkeypatch):
    """Run the markers of some sends until `enough` of the partitions are marked."""
    monkeypatch.setattr(transaction_markers, "RETRY_S", 0.001)
    monkeypatch.setattr(transaction_markers, "CHECK_S", 0.003)

    def go(cluster, sends, enough, meanwhile=None):
        monkeypatch.setattr(transaction_markers, "BrokerConnection", cluster.connection)
        marked = []

        async def work():
            markers = TransactionMarkers(
                None,
                CONFIG,
                cluster,
                lambda send, tps: marked.extend((send, tp) for tp in tps),
                cluster.deleted_of,
            )
            for send in sends:
                markers.send(send)
            for turn in range(500):
                if len(marked) >= enough:
                    break
                if meanwhile is not None:
                    meanwhile(turn)
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)  # whatever is sent too much has its chance
            assert markers.waiting == 0
            await markers.close()

        asyncio.run(work())
        return marked

    return go


def test_each_leader_gets_its_partitions_in_one_request(run):
    cluster = Cluster(p0=1, p1=2)
    sends = [send_of(), send_of(committed=False)]
    marked = run(cluster, sends, 4)
    assert {(s is sends[0], tp) for s, tp in marked} == {
        (x, tp) for x in (True, False) for tp in (A, B)
    }
    assert sorted(where for where, _ in cluster.asked) == [1, 2], "both sends share a request"
    marker = cluster.asked[0][1].markers[0]
    assert (marker.producer_id, marker.producer_epoch) == (7, 3)
    assert (marker.coordinator_epoch, marker.transaction_result) == (5, True)


@pytest.mark.parametrize(
    "failure",
    [
        ConnectionLostError("gone"),
        ValueError("our bug"),
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
    ],
)
def test_failed_markers_go_to_the_current_leader(run, failure):
    cluster = Cluster(p0=1, p1=1)
    cluster.script = [failure, failure]

    def move(_turn):
        if len(cluster.asked) == 1:
            cluster.leaders[A] = 2

    marked = run(cluster, [send_of()], 2, move)
    assert sorted(tp for _, tp in marked) == [A, B]
    assert cluster.asked[0][0] == 1
    assert 2 in [where for where, _ in cluster.asked]


def test_only_what_failed_is_sent_again(run):
    cluster = Cluster(p0=1, p1=1)
    cluster.script = [{1: E.NOT_LEADER_OR_FOLLOWER}]
    run(cluster, [send_of()], 2)
    again = cluster.asked[1][1].markers[0].topics[0].partition_indexes
    assert list(again) == [1]


def test_partitions_without_a_leader_wait_and_deleted_ones_count_as_done(run):
    cluster = Cluster(p0=-1)
    cluster.deleted = {B}

    def elect(turn):
        if turn == 5:
            assert cluster.asked == []
            cluster.leaders[A] = 2

    marked = run(cluster, [send_of()], 2, elect)
    assert [tp for _, tp in marked] == [B, A]
    assert cluster.checked == [[B]]


def test_a_partition_that_only_the_metadata_does_not_know_gets_its_marker(run):
    """R3: a coordinator that has just started knows no partition yet. Seed 9100046."""
    cluster = Cluster()

    def update_metadata(turn):
        assert len(cluster.checked) <= 1 + turn  # not at every look for a leader
        if turn == 5:
            assert cluster.asked == []
            cluster.leaders |= {A: 1, B: 2}

    marked = run(cluster, [send_of()], 2, update_metadata)
    assert sorted(tp for _, tp in marked) == [A, B]
    assert sorted(where for where, _ in cluster.asked) == [1, 2]


@pytest.mark.parametrize("failure", [ConnectionLostError("no session"), ValueError("our bug")])
def test_while_zookeeper_cannot_tell_nothing_counts_as_deleted(run, failure):
    cluster = Cluster(p0=1)
    cluster.deleted = failure

    def tell(turn):
        if turn == 20:
            assert len(cluster.checked) > 1
            cluster.deleted = {B}

    marked = run(cluster, [send_of()], 2, tell)
    assert [tp for _, tp in marked] == [A, B]


def test_a_resigned_coordinator_sends_no_markers(run):
    cluster = Cluster()
    send = send_of()

    def lose(turn):
        if turn == 5:
            send.shard.resigned = True
            cluster.leaders |= {A: 1, B: 2}

    assert run(cluster, [send], 2, lose) == []
    assert cluster.asked == []


@pytest.mark.parametrize("code", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
def test_markers_of_a_fenced_coordinator_are_not_sent_again(run, code):
    cluster = Cluster(p0=1, p1=1)
    cluster.script = [code]
    assert run(cluster, [send_of()], 2, lambda _: None) == []
    assert len(cluster.asked) == 1


def test_a_coordination_that_is_over_sends_nothing_again(run):
    cluster = Cluster(p0=1, p1=1)
    cluster.script = [E.NOT_LEADER_OR_FOLLOWER]
    send = send_of()

    def lose(_turn):
        if cluster.asked:
            send.shard.resigned = True

    assert run(cluster, [send], 2, lose) == []
    assert len(cluster.asked) == 1


# --- verification -------------------------------------------------------------------------------


class Coordinator:
    """Coordinates on broker `home`."""

    def __init__(self, codes):
        self.log = SimpleNamespace(topic="t", partition_for=lambda _id: 0)
        self.codes = codes

    def verify_partitions(self, _id, _producer, partitions):
        return {tp: self.codes.get(tp, E.NONE) for tp in partitions}


class Asked(Cluster):
    """A coordinator far away."""

    def respond(self, request, code):
        r = AddPartitionsToTxnResponse
        if isinstance(code, tuple):
            return r(error_code=code[0])
        return r(
            results_by_transaction=[
                r.AddPartitionsToTxnResult(
                    transactional_id=t.transactional_id,
                    topic_results=[
                        r.AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                r.AddPartitionsToTxnPartitionResult(
                                    partition_index=i, partition_error_code=code
                                )
                                for i in topic.partitions
                            ],
                        )
                        for topic in t.topics
                    ],
                )
                for t in request.transactions
            ]
        )


def verify(monkeypatch, cluster, questions, codes=None):
    """Verify all at once; return the results in order."""
    monkeypatch.setattr(transaction_markers, "BrokerConnection", cluster.connection)

    async def work():
        verifier = TransactionVerifier(None, CONFIG, cluster, Coordinator(codes or {}))
        verdicts = {}
        for number, (name, producer, knows) in enumerate(questions):
            heard = verdicts[number] = []
            request = SimpleNamespace(on_verified=heard.append)
            at_once = verifier.verify(name, producer, [B], request, knows_abortable=knows)
            if at_once is not None:
                heard.append(at_once)
        for _ in range(50):
            await asyncio.sleep(0)
        await verifier.close()
        return [verdicts[n] for n in range(len(questions))]

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("code", "knows", "told"),
    [
        (E.NONE, False, {}),
        (E.PRODUCER_FENCED, False, {B: E.INVALID_PRODUCER_EPOCH}),
        (E.TRANSACTION_ABORTABLE, False, {B: E.INVALID_TXN_STATE}),
        (E.TRANSACTION_ABORTABLE, True, {B: E.TRANSACTION_ABORTABLE}),
        (E.CONCURRENT_TRANSACTIONS, True, {B: E.CONCURRENT_TRANSACTIONS}),
    ],
)
def test_here_or_far_away_the_verdict_is_the_same(monkeypatch, code, knows, told):
    here = verify(monkeypatch, Cluster(p0=0), [("id", ME, knows)], {B: code})
    far = Asked(p0=2)
    far.script = [code]
    assert here == verify(monkeypatch, far, [("id", ME, knows)]) == [[told]]
    (transaction,) = far.asked[0][1].transactions
    assert transaction.verify_only


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ConnectionLostError("gone"), E.NETWORK_EXCEPTION),
        (ValueError("our bug"), E.NETWORK_EXCEPTION),
        ((E.CLUSTER_AUTHORIZATION_FAILED,), E.INVALID_TXN_STATE),
        ((E.COORDINATOR_NOT_AVAILABLE,), E.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_coordinator_that_cannot_tell(monkeypatch, answer, told):
    far = Asked(p0=2)
    far.script = [answer]
    assert verify(monkeypatch, far, [("id", ME, True), ("other", ME, True)]) == [
        [{B: told}],
        [{B: told}],
    ]
    assert len(far.asked) == 1, "one request for both"


def test_without_a_coordinator_no_request_is_sent(monkeypatch):
    unavailable = [[{B: E.COORDINATOR_NOT_AVAILABLE}]]
    assert verify(monkeypatch, Asked(p0=-1), [("id", ME, True)]) == unavailable
    assert verify(monkeypatch, Asked(), [("id", ME, True)]) == unavailable


def test_of_one_id_only_the_newest_question_waits(monkeypatch):
    newer, older = ME._replace(epoch=4), ME._replace(epoch=2)
    asked = [("id", ME, True), ("id", ME, True), ("id", newer, True), ("id", older, True)]
    assert verify(monkeypatch, Asked(p0=2), asked) == [
        [{B: E.NETWORK_EXCEPTION}],
        [{B: E.INVALID_PRODUCER_EPOCH}],
        [{}],
        [{B: E.INVALID_PRODUCER_EPOCH}],
    ]
