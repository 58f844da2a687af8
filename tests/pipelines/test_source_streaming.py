"""How a stream's offsets move, over a cluster of plain numbers."""

import json
import logging
import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ottla.client.offsets import LogOffset
from ottla.model.errors import ConfigError, OffsetOutOfRangeError, UnknownTopicError
from ottla.model.ids import TopicPartition, uuid_to_text
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines.progress import lag_of
from ottla.pipelines.source.cluster import Topic
from ottla.pipelines.source.options import parse_options
from ottla.pipelines.source.planning import planned
from ottla.pipelines.source.streaming import StreamReader

ID, OTHER_ID = b"\x01" * 16, b"\x02" * 16
ALL = ReadAllAvailable()


class Numbers:
    """A cluster as its logs' first and last offsets."""

    def __init__(self, options):
        self.options = options
        self.logs = {("t", 0): (0, 100), ("t", 1): (50, 60)}
        self.ids = {"t": ID}
        self.times = {}

    def topics(self, subscription):
        return {
            name: Topic(name, topic_id, tuple(p for t, p in sorted(self.logs) if t == name))
            for name, topic_id in self.ids.items()
        }

    def offsets(self, asked, *, committed=False):
        edge = {EARLIEST: 0, LATEST: 1}
        return {
            tp: LogOffset(
                self.logs[tp][edge[at]] if at in edge else self.times.get((tp, at), -1), 0
            )
            for tp, at in asked.items()
        }


def reader(**more):
    options = parse_options({"bootstrap": "h:1", "subscribe": "t", **more})
    found = StreamReader(options, ["offset"])
    found._cluster = Numbers(options)
    return found, found._cluster


def at(*offsets, topic_id=ID):
    return {"t": {**{str(n): o for n, o in enumerate(offsets)}, "id": uuid_to_text(topic_id)}}


def ranges(stream, start, end):
    tasks = stream.partitions(start, end)
    return [(r.tp, r.start, r.end) for task in tasks for r in task.value]


T0, T1, T2 = (TopicPartition("t", n) for n in range(3))


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({}, at(100, 60)),
        ({"startingOffsets": "earliest"}, at(0, 50)),
        ({"startingOffsets": '{"t":{"0":7,"1":-1}}'}, at(7, 60)),
        ({"startingTimestamp": "5"}, at(33, 55)),
        ({"startingOffsetsByTimestamp": '{"t":{"0":5,"1":5}}'}, at(33, 55)),
    ],
)
def test_where_a_stream_starts(options, start):
    stream, cluster = reader(**options)
    cluster.times = {(T0, 5): 33, (T1, 5): 55}
    assert stream.initialOffset() == start


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffsets": '{"t":{"0":7}}'}, "startingOffsets says nothing of t-1"),
        ({"startingOffsets": '{"t":{"0":7,"1":50,"2":0}}'}, "names t-2, which is not subscribed"),
        ({"startingTimestamp": "9"}, "t-0 has no record of time 9 or later to start at"),
    ],
)
def test_starts_that_cannot_be(options, says):
    stream, _ = reader(**options)
    with pytest.raises(ConfigError, match=says):
        stream.initialOffset()


def test_a_time_after_the_last_record_may_start_at_the_end():
    stream, _ = reader(startingTimestamp="9", startingOffsetsByTimestampStrategy="latest")
    assert stream.initialOffset() == at(100, 60)


def test_a_start_that_retention_took_is_refused_or_moved():
    with pytest.raises(OffsetOutOfRangeError, match="t-1: offset 7 is gone, the log holds 50 "):
        reader(startingOffsets='{"t":{"0":7,"1":7}}')[0].initialOffset()
    stream, _ = reader(startingOffsets='{"t":{"0":7,"1":7}}', failOnDataLoss="false")
    assert stream.initialOffset() == at(7, 50)


def test_batches_follow_each_other_and_a_replay_is_the_same():
    stream, cluster = reader(maxOffsetsPerTrigger="40")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(40)
    start = at(0, 50)
    first = stream.latestOffset(start, limit)
    assert first == at(36, 53)
    assert ranges(stream, start, first) == [(T0, 0, 36), (T1, 50, 53)]
    cluster.logs[T0] = (20, 500)
    again = pickle.loads(pickle.dumps(stream))
    assert ranges(again, start, first) == [(T0, 0, 36), (T1, 50, 53)]
    assert stream.latestOffset(first, ALL) == at(500, 60)
    assert stream.reportLatestOffset() == at(500, 60)
    assert ranges(stream, first, first) == []


def test_nothing_new_gives_the_very_same_offset():
    stream, _ = reader()
    assert str(stream.latestOffset(at(100, 60), ALL)) == str(at(100, 60))


def test_a_new_partition_enters_at_its_start_and_is_read_from_the_next_batch_on():
    stream, cluster = reader()
    cluster.logs[T2] = (3, 30)
    entered = stream.latestOffset(at(100, 60), ALL)
    assert entered == at(100, 60, 3)
    assert ranges(stream, at(100, 60), entered) == []
    cluster.logs[T2] = (10, 30)  # retention goes on: the batch is told by its offsets alone
    following = stream.latestOffset(entered, ALL)
    assert ranges(stream, entered, following) == [(T2, 3, 30)]


def test_available_now_ends_where_the_logs_ended_when_it_began():
    stream, cluster = reader(maxOffsetsPerTrigger="40")
    stream.prepareForTriggerAvailableNow()
    cluster.logs = {T0: (0, 900), T1: (50, 70), T2: (0, 9)}
    at_now, seen = at(0, 50), []
    while (following := stream.latestOffset(at_now, stream.getDefaultReadLimit())) != at_now:
        seen += ranges(stream, at_now, following)
        at_now = following
        assert len(seen) < 20
    assert at_now == at(100, 60)
    assert sum(end - start for _, start, end in seen) == 110


def test_available_now_of_a_run_that_was_further_already_ends():
    stream, cluster = reader()
    stream.prepareForTriggerAvailableNow()
    cluster.logs[T0] = (0, 130)
    assert stream.latestOffset(at(120, 60), ALL) == at(120, 60)


def test_a_topic_made_anew_is_refused_whatever_the_policy():
    for policy in ("fail", "earliest", "latest"):
        stream, cluster = reader(onDataLoss=policy)
        cluster.ids = {"t": OTHER_ID}
        with pytest.raises(UnknownTopicError, match="topic t was deleted and created again"):
            stream.latestOffset(at(5, 5), ALL)
        with pytest.raises(UnknownTopicError, match="topic t was deleted and created again"):
            stream.partitions(at(5, 5), at(9, 9, topic_id=OTHER_ID))


def test_a_checkpoint_of_the_connector_goes_on():
    stream, _ = reader()
    assert stream.latestOffset({"t": {"0": 5, "1": 50}}, ALL) == at(100, 60)


def test_a_checkpoint_of_other_topics_is_refused_whatever_the_policy():
    other = {"u": {"0": 5}, "v": {"0": 1}}
    for policy in ("fail", "earliest", "latest"):
        with pytest.raises(UnknownTopicError, match="checkpoint is of u, v, this stream reads t:"):
            reader(onDataLoss=policy)[0].latestOffset(other, ALL)


def test_a_topic_that_is_gone_is_refused_or_left_out(caplog):
    gone = {**at(100, 60), "u": {"0": 5}}
    with pytest.raises(UnknownTopicError, match="topic u of the checkpoint is not there any more"):
        reader()[0].latestOffset(gone, ALL)
    with caplog.at_level(logging.WARNING):
        assert reader(onDataLoss="earliest")[0].latestOffset(gone, ALL) == at(100, 60)
    assert "going on without it" in caplog.text


@pytest.mark.parametrize(
    ("policy", "following"), [("earliest", at(0, 60)), ("latest", at(100, 60))]
)
def test_a_log_that_was_cut_is_refused_or_gone_on_with(policy, following, caplog):
    read = at(150, 60)
    with pytest.raises(OffsetOutOfRangeError, match="read up to offset 150 and ends at 100 now"):
        reader()[0].latestOffset(read, ALL)
    stream, _ = reader(onDataLoss=policy)
    assert stream.latestOffset(read, ALL) == following
    assert ranges(stream, read, following) == []
    assert f"going on at the log's {policy}" in caplog.text
    stream.prepareForTriggerAvailableNow()
    assert stream.latestOffset(read, ALL) == following


# -- batches -----------------------------------------------------------------------------------


def plan(**more):
    options = parse_options({"bootstrap": "h:1", "subscribe": "t", **more})
    cluster = Numbers(options)
    cluster.times = {(T0, 5): 33, (T1, 5): 55, (T0, 9): 90}
    starting = (
        options.starting
        or parse_options(
            {"bootstrap": "h:1", "subscribe": "t", "startingOffsets": "earliest"}
        ).starting
    )
    found = planned(cluster, cluster.topics(None), starting, options.ending)
    return [(r.start, r.end) for r in found]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(0, 100), (50, 60)]),
        ({"startingTimestamp": "5", "endingTimestamp": "9"}, [(33, 90), (55, 60)]),
        ({"endingOffsets": '{"t":{"0":40,"1":-1}}'}, [(0, 40), (50, 60)]),
        ({"startingOffsets": '{"t":{"0":40,"1":-2}}', "endingOffsets": '{"t":{"0":40,"1":50}}'},
         [(40, 40), (50, 50)]),
        ({"startingOffsets": '{"t":{"0":0,"1":7}}', "onDataLoss": "latest"}, [(0, 100), (50, 60)]),
        ({"endingOffsets": '{"t":{"0":400,"1":-1}}', "onDataLoss": "latest"},
         [(0, 100), (50, 60)]),
    ],
)  # fmt: skip
def test_where_a_batch_starts_and_ends(options, expected):
    assert plan(**options) == expected


def test_batches_that_cannot_be():
    with pytest.raises(OffsetOutOfRangeError, match="t-1: offset 7 is gone"):
        plan(startingOffsets='{"t":{"0":0,"1":7}}')
    with pytest.raises(OffsetOutOfRangeError, match="t-0: offset 400 is gone"):
        plan(endingOffsets='{"t":{"0":400,"1":-1}}')
    with pytest.raises(ConfigError, match="t-0: starting offset 9 lies after ending offset 8"):
        plan(startingOffsets='{"t":{"0":9,"1":-2}}', endingOffsets='{"t":{"0":8,"1":-1}}')


# -- how much a micro-batch waits for, and which tasks read it ------------------------------------


def test_small_ranges_are_one_task_and_large_ones_their_own():
    stream, cluster = reader()
    cluster.logs = {T0: (0, 5000), T1: (0, 600), T2: (0, 300), ("t", 3): (0, 200)}

    def tasks(stream):
        found = stream.partitions(at(0, 0, 0, 0), at(5000, 600, 300, 200))
        return [[r.partition for r in task.value] for task in found]

    assert tasks(stream) == [[0], [1, 2], [3]]
    assert tasks(reader(minPartitions="2")[0]) == [[0], [1], [2], [3]]
    assert tasks(reader(maxRecordsPerPartition="5000")[0]) == [[0], [1, 2], [3]]
    assert tasks(reader(maxRecordsPerPartition="800")[0])[-2:] == [[1], [2, 3]]


def test_a_micro_batch_waits_for_enough_offsets_but_not_for_ever(monkeypatch):
    stream, cluster = reader(minOffsetsPerTrigger="50", maxTriggerDelay="30s")
    now_s = [1000.0]
    monkeypatch.setattr("ottla.pipelines.source.streaming.time.monotonic", lambda: now_s[0])
    limit = stream.getDefaultReadLimit()
    start = at(90, 60)
    first = stream.latestOffset(start, limit)
    assert first == at(100, 60)  # nothing was triggered yet
    cluster.logs[T0] = (0, 149)
    assert stream.latestOffset(first, limit) == first
    assert stream.reportLatestOffset() == at(149, 60)
    now_s[0] += 31
    second = stream.latestOffset(first, limit)
    assert second == at(149, 60)
    cluster.logs[T1] = (50, 110)
    assert stream.latestOffset(second, limit) == at(149, 110)
    both = reader(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="20")[0]
    assert both.latestOffset(at(0, 60), both.getDefaultReadLimit()) == at(20, 60)


def test_with_available_now_the_rest_is_read_however_little():
    stream, _ = reader(minOffsetsPerTrigger="50")
    stream.prepareForTriggerAvailableNow()
    limit = stream.getDefaultReadLimit()
    assert stream.latestOffset(at(50, 60), limit) == at(100, 60)
    assert stream.latestOffset(at(95, 60), limit) == at(100, 60)


def test_lag_is_what_the_connector_reports():
    source = {
        "endOffset": json.dumps(at(10, 60)), "latestOffset": at(100, 70), "numInputRows": 7,
    }  # fmt: skip
    other = {"endOffset": {"logOffset": 3}, "latestOffset": None, "numInputRows": 1}
    assert lag_of({"sources": [source, other]}) == [
        {"minOffsetsBehindLatest": 10, "maxOffsetsBehindLatest": 90, "avgOffsetsBehindLatest": 50,
         "offsetsBehindLatest": 100, "inputRows": 7},
        {},
    ]  # fmt: skip
