"""ListOffsets by time is looked up by workers (F46); answers are those of a plain list of records.

What the event loop reads and decompresses is counted, not timed.
"""

import asyncio
import random
from types import SimpleNamespace

import pytest

from ottla.broker.requests.records import offsets
from ottla.log.files import OsFiles
from ottla.log.recovery import Known
from ottla.model.config import default_topic_config
from ottla.model.errors import ErrorCode, NotLeaderError
from ottla.model.ids import TopicPartition
from ottla.replication.replica_manager import DiskReads
from ottla.wire import compression
from ottla.wire.codec import decode_response
from ottla.wire.headers import RequestHeader, decode_response_header
from ottla.wire.messages.records import ListOffsetsRequest
from ottla.wire.records import Record
from support.logs import HandClock, file_world, framed, open_log
from support.metered import MeteredFiles

TP = TopicPartition("t", 0)
VERSION = 7
MAX_TIMESTAMP = -3


class Watched(MeteredFiles):
    """Counts the jobs of workers, too, and calls `between` after each."""

    def __init__(self):
        super().__init__(OsFiles())
        self.jobs = 0
        self.between = lambda: None

    async def run(self, function, *args):
        await asyncio.sleep(0)
        self.jobs += 1
        try:
            return self.work(function, *args)
        finally:
            self.between()


class Scene:
    """A partition led here, with a log of compressed batches in several segments."""

    def __init__(self, folder, monkeypatch):
        self.watched = Watched()
        self.world = file_world(HandClock(), self.watched)
        self.folder = str(folder)
        config = default_topic_config()
        self.log = open_log(TP, self.folder, config, self.world, Known(fresh=True))
        self.records = []
        plain = compression.decompress

        def decompress(codec, data, most):
            if codec:
                self.watched.count(b"x" * 1000)
            return plain(codec, data, most)

        monkeypatch.setattr(compression, "decompress", decompress)
        self.error = None

    def fill(self):
        chance = random.Random(5)
        for batch in range(60):
            made = [
                Record(timestamp=1000 + 20 * batch + chance.randrange(100), value=b"v" * 300)
                for _ in range(10)
            ]
            at = self.log.log_end_offset
            self.records += [(r.timestamp, at + i) for i, r in enumerate(made)]
            self.log.append_as_leader(framed(made, codec=4), 3, 0)
            if batch % 10 == 9:
                self.log.roll()
        self.log.set_high_watermark(self.log.log_end_offset)

    def reopen(self):
        end = self.log.log_end_offset
        self.log.close()
        config = default_topic_config()
        known = Known(clean=True, recovery_point=end)
        self.log = open_log(TP, self.folder, config, self.world, known)
        self.log.set_high_watermark(end)

    def local_log(self, epoch, *, leader_only):
        if self.error is not None:
            raise self.error
        return self.log

    def ask(self, timestamp):
        r = ListOffsetsRequest
        part = r.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = r(replica_id=-1, topics=[r.ListOffsetsTopic(name="t", partitions=[part])])
        partition = SimpleNamespace(
            tp=TP,
            state=SimpleNamespace(epoch_start=0, leader_epoch=3),
            log=self.log,
            local_log=self.local_log,
        )
        replicas = SimpleNamespace(
            hosted=lambda _topic, _index: partition, disk_reads=DiskReads(self.watched)
        )
        server = SimpleNamespace(replicas=replicas, world=self.world)
        header = RequestHeader(2, VERSION, 1, "c")

        async def go():
            outcome = offsets.handle(server, None, header, request)
            return await outcome if asyncio.iscoroutine(outcome) else outcome

        parts = asyncio.run(asyncio.wait_for(go(), 20))
        whole = memoryview(b"".join(parts))
        _, at = decode_response_header(2, VERSION, whole)
        (topic,) = decode_response(2, VERSION, whole, at).topics
        (answer,) = topic.partitions
        return answer

    def expected(self, timestamp):
        """Search a plain list: the first record in the log that is at least as young."""
        return next(((t, o) for t, o in self.records if t >= timestamp), (-1, -1))


@pytest.fixture
def scene(tmp_path, monkeypatch):
    made = Scene(tmp_path, monkeypatch)
    made.fill()
    made.watched.by_loop = 0
    return made


@pytest.mark.parametrize("cold", [False, True])
def test_f46_the_event_loop_reads_and_decompresses_nothing_to_find_a_time(scene, cold):
    if cold:
        scene.reopen()
        scene.watched.by_loop = 0
    for timestamp in (0, 1000, 1555, 2000, 2239, 2300, 9999):
        answer = scene.ask(timestamp)
        assert (answer.timestamp, answer.offset) == scene.expected(timestamp)
    youngest = max(t for t, _ in scene.records)
    answer = scene.ask(MAX_TIMESTAMP)
    assert (answer.timestamp, answer.offset) == scene.expected(youngest)
    assert scene.watched.by_loop == 0
    assert scene.watched.jobs


def test_f46_a_search_begins_again_when_the_log_is_truncated_meanwhile(scene):
    def truncate():
        scene.watched.between = lambda: None
        scene.log.truncate_to(200)
        scene.records = [(t, o) for t, o in scene.records if o < 200]

    scene.watched.between = truncate
    answer = scene.ask(1395)
    assert (answer.timestamp, answer.offset) == scene.expected(1395)


def test_f46_a_broker_that_leads_no_more_after_the_search_responds_with_the_error(scene):
    def lose():
        scene.error = NotLeaderError("t-0 is not led here")

    scene.watched.between = lose
    assert scene.ask(1500).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_f46_the_latest_offset_is_sent_at_once(scene):
    answer = scene.ask(-1)
    assert answer.offset == scene.log.log_end_offset
    assert (scene.watched.jobs, scene.watched.by_loop) == (0, 0)
