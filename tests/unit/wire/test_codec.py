"""What the codec refuses, drops and passes through: versions, nulls, counts, tags, records."""

import subprocess
import sys
import tracemalloc

import pytest

from ottla.model.errors import ErrorCode, UnsupportedVersionError, WireError
from ottla.model.ids import ZERO_UUID
from ottla.wire import codec, primitives
from ottla.wire.messages.cluster import MetadataRequest, MetadataResponse
from ottla.wire.messages.control import LeaderAndIsrRequest, UpdateMetadataRequest
from ottla.wire.messages.groups import OffsetFetchRequest
from ottla.wire.messages.records import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse


def request_bytes(message, version):
    return b"".join(codec.encode_request(message, version))


def response_bytes(message, version):
    return b"".join(codec.encode_response(message, version))


def produce(records):
    partition = ProduceRequest.PartitionProduceData(index=3, records=records)
    topic = ProduceRequest.TopicProduceData(name="events", partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])


# -- objects ------------------------------------------------------------------------------------


def test_a_message_starts_with_kafkas_defaults():
    request = FetchRequest()
    assert request.replica_id == -1
    assert request.max_bytes == 0x7FFFFFFF
    assert request.session_epoch == -1
    assert request.topics == []
    assert request.cluster_id is None
    assert request.replica_state == FetchRequest.ReplicaState(replica_id=-1, replica_epoch=-1)
    assert FetchRequest.FetchTopic().topic_id == ZERO_UUID


def test_lists_and_structs_of_two_objects_are_not_shared():
    one, other = FetchRequest(), FetchRequest()
    one.topics.append(FetchRequest.FetchTopic(topic="a"))
    one.replica_state.replica_id = 5
    assert other == FetchRequest()


def test_a_class_says_what_it_is():
    assert (FetchRequest.API_KEY, FetchRequest.MIN_VERSION, FetchRequest.MAX_VERSION) == (1, 0, 17)
    assert FetchRequest.FLEXIBLE_VERSION == 12
    assert FetchRequest.FetchTopic.__qualname__ == "FetchRequest.FetchTopic"
    assert "acks=-1" in repr(produce(b"x"))


# -- records ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 8, 9, 11])
def test_records_are_a_slice_of_the_frame(version):
    frame = memoryview(bytearray(request_bytes(produce(b"\x00" * 200), version)))
    message = codec.decode_request(0, version, frame)
    records = message.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0] = 0xEE
    assert bytes(frame).count(b"\xee") == 1


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("size", [0, 5, 126, 127, 128, 70000])
def test_records_are_written_from_one_buffer_or_several(version, size):
    whole = bytes(size)
    half = size // 2
    expected = request_bytes(produce(whole), version)
    assert request_bytes(produce(memoryview(whole)), version) == expected
    assert request_bytes(produce([whole[:half], memoryview(whole)[half:]]), version) == expected
    assert request_bytes(produce((bytearray(whole),)), version) == expected


def test_record_buffers_are_handed_on_uncopied():
    chunks = [bytearray(100), memoryview(bytes(50))]
    parts = codec.encode_request(produce(chunks), 9)
    assert [part for part in parts if part is chunks[0] or part is chunks[1]] == chunks


def test_null_records_stay_null():
    for version in (3, 9):
        back = codec.decode_request(0, version, request_bytes(produce(None), version))
        assert back.topic_data[0].partition_data[0].records is None


# -- versions -----------------------------------------------------------------------------------


def test_an_ignorable_field_is_dropped_by_a_version_without_it():
    request = LeaderAndIsrRequest(broker_epoch=77)
    assert codec.decode_request(4, 1, request_bytes(request, 1)).broker_epoch == -1
    assert codec.decode_request(4, 2, request_bytes(request, 2)).broker_epoch == 77


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (LeaderAndIsrRequest(topic_states=[LeaderAndIsrRequest.LeaderAndIsrTopicState()]), 1, "t"),
        (LeaderAndIsrRequest(is_kraft_controller=True), 6, "is_kraft_controller"),
        (UpdateMetadataRequest(type=2), 7, "type"),
        (FetchRequest(replica_id=4), 15, "replica_id"),
        (FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=4)), 14, "replica_state"),
        (ProduceRequest(transactional_id="t"), 2, "transactional_id"),
    ],
)
def test_a_field_that_must_not_get_lost_refuses_an_older_version(message, version, field):
    with pytest.raises(WireError, match=field) as caught:
        codec.encode_request(message, version)
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_ungrouped_and_grouped_partition_states_each_have_their_versions():
    state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        topic_name="t", partition_index=1, leader=2, isr=[2, 3], replicas=[2, 3], is_new=True
    )
    old = LeaderAndIsrRequest(ungrouped_partition_states=[state])
    assert codec.decode_request(4, 1, request_bytes(old, 1)) == old
    topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t", partition_states=[state])
    back = codec.decode_request(4, 7, request_bytes(LeaderAndIsrRequest(topic_states=[topic]), 7))
    assert back.topic_states[0].partition_states[0].topic_name == ""  # the group names it
    with pytest.raises(WireError):
        codec.encode_request(old, 2)


@pytest.mark.parametrize(("key", "version"), [(0, 12), (0, -1), (52, 0), (-1, 0), (1000, 3)])
def test_an_unknown_key_or_version_is_unsupported(key, version):
    for function in (codec.decode_request, codec.decode_response):
        with pytest.raises(UnsupportedVersionError):
            function(key, version, b"")


# -- nulls and bad values -----------------------------------------------------------------------


def test_null_means_something_else_than_empty():
    for version in (1, 9, 12):
        for topics in (None, []):
            raw = request_bytes(MetadataRequest(topics=topics), version)
            assert codec.decode_request(3, version, raw).topics == topics


def test_null_where_the_version_has_none_is_refused():
    with pytest.raises(WireError):
        codec.encode_request(MetadataRequest(topics=None), 0)
    with pytest.raises(WireError):
        codec.encode_response(
            MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name=None)]), 9
        )
    with pytest.raises(WireError, match="null"):
        codec.decode_request(3, 0, b"\xff\xff\xff\xff")


@pytest.mark.parametrize("acks", [1 << 15, "1", None, 1.5])
def test_a_value_that_does_not_fit_is_refused(acks):
    with pytest.raises(WireError, match="ProduceRequest"):
        codec.encode_request(ProduceRequest(acks=acks), 9)


def test_a_string_no_kafka_reader_takes_is_refused():
    for version in (8, 9):
        with pytest.raises(WireError, match="longer"):
            codec.encode_request(ProduceRequest(transactional_id="x" * 32768), version)


def test_a_string_that_is_no_utf8_is_refused():
    raw = bytearray(request_bytes(ProduceRequest(transactional_id="abc"), 9))
    raw[1] = 0xFF
    with pytest.raises(WireError, match="Produce v9"):
        codec.decode_request(0, 9, raw)


# -- bombs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "version", "raw"),
    [
        (3, 0, b"\x7f\xff\xff\xff"),  # two billion strings
        (3, 9, b"\xff\xff\xff\xff\x07\x00\x00\x00\x00"),
        (0, 3, b"\xff\xff\x00\x01\x00\x00\x00\x01\x7f\xff\xff\xff"),
        (0, 9, b"\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff\x07"),
        (0, 9, b"\x00\x00\x01\x00\x00\x00\x01\x01\xff\xff\xff\xff\x07"),  # tagged fields
        (5, 1, b"\x00" * 17 + b"\x10\x00\x00\x00"),
        (0, 9, b"\xff\xff\xff\xff\xff\xff\xff"),  # an endless varint
    ],
)
def test_a_huge_count_is_refused_before_anything_is_allocated(key, version, raw):
    codec.request_readers[key, version]
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            codec.decode_request(key, version, raw)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_count_must_fit_the_bytes_at_the_elements_least_size():
    body = bytes(17) + (400).to_bytes(4, "big") + bytes(1000)
    with pytest.raises(WireError, match="400 elements"):
        codec.decode_request(5, 1, body)


def test_int_arrays_of_any_length_survive():
    for count in (0, 1, 31, 32, 33, 126, 127, 128, 5000):
        replicas = list(range(count))
        for version in (3, 7):
            state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                isr=replicas[:3], replicas=replicas, adding_replicas=replicas
            )
            topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(partition_states=[state])
            message = LeaderAndIsrRequest(topic_states=[topic])
            assert codec.decode_request(4, version, request_bytes(message, version)) == message


def test_many_elements_survive():
    topics = [MetadataRequest.MetadataRequestTopic(name=f"t{i}") for i in range(300)]
    for version in (8, 12):
        raw = request_bytes(MetadataRequest(topics=topics), version)
        assert codec.decode_request(3, version, raw).topics == topics


def count_slices(key, version, raw, most=None):
    """Return what was read, and in how many slices."""
    steps = codec.decode_request_in_slices(key, version, memoryview(raw), most=most)
    slices = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, slices
        slices += 1


def test_f46_an_array_of_very_many_numbers_is_read_in_slices():
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(
        name="t", partition_indexes=list(range(100_000))
    )
    for version in (5, 7):
        message = OffsetFetchRequest(group_id="g", topics=[topic])
        read, slices = count_slices(9, version, request_bytes(message, version))
        assert read == message
        assert slices > 20


@pytest.mark.parametrize("size", [100, 2_000_000])
def test_f46_numbers_and_small_arrays_of_them_count_for_the_bound(size):
    part = list(range(size))
    topics = [
        OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=part)
        for _ in range(2_000_000 // size)
    ]
    raw = request_bytes(OffsetFetchRequest(group_id="g", topics=topics), 5)
    count_slices(9, 5, raw)
    with pytest.raises(WireError, match="more than 100000 elements"):
        count_slices(9, 5, raw, codec.MAX_ELEMENTS)


def test_f46_what_is_read_in_one_go_has_few_elements():
    topics = [MetadataRequest.MetadataRequestTopic(name="x") for _ in range(25_000)]
    with pytest.raises(WireError, match="more than 20000 elements"):
        codec.decode_request(3, 8, request_bytes(MetadataRequest(topics=topics), 8))
    raw = request_bytes(MetadataRequest(topics=topics[:19_000]), 8)
    assert codec.decode_request(3, 8, raw).topics == topics[:19_000]


def test_f46_brokers_with_very_many_partitions_may_still_fetch():
    parts = [FetchRequest.FetchPartition(partition=i) for i in range(60_000)]
    message = FetchRequest(topics=[FetchRequest.FetchTopic(topic="t", partitions=parts)])
    assert codec.decode_request(1, 12, request_bytes(message, 12)) == message


# -- tagged fields ------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "version"), [(0, 9), (1, 12)])  # without known ones, and with
def test_f46_very_many_tagged_fields_are_refused_before_they_are_looked_at(key, version):
    body = request_bytes(codec.request_class(key)(), version)
    assert body[-1:] == b"\x00"
    for count, is_read in ((100, True), (200, False)):
        fields = b"".join(bytes([n % 100 + 20, 0]) for n in range(count))
        raw = body[:-1] + primitives.uvarint(count) + fields
        if is_read:
            codec.decode_request(key, version, raw)
        else:
            with pytest.raises(WireError):
                codec.decode_request(key, version, raw)


def test_unknown_tagged_fields_are_skipped_where_none_are_known():
    raw = request_bytes(produce(b"abc"), 9)
    assert raw[-1:] == b"\x00"
    tagged = raw[:-1] + b"\x02" + b"\x05\x03xyz" + b"\x87\x01\x00"
    assert codec.decode_request(0, 9, tagged) == codec.decode_request(0, 9, raw)


def test_unknown_tagged_fields_are_skipped_beside_known_ones():
    request = FetchRequest(cluster_id="c", max_wait_ms=5)
    raw = request_bytes(request, 12)
    at = raw.index(b"\x01\x00\x02\x02c")  # one tagged field: tag 0, two bytes, "c"
    tagged = raw[:at] + b"\x02" + raw[at + 1 :] + b"\x63\x04what"
    assert codec.decode_request(1, 12, tagged) == request


def test_a_known_tagged_field_of_another_length_is_refused():
    raw = request_bytes(FetchRequest(cluster_id="c"), 12)
    with pytest.raises(WireError):
        codec.decode_request(1, 12, raw.replace(b"\x01\x00\x02\x02c", b"\x01\x00\x03\x02c"))


def test_tagged_fields_are_written_only_when_set():
    partition = FetchResponse.PartitionData(records=b"")
    topic = FetchResponse.FetchableTopicResponse(partitions=[partition])
    response = FetchResponse(responses=[topic])
    short = len(response_bytes(response, 16))
    partition.current_leader.leader_id = 4
    assert len(response_bytes(response, 16)) == short + 2 + 9  # tag, size, two int32 and tags
    back = codec.decode_response(1, 16, response_bytes(response, 16))
    assert back.responses[0].partitions[0].current_leader.leader_id == 4


# -- hot paths ----------------------------------------------------------------------------------


def test_compiled_functions_are_kept():
    assert codec.request_readers[0, 9] is codec.request_readers[0, 9]
    assert codec.response_writers[0, 9] is codec.response_writers[0, 9]
    parts = []
    codec.response_writers[0, 9](ProduceResponse(throttle_time_ms=5), parts)
    message, end = codec.response_readers[0, 9](memoryview(b"".join(parts)), 0)
    assert (message.throttle_time_ms, end) == (5, len(b"".join(parts)))


def test_a_body_may_start_anywhere_in_the_frame():
    raw = b"header" + request_bytes(produce(b"abc"), 9)
    assert codec.decode_request(0, 9, raw, 6).topic_data[0].name == "events"


def test_knowing_the_apis_loads_no_message_and_one_message_no_other():
    code = (
        "import sys; from ottla.wire import codec; len(codec.APIS); import ottla.wire.headers;"
        "print([m for m in sys.modules if m.startswith('ottla.wire.messages.')]);"
        "from ottla.wire.messages.cluster import MetadataRequest;"
        "import ottla.wire.messages.cluster as cluster;"
        "print([name for name in vars(cluster) if name.endswith(('Request', 'Response'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "['MetadataRequest']"]


# -- in slices ----------------------------------------------------------------------------------


def drained(steps):
    """Return what a generator returns, and how often it yielded."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


@pytest.mark.parametrize("version", [4, 5, 7, 8])
def test_a_large_request_is_read_and_written_in_slices_with_the_same_bytes(version):
    states = [
        UpdateMetadataRequest.UpdateMetadataPartitionState(
            topic_name="" if version > 4 else "t",
            partition_index=i, leader=i % 7, isr=[1, 2], replicas=[1, 2, 3],
        )
        for i in range(3000)
    ]  # fmt: skip
    request = UpdateMetadataRequest(controller_id=4)
    if version < 5:
        request.ungrouped_partition_states = states
    else:
        topic = UpdateMetadataRequest.UpdateMetadataTopicState
        request.topic_states = [
            topic(topic_name="t", partition_states=states[:1000]),
            topic(topic_name="u", partition_states=states[1000:]),
        ]
    whole = request_bytes(request, version)
    parts, pauses = drained(codec.encode_in_slices(request, version))
    assert b"".join(parts) == whole
    assert pauses == 5
    again, pauses = drained(codec.decode_request_in_slices(6, version, memoryview(whole)))
    assert again == request
    assert pauses == 5


def test_reading_in_slices_refuses_what_reading_at_once_refuses():
    request = UpdateMetadataRequest(
        topic_states=[UpdateMetadataRequest.UpdateMetadataTopicState(topic_name="t")]
    )
    whole = request_bytes(request, 8)
    for bad in (whole[:-1], whole + b"\0", whole[:12]):
        with pytest.raises(WireError):
            drained(codec.decode_request_in_slices(6, 8, memoryview(bad)))
    _, pauses = drained(
        codec.decode_request_in_slices(6, 8, memoryview(whole + b"\0"), rest_ok=True)
    )
    assert pauses == 0
    with pytest.raises(WireError):
        drained(codec.encode_in_slices(UpdateMetadataRequest(controller_id="x"), 8))
