"""One ordered line per broker, until delivered or gone."""

import asyncio

from ottla.controller import channels
from ottla.controller.batch import STOP_REPLICA, UPDATE_METADATA, Outgoing
from ottla.controller.channels import Channels
from ottla.model.cluster import BrokerInfo, Endpoint
from ottla.model.errors import ConnectionLostError, WireError
from ottla.model.ids import TopicPartition

BROKER = BrokerInfo(1, (Endpoint("h", 1),))


class Line:
    """A broker that fails as often as the test sets."""

    def __init__(self, refuse=0, lose=0):
        self.refuse, self.lose = refuse, lose
        self.got, self.answered, self.behind, self.opened = [], [], [], 0
        self.closed = False
        self.channels = Channels(
            self.connect,
            "PLAINTEXT",
            1.0,
            lambda request, answer: self.answered.append((request.summary, answer)),
            self.behind.append,
        )

    async def connect(self, endpoint):
        if self.refuse:
            self.refuse -= 1
            raise ConnectionLostError("refused")
        self.opened += 1
        self.closed = False
        return self

    def send_encoded(self, api_key, version, body, timeout_s):
        future = asyncio.get_running_loop().create_future()
        self.got.append(bytes(body[0]))
        if self.lose:
            self.lose -= 1
            self.closed = True
            future.set_exception(ConnectionLostError("lost"))
        else:
            future.set_result(len(self.got))
        return future

    def close(self):
        self.closed = True


def request(name, broker=1, api=UPDATE_METADATA, deletes=frozenset()):
    return Outgoing(broker, api, 8, lambda: [name.encode()], 1, name, deletes)


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


def run(story, monkeypatch):
    monkeypatch.setattr(channels, "RETRY_BACKOFF_S", 0.0)
    asyncio.run(story())


def test_requests_arrive_in_order_and_one_at_a_time(monkeypatch):
    async def story():
        line = Line()
        line.channels.add(BROKER)
        for name in "abc":
            line.channels.send(request(name))
        await until(lambda: len(line.answered) == 3)
        assert line.got == [b"a", b"b", b"c"]
        assert [n for n, _ in line.answered] == ["a", "b", "c"]
        assert line.opened == 1
        line.channels.close()

    run(story, monkeypatch)


def test_a_lost_request_is_sent_again_before_the_next(monkeypatch):
    async def story():
        line = Line(refuse=3, lose=2)
        line.channels.add(BROKER)
        line.channels.send(request("a"))
        line.channels.send(request("b"))
        await until(lambda: len(line.answered) == 2)
        assert line.got == [b"a", b"a", b"a", b"b"]
        line.channels.close()

    run(story, monkeypatch)


def test_a_broker_that_is_gone_gets_nothing_more(monkeypatch):
    async def story():
        line = Line(refuse=10**9)
        line.channels.add(BROKER)
        line.channels.send(request("a"))
        await asyncio.sleep(0)
        line.channels.remove(1)
        line.refuse = 0
        line.channels.send(request("b"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert line.got == []
        line.channels.close()

    run(story, monkeypatch)


def test_a_queue_too_long_keeps_deletions_and_requests_a_full_resync(monkeypatch):
    async def story():
        monkeypatch.setattr(channels, "MAX_QUEUED", 4)
        line = Line(refuse=10**9)
        line.channels.add(BROKER)
        line.channels.send(request("first"))
        await until(lambda: line.channels.statistics() == {1: 0})
        gone = frozenset({TopicPartition("t", 0)})
        line.channels.send(request("delete", api=STOP_REPLICA, deletes=gone))
        for i in range(9):
            line.channels.send(request(str(i)))
        assert line.channels.statistics()[1] <= 4
        line.refuse = 0
        await until(lambda: line.behind == [1] and line.channels.statistics() == {1: 0})
        assert b"delete" in line.got
        assert b"0" not in line.got
        line.channels.close()

    run(story, monkeypatch)


def test_a_request_that_cannot_be_encoded_does_not_stop_the_line(monkeypatch):
    async def story():
        line = Line()
        line.channels.add(BROKER)

        def fail():
            raise WireError("no such field")

        line.channels.send(Outgoing(1, UPDATE_METADATA, 8, fail, 1, "bad"))
        line.channels.send(request("good"))
        await until(lambda: line.answered)
        assert line.got == [b"good"]
        line.channels.close()

    run(story, monkeypatch)


def test_f15_a_request_without_a_response_is_sent_more_and_more_rarely(monkeypatch, caplog):
    """C5: it fails at the request and closes; ten times a second would keep it busy for ever."""
    pauses = []

    async def story():
        line = Line(lose=12)
        line.channels.add(BROKER)
        sleep = asyncio.sleep

        async def pause(delay_s):
            pauses.append(delay_s)
            await sleep(0)

        monkeypatch.setattr(channels.asyncio, "sleep", pause)
        line.channels.send(request("a"))
        line.channels.send(request("b"))
        async with asyncio.timeout(5):
            while len(line.answered) < 2:
                await sleep(0)
        line.channels.close()

    asyncio.run(story())
    assert pauses[:2] == [0.1, 0.1], "a connection that broke is tried again at once"
    assert pauses == sorted(pauses)
    assert pauses[-1] == 5.0
    said = [r for r in caplog.records if r.levelname == "ERROR"]
    assert len(said) == 1
    assert "no response to request" in said[0].message


def test_c3_a_queue_too_long_keeps_the_metadata_of_deleted_topics(monkeypatch):
    """It is not sent again: a full resync sends a broker what exists now."""

    async def story():
        monkeypatch.setattr(channels, "MAX_QUEUED", 4)
        line = Line(refuse=10**9)
        line.channels.add(BROKER)
        line.channels.send(request("first"))
        await until(lambda: line.channels.statistics() == {1: 0})
        line.channels.send(request("gone", deletes=frozenset({TopicPartition("t", 0)})))
        for i in range(9):
            line.channels.send(request(str(i)))
        line.refuse = 0
        await until(lambda: line.behind == [1] and line.channels.statistics() == {1: 0})
        assert b"gone" in line.got
        line.channels.close()

    run(story, monkeypatch)
