"""The replay's plain parts: settings, the offset map, a group's offsets translated."""

import asyncio

import pytest

from ottla.client.transactional_producer import Encoded, TransactionalProducer
from ottla.model import durable_files
from ottla.model.errors import ConfigError, ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.pipelines.config import read_config
from ottla.pipelines.replaying import offset_map
from ottla.pipelines.replaying.settings import Settings
from ottla.pipelines.replaying.translating import Run, translated
from ottla.wire.messages.records import ProduceResponse
from support.fake_client import FakeClient


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


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("replay.topic=a b", "is no name of a topic"),
        ("replay.job=a/b", "part of a topic's name"),
        ("replay.start=soon", "is not a time"),
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
