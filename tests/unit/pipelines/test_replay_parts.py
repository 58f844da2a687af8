"""The replay's plain parts: coordinates, bytes, plans, what differs, the offset map."""

import asyncio

import msgspec
import pytest

from ottla.client.transactional_producer import Encoded, TransactionalProducer
from ottla.model import durable_files
from ottla.model.errors import ConfigError, ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.pipelines.config import read_config
from ottla.pipelines.landing.spans import Span
from ottla.pipelines.replaying import comparing, offset_map, origins, progress
from ottla.pipelines.replaying.comparing import DIFFERS, DOUBLED, FOREIGN, MISSING
from ottla.pipelines.replaying.encoding import Lane, encoded_body, encoded_headers, raw_records
from ottla.pipelines.replaying.origins import Origin
from ottla.pipelines.replaying.plan import mapped, next_round
from ottla.pipelines.replaying.settings import Settings
from ottla.pipelines.replaying.sums import content_hash
from ottla.pipelines.replaying.translating import Run, translated
from ottla.wire.batch_header import LOG_APPEND_TIME
from ottla.wire.messages.records import ProduceResponse
from ottla.wire.records import (
    Record,
    build_batch,
    frame_batch,
    iter_records,
    parse_batch_header,
    read_payload,
)
from support.batches import validate_batch
from support.fake_client import FakeClient

ORIGIN = Origin("c1uster", "orders", "dkmKQ9OgRhCSi52cLfvKsw", 3, 12345)


def test_an_origin_is_read_as_it_was_written():
    value = origins.value_of(ORIGIN)
    assert value == b"c1uster;orders;dkmKQ9OgRhCSi52cLfvKsw;3;12345"
    assert origins.parse(value) == ORIGIN
    for other in (None, b"", b"a;b;c;1", b"a;b;c;x;1", b"a;b;c;1;2;3", b"\xff;b;c;1;2"):
        assert origins.parse(other) is None
    headers = [("h", b"1"), (origins.HEADER, value), (origins.HEADER, b"no"), ("z", None)]
    assert origins.chain(headers) == [ORIGIN]


RECORDS = [
    Record(timestamp=1_000, key=b"k", value=b"v", headers=(("a", b"1"), ("b", None), ("a", b""))),
    Record(timestamp=900, key=None, value=b"", headers=()),
    Record(timestamp=5_000_000_000, key=b"", value=None, headers=(("\udcff\udcfe", b"\xff"),)),
    Record(timestamp=-1, key=b"x" * 70, value=b"y" * 9000, headers=(("n" * 65, b"z" * 300),)),
]


@pytest.mark.parametrize("codec", range(5))
def test_records_arrive_as_they_were_with_one_header_more(codec):
    batch = build_batch(RECORDS, base_offset=40, codec=codec)
    header = parse_batch_header(batch)
    lane = Lane()
    raw = list(raw_records(header, read_payload(header, batch)))
    assert [r.offset for r in raw] == [40, 41, 42, 43]
    for one in raw:
        lane.append(one, b"src;%d" % one.offset)
    taken = lane.taken()
    assert lane.batch.count == 0
    out = frame_batch(
        taken.payload, count=taken.count, last_offset_delta=taken.count - 1,
        base_timestamp=taken.base_timestamp, max_timestamp=taken.max_timestamp, codec=codec,
        producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True,
    )  # fmt: skip
    validate_batch(out, 0, parse_batch_header(out))
    assert parse_batch_header(out).max_timestamp == 5_000_000_000
    for n, (before, after) in enumerate(zip(RECORDS, iter_records(out), strict=True)):
        assert after.headers == (*before.headers, (origins.HEADER, b"src;%d" % (40 + n)))
        assert after[1:4] == before[1:4]
        assert origins.encoded_headers(encoded_headers(list(after.headers))) == list(after.headers)
        assert raw[n].body == encoded_body(before.key, before.value)


def test_the_time_of_the_log_is_the_time_that_is_kept():
    batch = build_batch(RECORDS[:2], timestamp_type=LOG_APPEND_TIME, log_append_time=77)
    header = parse_batch_header(batch)
    assert [r.timestamp for r in raw_records(header, read_payload(header, batch))] == [77, 77]


def test_partitions_are_mapped_or_refused():
    same = mapped("same", (0, 1), (0, 1, 2))
    assert [same.of(p, b"k") for p in (0, 1)] == [0, 1]
    by_key = mapped("key", (0, 5), (0, 1, 2))
    # UtilsTest of Kafka: murmur2 of "21" is -973932308
    assert (by_key.of(0, b"21"), by_key.of(5, None)) == ((-973932308 & 0x7FFFFFFF) % 3, 2)
    table = mapped({"0": 2, "1": 2}, (0, 1), (0, 1, 2))
    assert [table.of(p, b"k") for p in (0, 1)] == [2, 2]
    with pytest.raises(ConfigError, match="the target has 2 partitions, records would go to"):
        mapped("same", (0, 1, 2), (0, 1))
    with pytest.raises(ConfigError, match="says nothing of the source's 1"):
        mapped({"0": 0}, (0, 1), (0, 1))


def test_a_round_takes_what_waits_and_no_more():
    assert next_round({0: 5, 1: 9}, {0: 5, 1: 9}, 10) == {}
    assert next_round({0: 5, 1: 9}, {0: 7, 1: 9}, 10) == {0: Span(5, 7)}
    found = next_round({0: 0, 1: 0}, {0: 900, 1: 100}, 100)
    assert found == {0: Span(0, 90), 1: Span(0, 10)}
    assert next_round({0: 8}, {0: 5}, 10) == {}


def test_each_kind_of_finding():
    should = [(0, o, o * 10, None) for o in range(5, 10)]
    there = [
        (0, 5, 50, (1, 100)),
        (0, 6, 60, (1, 101)), (0, 6, 60, (2, 7)),
        (0, 7, 71, (1, 102)),
        (0, 9, 90, (1, 103)),
        (0, 2, 20, (1, 104)),
        (0, 12, 12, (1, 105)),
        (4, 0, 1, (1, 106)),
    ]  # fmt: skip
    found = comparing.findings(should, there, {0: Span(5, 10)})
    assert [(f.kind, f.partition, f.offset) for f in found] == [
        (DOUBLED, 0, 2), (DOUBLED, 0, 6), (DIFFERS, 0, 7), (MISSING, 0, 8), (FOREIGN, 0, 12),
        (DOUBLED, 4, 0),
    ]  # fmt: skip
    assert str(found[1]) == "record 0:6 of the source: doubled (target 1:101, 2:7)"
    assert comparing.findings(should[:1], there[:1], {0: Span(5, 10)}) == []


def test_blocks_differ_where_a_record_does():
    def block(*hashes):
        total = 0
        for one in hashes:
            total ^= one
        return {(0, 0): (len(hashes), total)}

    a, b, c = (content_hash(0, n, b"k", b"v", [], 1) for n in range(3))
    assert comparing.different(block(a, b), comparing.merged([block(b), block(a)])) == []
    for there in (block(a), block(a, b, b), block(a, c), block(a, a), {}):
        assert comparing.different(block(a, b), there) == [(0, 0)]


def test_a_hash_tells_all_that_has_to_arrive():
    first = content_hash(0, 1, b"k", b"v", [("h", b"1")], 5)
    others = [
        (1, 1, b"k", b"v", [("h", b"1")], 5), (0, 2, b"k", b"v", [("h", b"1")], 5),
        (0, 1, None, b"v", [("h", b"1")], 5), (0, 1, b"kv", b"", [("h", b"1")], 5),
        (0, 1, b"k", None, [("h", b"1")], 5), (0, 1, b"k", b"v", [("h", None)], 5),
        (0, 1, b"k", b"v", [("h", b"1"), ("h", b"1")], 5), (0, 1, b"k", b"v", [], 5),
        (0, 1, b"k", b"v", [("h", b"1")], 6), (0, 1, b"", b"v", [("h", b"1")], 5),
    ]  # fmt: skip
    assert len({first, *(content_hash(*other) for other in others)}) == 1 + len(others)


def test_runs_go_on_over_the_bounds_of_tasks():
    runs = [(1, 0, 10, 5, 3), (1, 0, 13, 8, 2), (1, 0, 16, 10, 1), (2, 0, 13, 8, 1)]
    assert comparing.joined(reversed(runs)) == [
        (1, 0, 10, 5, 5), (1, 0, 16, 10, 1), (2, 0, 13, 8, 1),
    ]  # fmt: skip


def test_a_group_goes_on_where_it_misses_nothing():
    runs = [
        Run(0, 0, 9, 0, 100, 109), Run(0, 20, 29, 0, 110, 119),
        Run(1, 0, 4, 0, 120, 124), Run(1, 5, 9, 1, 0, 4),
    ]  # fmt: skip
    assert translated(runs, {0: 0}) == {0: 100}
    assert translated(runs, {0: 7}) == {0: 107}
    assert translated(runs, {0: 10}) == {0: 110}, "the next record that was copied"
    assert translated(runs, {0: 25}) == {0: 115}
    assert translated(runs, {0: 30}) == {0: 120}, "all read: behind the last"
    assert translated(runs, {1: 5}) == {0: 125, 1: 0}
    assert translated(runs, {0: 30, 1: 2}) == {0: 120, 1: 0}, "the smaller of both"
    assert translated(runs, {7: 1}) == {}


def test_an_offset_map_whose_beginning_was_cut_short_is_begun_anew(tmp_path, monkeypatch):
    """By a kill, or by a full disk, which is one line that names the folder."""
    folder = tmp_path / "map"

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(durable_files, "sync", full)
        with pytest.raises(OttlaError, match=f"offset_map {folder}: No space left on device"):
            offset_map.open_folder(folder, "job", "c;t;id", "target")
    assert not list(folder.iterdir())
    durable_files.unfinished(folder / offset_map.OWNER).write_bytes(b"{")  # by a kill
    assert not offset_map.refuse_other(folder, "job", "c;t;id", "target")
    offset_map.open_folder(folder, "job", "c;t;id", "target")
    assert offset_map.refuse_other(folder, "job", "c;t;id", "target")


def test_an_offset_map_is_its_jobs_alone(tmp_path):
    folder = tmp_path / "map"
    offset_map.open_folder(folder, "job", "c;t;id", "target")
    offset_map.open_folder(folder, "job", "c;t;id", "target")
    assert offset_map.write(folder, 0, [(1, 0, 10, 5, 3), (1, 0, 16, 10, 1)]) == 2
    assert offset_map.write(folder, 1, []) == 0
    found = offset_map.read(folder).to_pylist()
    assert [tuple(row[c] for c in offset_map.COLUMNS) for row in found] == [
        (0, 5, 7, 1, 10, 12), (0, 10, 10, 1, 16, 16),
    ]  # fmt: skip
    assert offset_map.complete(folder, 2)
    assert not offset_map.complete(folder, 3)
    for owner in (("other", "c;t;id", "target"), ("job", "c;t;id", "new")):
        with pytest.raises(OttlaError, match="map of another job"):
            offset_map.open_folder(folder, *owner)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(OttlaError, match="give a folder of its own"):
        offset_map.open_folder(tmp_path / "full", "job", "c;t;id", "target")


def test_progress_is_read_as_it_was_written():
    notes = progress.Checked(checks=2, source={0: 5, 11: 7}, target={3: 1})
    found = {progress.CHECKED: (msgspec.json.encode(notes), 9)}
    assert progress.decoded(found, progress.CHECKED, progress.Checked) == notes
    assert progress.decoded(found, progress.JOB, progress.Binding) is None
    with pytest.raises(OttlaError, match="progress cannot be read"):
        progress.decoded({b"job": (b"{}", 1)}, progress.JOB, progress.Binding)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("replay.topic=a b", "is no name of a topic"),
        ("replay.job=a/b", "part of a topic's name"),
        ("replay.start=soon", "is no time"),
        ("replay.end=earliest", "end cannot be earliest"),
        ('replay.start={"x" = 1}', "is no partition and number"),
        ("replay.transform={offset = '1'}", "is none of key, value, headers, timestamp"),
        ("replay.partitions=random", 'write "same", "key" or a table'),
        ("replay.batch_records=0", "must be at least 1"),
        ("replay.colour=red", "there is no setting `colour`"),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting, said):
    sets = ["source.bootstrap_servers=x:1", "replay.topic=t", setting]
    with pytest.raises(ConfigError) as caught:
        read_config(None, sets, Settings)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


class Answering(FakeClient):
    """A leader that answers each batch with the next of some (error, offset, time)."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def leader(self, *_tp):
        return 1

    async def metadata(self, _topics):
        return None

    async def call(self, _request, _leader, **_):
        code, offset, ms = self.answers.pop(0)
        one = ProduceResponse.PartitionProduceResponse(
            index=0, error_code=code, base_offset=offset, log_append_time_ms=ms
        )
        topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[one])
        return ProduceResponse(responses=[topic])


def sent(*answers):
    """Send a batch of the time 1000 to that leader; return its first offset."""
    client = Answering(*answers)
    writer = TransactionalProducer(client, "id", patience_s=1, request_timeout_s=1)
    writer._added.add(TopicPartition("t", 0))
    return asyncio.run(writer.send(TopicPartition("t", 0), Encoded(bytearray(b"x"), 1, 900, 1000)))


def test_a_batch_that_a_broker_has_already_is_answered_with_its_own_time():
    """So do Kafka's brokers and ours, where the answer to the first attempt was lost."""
    assert sent((0, 7, -1)) == 7
    assert sent((ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1), (0, 7, 1000)) == 7
    with pytest.raises(ConfigError, match="sets timestamps itself"):
        sent((0, 7, 1795451116328))
