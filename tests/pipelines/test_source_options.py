"""Options of format("ottla"): read as the connector reads them; what is wrong is one line."""

import pickle
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import types as t

from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition
from ottla.pipelines.source.batch import BatchReader
from ottla.pipelines.source.data_source import ALL_COLUMNS, TopicSource, chosen_columns
from ottla.pipelines.source.offsets import Position, from_json, to_json
from ottla.pipelines.source.options import WITHOUT_EFFECT, Bound, parse_options
from ottla.pipelines.source.ranges import OffsetRange, divided, gathered, limited
from ottla.pipelines.source.streaming import StreamReader

LEAST = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}


def parsed(**options):
    return parse_options({**LEAST, **{k.replace("__", "."): v for k, v in options.items()}})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"foo": "1"}, "has no option foo"),
        ({"KAFKA.FOO": "1"}, "has no option kafka.foo"),
        ({"kafka.bootstrap.servers": "here"}, "'here' is not an address; write host:port"),
        ({"bootstrap": "a:1"}, "kafka.bootstrap.servers and bootstrap exclude each other"),
        ({"assign": '{"t":[0]}'}, "subscribe and assign exclude each other"),
        ({"subscribe": " , "}, "option subscribe names no topic"),
        ({"minPartitions": "0"}, "option minPartitions: '0' is no whole number of 1 or more"),
        ({"startingOffsets": "yesterday"}, "neither latest nor earliest nor a JSON object"),
        ({"endingOffsets": "earliest"}, "neither latest nor a JSON object"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "partition 0: -3 is no offset"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "partition 0: -2 is no offset"),
        ({"startingOffsets": '{"t":{"0":1.5}}'}, "partition 0: 1.5 is no offset"),
        ({"startingOffsets": '{"t":{"x":1}}'}, "option startingOffsets: invalid literal"),
        ({"startingOffsets": '{"t":'}, "option startingOffsets: "),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "-1 is no offset"),
        ({"failOnDataLoss": "maybe"}, "'maybe' is none of true, false"),
        ({"onDataLoss": "shrug"}, "'shrug' is none of fail, earliest, latest"),
        ({"onDataLoss": "fail", "failOnDataLoss": "true"}, "exclude each other"),
        ({"kafka.isolation.level": "both"}, "is none of read_uncommitted, read_committed"),
        ({"kafka.auto.offset.reset": "earliest"}, "use startingOffsets and onDataLoss"),
        ({"kafka.enable.auto.commit": "true"}, "kept in Spark's checkpoint"),
        ({"kafka.value.deserializer": "x"}, "rows are bytes"),
        ({"kafka.sasl.login.callback.handler.class": "x"}, "no Java client here"),
        ({"minOffsetsPerTrigger": "-1"}, "option minOffsetsPerTrigger: '-1' is no whole number"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "9 is more than max"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay: 'soon' is no duration; write 90s"),
        (
            {"kafka.security.protocol": "SASL_TLS"},
            "security.protocol=SASL_TLS is not one of PLAINTEXT, SSL, ",
        ),
        (
            {"kafka.security.protocol": "SASL_PLAINTEXT"},
            "option kafka.sasl.mechanism=GSSAPI (Kerberos) is not served here",
        ),
        (
            {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"},
            "option kafka.sasl.jaas.config is missing",
        ),
    ],
)
def test_what_is_wrong_is_one_line(options, says):
    with pytest.raises(ConfigError) as found:
        parse_options({**LEAST, **options})
    assert says in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers is missing"),
        ({"bootstrap": "a:1"}, "give one of subscribe, subscribePattern, assign"),
        ({"bootstrap": "a:1", "subscribePattern": "("}, "'(' is no pattern"),
        ({"bootstrap": "a:1", "assign": '{"t":"0"}'}, '"0" is no list of partitions'),
        ({"bootstrap": "a:1", "assign": "[]"}, "no JSON object of topics"),
    ],
)
def test_what_is_missing_is_one_line(options, says):
    with pytest.raises(ConfigError) as found:
        parse_options(options)
    assert says in str(found.value)


def test_defaults_are_the_connectors():
    found = parsed()
    assert found.starting is None
    assert found.ending == Bound(offset=-1)
    assert found.on_data_loss == "fail"
    assert (found.include_headers, found.read_committed) == (False, False)
    assert pickle.loads(pickle.dumps(found)) == found


def test_names_are_compared_without_regard_to_case_and_values_are_read():
    found = parse_options(
        {"BOOTSTRAP": "a:1", "Subscribe": "b, a,b", "INCLUDEHEADERS": "True",
         "failondataloss": "false", "KAFKA.isolation.level": "READ_COMMITTED"}
    )  # fmt: skip
    assert found.subscription.topics == ("b", "a")
    assert (found.include_headers, found.read_committed) == (True, True)
    assert found.on_data_loss == "earliest"


def test_a_time_goes_before_times_by_partition_and_those_before_offsets():
    offsets, times = '{"t":{"0":5,"1":-2}}', '{"t":{"0":1700000000000}}'
    assert parsed(startingOffsets=offsets).starting == Bound(offsets={"t": {0: 5, 1: -2}})
    both = {"startingOffsets": offsets, "startingOffsetsByTimestamp": times}
    assert parsed(**both).starting == Bound(timestamps={"t": {0: 1_700_000_000_000}})
    assert parsed(**both, startingTimestamp="9").starting == Bound(timestamp=9)


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_options_of_the_connector_without_effect_are_taken_with_a_warning(name, caplog):
    source = TopicSource({**LEAST, name.upper(): "1"})
    assert source.schema().fieldNames()[0] == "key"
    assert f"option {name} has no effect: " in caplog.text
    assert len(caplog.records) == 1


def test_every_option_that_was_tried_beside_the_connector():
    taken = {
        "minOffsetsPerTrigger": "10", "maxTriggerDelay": "1m", "maxOffsetsPerTrigger": "10",
        "startingOffsetsByTimestamp": '{"t":{"0":1}}', "failOnDataLoss": "false",
        "kafka.client.rack": "a", "includeHeaders": "true", "groupIdPrefix": "x",
        "kafka.group.id": "x", "fetchOffset.numRetries": "3", "fetchOffset.retryIntervalMs": "10",
        "kafkaConsumer.pollTimeoutMs": "1000", "maxRecordsPerPartition": "100",
        "kafka.max.poll.records": "500", "kafka.fetch.min.bytes": "1",
        "kafka.session.timeout.ms": "10000", "kafka.ssl.endpoint.identification.algorithm": "",
    }  # fmt: skip
    found = parse_options({**LEAST, **taken})
    assert (found.rack, found.min_offsets_per_trigger, found.max_trigger_delay_s) == ("a", 10, 60)
    times = {"endingOffsetsByTimestamp": '{"t":{"0":2}}'}
    assert parsed(**times).ending == Bound(timestamps={"t": {0: 2}})


@pytest.mark.parametrize(
    ("text", "seconds"), [("1500", 1.5), ("90s", 90), ("2 min", 120), ("1h", 3600), ("20ms", 0.02)]
)
def test_durations_are_sparks(text, seconds):
    assert parsed(maxTriggerDelay=text).max_trigger_delay_s == seconds


def test_batches_and_streams_refuse_what_is_the_others():
    with pytest.raises(ConfigError, match="a batch cannot start at latest"):
        BatchReader(parsed(startingOffsets="latest"), ["key"])
    with pytest.raises(ConfigError, match="a batch cannot start at latest"):
        BatchReader(parsed(startingOffsets='{"t":{"0":-1}}'), ["key"])
    with pytest.raises(ConfigError, match="maxOffsetsPerTrigger is for streams"):
        BatchReader(parsed(maxOffsetsPerTrigger="5"), ["key"])
    with pytest.raises(ConfigError, match="minOffsetsPerTrigger is for streams"):
        BatchReader(parsed(minOffsetsPerTrigger="5"), ["key"])
    with pytest.raises(ConfigError, match="a stream has no end"):
        StreamReader(parsed(endingTimestamp="5"), ["key"])


def test_the_package_that_spark_looks_for():
    from pyspark_ottla import DefaultSource

    assert issubclass(DefaultSource, TopicSource)
    assert DefaultSource.name() == "ottla"
    assert DefaultSource(LEAST).schema().fieldNames() == ALL_COLUMNS.fieldNames()[:-1]
    assert DefaultSource({**LEAST, "includeHeaders": "true"}).schema() == ALL_COLUMNS


def test_a_schema_chooses_columns():
    chosen = t.StructType().add("offset", t.LongType()).add("value", t.BinaryType())
    assert chosen_columns(chosen) == ["offset", "value"]
    with pytest.raises(ConfigError, match="the schema has value string; columns are: key binary"):
        chosen_columns(t.StructType().add("value", t.StringType()))


# -- offsets and ranges -------------------------------------------------------------------------

partitions = st.tuples(st.sampled_from("abc"), st.integers(0, 20)).map(lambda p: TopicPartition(*p))
positions = st.dictionaries(partitions, st.integers(0, 1 << 40), min_size=1)


@given(positions, st.dictionaries(st.sampled_from("abc"), st.binary(min_size=16, max_size=16)))
def test_equal_positions_have_equal_text_and_are_read_back(offsets, ids):
    ids = {t: i for t, i in ids.items() if any(tp.topic == t for tp in offsets) and any(i)}
    written = to_json(Position(offsets, ids))
    shuffled = Position(dict(reversed(offsets.items())), dict(reversed(ids.items())))
    assert str(to_json(shuffled)) == str(written)
    assert from_json(written) == Position(offsets, ids)


def test_the_connectors_offsets_are_read_and_others_refused():
    assert from_json({"t": {"0": 5}}) == Position({TopicPartition("t", 0): 5}, {})
    with pytest.raises(ConfigError, match="the checkpoint's offset is none of this source"):
        from_json({"logOffset": 3})


ranges = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5000)), min_size=1, max_size=6)


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 900))
def test_divided_ranges_cover_all_once(found, least, most):
    whole = [OffsetRange("t", bytes(16), n, s, s + size) for n, (s, size) in enumerate(found)]
    parts = divided(whole, least, most)
    offsets = [(p.partition, o) for p in parts for o in range(p.start, p.end)]
    assert offsets == [(w.partition, o) for w in whole for o in range(w.start, w.end)]
    assert all(p.size for p in parts)
    assert most is None or all(p.size <= most for p in parts)
    if least is not None and sum(w.size for w in whole) > 100 * least:
        assert len(parts) >= least - len(whole)


@given(ranges, st.integers(0, 3000))
def test_small_ranges_share_a_task_in_order(found, most):
    parts = [OffsetRange("t", bytes(16), n, s, s + size) for n, (s, size) in enumerate(found)]
    tasks = gathered(parts, most)
    assert [one for task in tasks for one in task] == parts
    assert all(len(task) == 1 or sum(one.size for one in task) <= most for task in tasks)
    assert all(
        sum(one.size for one in task) + following[0].size > most
        for task, following in pairwise(tasks)
    )


def test_a_range_is_divided_by_number_and_by_size():
    one = [OffsetRange("t", bytes(16), 0, 0, 1000)]
    assert [p.size for p in divided(one, 4, None)] == [250] * 4
    assert [p.size for p in divided(one, None, 300)] == [250] * 4
    assert divided(one, 1, None) == one


@given(st.dictionaries(partitions, st.tuples(st.integers(0, 99), st.integers(-5, 999))),
       st.integers(1, 2000))  # fmt: skip
@example({TopicPartition("a", 0): (0, 4), TopicPartition("a", 1): (0, 1),
          TopicPartition("b", 0): (0, 1)}, 3)  # fmt: skip
def test_a_limited_batch_takes_no_more_and_leaves_nobody_out(found, most):
    starts = {tp: start for tp, (start, _) in found.items()}
    ends = {tp: start + size for tp, (start, size) in found.items()}
    upto = limited(starts, ends, most)
    taken = {tp: upto[tp] - starts[tp] for tp in found if ends[tp] > starts[tp]}
    assert sum(taken.values()) <= max(most, len(taken))
    assert all(0 < taken[tp] <= ends[tp] - starts[tp] for tp in taken)
    assert all(upto[tp] == ends[tp] for tp in found if tp not in taken)
