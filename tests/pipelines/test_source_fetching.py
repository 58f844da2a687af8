"""One partition through changing leaders, by a scripted broker: nothing twice, nothing lost."""

import logging
from types import SimpleNamespace

import pytest

from ottla.model.errors import (
    ConnectionLostError,
    CorruptRecordError,
    ErrorCode,
    OffsetOutOfRangeError,
    OttlaError,
    UnknownTopicError,
)
from ottla.pipelines.source.cluster import Cluster, close_kept, lent
from ottla.pipelines.source.fetching import PartitionFetcher, refuse_another
from ottla.pipelines.source.options import parse_options
from ottla.pipelines.source.ranges import OffsetRange
from ottla.pipelines.source.scan import scan, scan_all
from ottla.wire.messages.records import FetchRequest, ListOffsetsRequest
from ottla.wire.records import Record, build_batch
from support.fake_client import FakeClient

NOTHING = 0.0
"""A fetch is answered without records, as when a quota is exceeded or a disk is slow."""
ID, OTHER_ID = b"\x01" * 16, b"\x02" * 16


def base_of(batch):
    return int.from_bytes(batch[:8], "big")


class ScriptedBroker(FakeClient):
    """The client's side of one partition t-0: a log, a leader, and what goes wrong when."""

    def __init__(self, batches=10, per_batch=10, per_fetch=2):
        self.batches = [
            build_batch([Record(value=b"%d" % n)] * per_batch, base_offset=n * per_batch,
                        leader_epoch=1)
            for n in range(batches)
        ]  # fmt: skip
        self.per_batch = per_batch
        self.per_fetch = per_fetch
        self.start = 0
        self.epoch = 1
        self.epoch_ends = {}
        self.topic_id = ID
        self.troubles = []
        """What the next fetches meet: an error code, an exception, or a function to call."""
        self.high_watermark = None
        self.open_from = None
        """Where a transaction begins that is not decided yet."""
        self.asked = []

    @property
    def end(self):
        return len(self.batches) * self.per_batch

    async def close(self):
        pass

    async def metadata(self, names):
        return SimpleNamespace(
            topics=[SimpleNamespace(error_code=0, topic_id=self.topic_id, name="t")]
        )

    async def leader(self, topic, partition):
        return 7

    def leader_epoch(self, topic, partition):
        return self.epoch

    async def call(self, request, broker, *, version=None, timeout_s=None):
        if isinstance(request, FetchRequest):
            found = self.fetch(request.topics[0].partitions[0], request.isolation_level)
            return SimpleNamespace(
                error_code=0, responses=[SimpleNamespace(topic="t", partitions=[found])]
            )
        asked = request.topics[0].partitions[0]
        if isinstance(request, ListOffsetsRequest):
            offset = self.start if asked.timestamp == -2 else self.end
            one = SimpleNamespace(
                partition_index=0, error_code=0, offset=offset, leader_epoch=self.epoch
            )
            return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[one])])
        end = self.epoch_ends.get(asked.leader_epoch, self.end)
        one = SimpleNamespace(error_code=0, end_offset=end)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[one])])

    def fetch(self, asked, isolation_level=0):
        offset = asked.fetch_offset
        self.asked.append(offset)
        code, records = 0, b""
        trouble = self.troubles.pop(0) if self.troubles else 0
        if callable(trouble):
            trouble = trouble() or 0
        if isinstance(trouble, Exception):
            raise trouble
        if trouble:
            code = trouble
        elif not self.start <= offset <= self.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif offset < self.end and trouble is not NOTHING:
            at = offset // self.per_batch
            found = self.batches[at : at + self.per_fetch]
            hidden = self.open_from if isolation_level else None
            records = b"".join(b for b in found if hidden is None or base_of(b) < hidden)
        return SimpleNamespace(
            error_code=code, partition_index=0, records=records, aborted_transactions=None,
            high_watermark=self.end if self.high_watermark is None else self.high_watermark,
            last_stable_offset=self.end if self.open_from is None else self.open_from,
        )  # fmt: skip


@pytest.fixture
def broker():
    return ScriptedBroker()


def options(**more):
    return parse_options(
        {
            "bootstrap": "127.0.0.1:1",
            "subscribe": "t",
            "kafka.default.api.timeout.ms": "300",
            **more,
        }
    )


def fetched(broker, start=0, end=100, topic_id=ID, **more):
    """Return the offsets from which each answer was used, and how many offsets were skipped."""
    with Cluster(options(**more)) as cluster:
        cluster._client = broker
        fetcher = PartitionFetcher(cluster, OffsetRange("t", topic_id, 0, start, end))
        return [one.first for one in fetcher], fetcher.skipped


def read(monkeypatch, broker, start=0, end=100, **more):
    """Return the offsets of the rows a task gives."""
    monkeypatch.setattr(Cluster, "client", property(lambda self: broker))
    wanted = OffsetRange("t", ID, 0, start, end)
    return [o for b in scan(options(**more), wanted, ["offset"]) for o in b["offset"].to_pylist()]


def test_a_range_is_read_batch_by_batch_one_fetch_ahead(broker, monkeypatch):
    assert fetched(broker) == ([0, 20, 40, 60, 80], 0)
    assert broker.asked == [0, 20, 40, 60, 80]
    assert read(monkeypatch, broker, 15, 47) == list(range(15, 47))


def test_the_next_fetch_is_sent_before_the_last_one_is_used(broker):
    with Cluster(options()) as cluster:
        cluster._client = broker
        reading = iter(PartitionFetcher(cluster, OffsetRange("t", ID, 0, 0, 100)))
        next(reading)
        assert broker.asked == [0, 20]
        next(reading)
        assert broker.asked == [0, 20, 40]
        reading.close()


@pytest.mark.parametrize(
    "trouble",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_NOT_AVAILABLE,
        ConnectionLostError("gone"),
    ],
    ids=str,
)  # fmt: skip
def test_leaders_that_move_or_die_are_asked_again(broker, monkeypatch, trouble):
    broker.troubles = [0, trouble, trouble, 0, trouble]
    assert read(monkeypatch, broker) == list(range(100))


def test_a_leader_that_never_comes_back_is_one_error_in_bounded_time(broker):
    broker.troubles = [0] + [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 10_000
    with pytest.raises(OttlaError, match=r"t-0: the leader responds with .*NOT_LEADER_OR_FOLLOWER"):
        fetched(broker)
    assert 3 < len(broker.asked) < 100


def test_what_cannot_be_tried_again_is_not(broker):
    broker.troubles = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(OttlaError, match="TOPIC_AUTHORIZATION_FAILED"):
        fetched(broker)
    assert broker.asked == [0]


def test_another_topic_of_the_same_name_is_refused(broker):
    def replaced():
        broker.topic_id = OTHER_ID
        return ErrorCode.UNKNOWN_TOPIC_ID

    broker.troubles = [0, replaced]
    with pytest.raises(UnknownTopicError, match="topic t was deleted and created again"):
        fetched(broker)
    with pytest.raises(UnknownTopicError):
        refuse_another("t", ID, OTHER_ID)
    refuse_another("t", bytes(16), ID)  # a checkpoint of the connector knows no ids


# -- what is gone ------------------------------------------------------------------------------


def test_retention_overtakes_a_reader(broker, monkeypatch, caplog):
    def cut():
        broker.start = 60

    broker.troubles = [0, cut]
    with pytest.raises(OffsetOutOfRangeError, match=r"log holds 60 to 100, .* records are gone"):
        fetched(broker)
    for policy, offsets in (("earliest", [*range(20), *range(60, 100)]), ("latest", range(20))):
        broker.start = 0
        broker.troubles = [0, cut]
        with caplog.at_level(logging.WARNING):
            assert read(monkeypatch, broker, onDataLoss=policy) == list(offsets)
        skipped = 40 if policy == "earliest" else 80
        assert f"skipping {skipped} offsets of t-0 from 20 on" in caplog.text


def test_a_whole_range_may_be_gone(broker, monkeypatch):
    broker.start = 60
    assert fetched(broker, 0, 30, onDataLoss="earliest") == ([], 30)


def election(broker, end, code):
    """Return a trouble: a new leader, in whose log the first epoch ends there."""

    def elected():
        broker.epoch = 2
        broker.epoch_ends = {1: end}
        return code

    return elected


def test_an_unclean_election_behind_the_reader_is_found(broker, caplog):
    """The new leader has fewer records of the old epoch than were read, but a longer log."""

    elected = election(broker, 15, ErrorCode.FENCED_LEADER_EPOCH)
    broker.troubles = [0, elected]
    with pytest.raises(OffsetOutOfRangeError, match="cut to offset 15 by an unclean election"):
        fetched(broker)
    broker.epoch, broker.epoch_ends = 1, {}
    broker.troubles = [0, elected]
    assert fetched(broker, onDataLoss="earliest") == ([0, 20, 40, 60, 80], 0)
    assert "cut to offset 15 by an unclean election" in caplog.text


def test_a_clean_election_is_no_loss(broker, monkeypatch):
    broker.troubles = [0, election(broker, 70, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert read(monkeypatch, broker) == list(range(100))


def test_a_log_that_ends_before_the_planned_end(broker):
    del broker.batches[5:]
    with pytest.raises(OffsetOutOfRangeError, match="ends at offset 50, 100 was planned"):
        fetched(broker)
    assert fetched(broker, onDataLoss="earliest")[1] == 50


def test_a_new_leader_that_does_not_know_yet_what_is_committed(broker, monkeypatch):
    hidden = broker.batches[5:]
    del broker.batches[5:]

    def later():
        if not hidden:
            return
        broker.batches += hidden[:1]
        del hidden[:1]

    broker.troubles = [0, 0, 0] + [later] * 12
    assert read(monkeypatch, broker) == list(range(100))


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_answers_without_records_are_no_end(broker, monkeypatch, isolation):
    broker.troubles = [0, *[NOTHING] * 6, 0, *[NOTHING] * 3]
    found = read(monkeypatch, broker, **{"kafka.isolation.level": isolation})
    assert found == list(range(100))


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_log_that_gives_nothing_more_is_an_error(broker, isolation):
    broker.troubles = [0, *[NOTHING] * 500]
    with pytest.raises(OffsetOutOfRangeError, match="gives no record from offset 20 on"):
        fetched(broker, **{"kafka.isolation.level": isolation})


def test_a_compacted_tail_before_an_open_transaction_ends_the_range(broker, monkeypatch):
    broker.batches[5:8] = [broker.batches[8]] * 3
    broker.open_from = 80
    committed = {"kafka.isolation.level": "read_committed"}
    assert read(monkeypatch, broker, 0, 80, **committed) == list(range(50))


def test_a_gap_beyond_the_range_ends_it(broker, monkeypatch):
    broker.batches[3] = build_batch([Record(value=b"x")] * 10, base_offset=95)
    assert read(monkeypatch, broker, 0, 38) == list(range(30))


def test_half_a_batch_is_an_error_and_no_end(broker):
    broker.batches[2] = broker.batches[2][:-3]
    broker.per_fetch = 1
    with pytest.raises(CorruptRecordError, match="t-0: no whole batch at offset 20"):
        fetched(broker)


def test_an_unreachable_cluster_is_one_line():
    with Cluster(options()) as cluster, pytest.raises(ConnectionLostError) as found:
        cluster.existing(["t"])
    assert "cannot reach 127.0.0.1:1" in str(found.value)
    assert "is kafka.bootstrap.servers=127.0.0.1:1 right?" in str(found.value)


# -- the nearest replica, and connections that are kept ------------------------------------------


class RackBroker(ScriptedBroker):
    """Leader 7 sends consumers of rack "a" to follower 9."""

    follower = 9

    def __init__(self, *troubles_of_follower):
        super().__init__()
        self.servers = []
        self.troubles_of_follower = list(troubles_of_follower)

    async def call(self, request, broker, **more):
        if not isinstance(request, FetchRequest):
            return await super().call(request, broker, **more)
        self.servers.append(broker)
        redirected = broker == 7 and request.rack_id == "a"
        if redirected:
            found = SimpleNamespace(
                error_code=0, partition_index=0, records=b"", aborted_transactions=None,
                high_watermark=self.end, last_stable_offset=self.end,
                preferred_read_replica=self.follower,
            )  # fmt: skip
        else:
            if broker == self.follower and self.troubles_of_follower:
                self.troubles.insert(0, self.troubles_of_follower.pop(0))
            found = self.fetch(request.topics[0].partitions[0])
            found.preferred_read_replica = -1
        topic = SimpleNamespace(topic="t", partitions=[found])
        return SimpleNamespace(error_code=0, responses=[topic])


def test_the_replica_in_the_rack_is_read_and_the_leader_asked_once():
    broker = RackBroker()
    assert fetched(broker, **{"kafka.client.rack": "a"}) == ([0, 20, 40, 60, 80], 0)
    assert broker.servers == [7, 9, 9, 9, 9, 9]
    broker = RackBroker()
    assert fetched(broker) == ([0, 20, 40, 60, 80], 0)
    assert set(broker.servers) == {7}


@pytest.mark.parametrize(
    "trouble",
    [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ConnectionLostError("gone")],
)
def test_a_follower_that_fails_sends_back_to_the_leader_and_skips_nothing(trouble):
    broker = RackBroker(0, trouble)
    rack = {"kafka.client.rack": "a", "kafka.default.api.timeout.ms": "5000"}
    assert fetched(broker, **rack) == ([0, 20, 40, 60, 80], 0)
    assert broker.servers == [7, 9, 9, 7, 9, 9, 9, 9]


def test_connections_are_lent_to_the_next_task_unless_something_failed():
    close_kept()
    with lent(options()) as first:
        pass
    with lent(options()) as second:
        assert second is first
        with lent(options()) as beside:
            assert beside is not first
    with pytest.raises(OttlaError), lent(options()) as third:
        raise OttlaError("lost", ErrorCode.UNKNOWN_SERVER_ERROR)
    with lent(options()) as fourth:
        assert fourth is not third
    with lent(options(subscribe="other")) as fifth:
        assert fifth is not fourth
    close_kept()


def test_what_is_left_half_read_keeps_no_connection(broker, monkeypatch):
    close_kept()
    monkeypatch.setattr(Cluster, "client", property(lambda self: broker))
    rows = scan(options(), OffsetRange("t", ID, 0, 0, 100), ["offset"])
    next(rows)
    rows.close()
    with lent(options()) as cluster:
        made = cluster
    wanted = [OffsetRange("t", ID, 0, 0, 30), OffsetRange("t", ID, 0, 90, 100)]
    found = [o for b in scan_all(options(), wanted, ["offset"]) for o in b["offset"].to_pylist()]
    assert found == [*range(30), *range(90, 100)]
    with lent(options()) as cluster:
        assert cluster is made
    close_kept()
