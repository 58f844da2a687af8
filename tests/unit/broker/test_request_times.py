"""What a request's time is made of, on a connection whose clock the test moves; the request log."""

import asyncio
import json
import logging
from types import SimpleNamespace

from ottla.broker.requests import request_log as request_log_module
from ottla.broker.requests.request_log import RequestLog, request_log
from ottla.broker.requests.request_times import FETCH, FETCH_CONSUMER, RequestTimes
from ottla.net.limits import FrameRules
from ottla.net.server import Server, ServerLimits
from ottla.wire.codec import encode_request, encode_response
from ottla.wire.headers import decode_request_header, encode_request_header, response_header
from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.messages.security import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    SaslAuthenticateRequest,
)

PRODUCE, METADATA = 0, 3


class Peer:
    """A connection's server, its transport, and a clock that stands until it is moved."""

    def __init__(self, log=None, **limits):
        self.now = 1000.0
        self.times = RequestTimes(lambda: self.now)
        self.times.each = log
        self.written = []

        async def make():
            server = Server(
                FakeWorld(self), "127.0.0.1", 0, self.dispatch, ServerLimits(**limits),
                sent=self.times.sent, rules=FrameRules(pipelined=b"\0\0"),
            )  # fmt: skip
            self.connection = server._new_connection()
            self.connection.connection_made(FakeTransport(self.written))
            self.connection._server.turn = SimpleNamespace(over=False)

        asyncio.run(make())
        self.responses = []

    def dispatch(self, conn, frame):
        timed = self.times.begin(int.from_bytes(frame[:2], "big"), conn, frame)
        self.now += 0.001  # what the handler takes
        response = self.responses.pop(0)
        self.times.returned(timed, conn)
        return response

    def receive(self, *keys):
        async def run():
            for key in keys:
                frame = key.to_bytes(2, "big") + b"\0\7" + b"\0\0\0\5" + b"\0\1x"
                data = len(frame).to_bytes(4, "big") + frame
                self.connection.get_buffer(-1)[: len(data)] = data
                self.connection.buffer_updated(len(data))

        asyncio.run(run())

    def complete(self, pending, turn_s=0.0):
        """Complete a response within a turn of the loop, which takes a while yet."""

        async def run():
            pending.complete([b"there"])
            self.now += turn_s

        asyncio.run(run())

    def of(self, kind):
        return [tuple(times) for times in self.times._kept.get(kind, ())]


class FakeWorld:
    def __init__(self, peer):
        self.clock = SimpleNamespace(monotonic=lambda: peer.now, slice_s=0.008)


class FakeTransport:
    def __init__(self, written):
        self.write = written.append
        self.writelines = written.extend

    def get_extra_info(self, _name):
        return ("127.0.0.1", 5)

    def set_write_buffer_limits(self, high):
        pass

    def get_write_buffer_size(self):
        return 0

    def pause_reading(self):
        pass

    resume_reading = pause_reading


def test_a_response_at_once_has_no_remote_time():
    peer = Peer()
    peer.responses = [[b"yes"]]
    peer.receive(METADATA)
    assert peer.written == [b"\0\0\0\3yes"]
    assert peer.of(METADATA) == [(0.0, 1.0, 0.0, 0.0, 0.0)]
    found = {name: figures["Max"] for _, name, figures in peer.times.figures()}
    assert found == {
        "TotalTimeMs": 1.0, "RequestQueueTimeMs": 0.0, "LocalTimeMs": 1.0, "RemoteTimeMs": 0.0,
        "ResponseQueueTimeMs": 0.0, "ResponseSendTimeMs": 0.0,
    }  # fmt: skip


def test_a_response_that_comes_later_is_timed_until_it_is_sent():
    peer = Peer()
    later = peer.connection.pending(pipelined=False)
    peer.responses = [later, [b"second"]]
    peer.receive(FETCH, METADATA)  # the second one waits for the first
    peer.now += 0.5
    assert list(peer.times.figures()) == []
    peer.complete(later, turn_s=0.25)
    assert peer.of(FETCH_CONSUMER) == peer.of(FETCH) == [(0.0, 1.0, 500.0, 251.0, 0.0)]
    assert peer.of(METADATA) == [(750.0, 1.0, 0.0, 0.0, 0.0)]


def test_a_response_waits_for_those_before_it():
    peer = Peer(max_pipelined=5)
    first, second = (peer.connection.pending(pipelined=True) for _ in range(2))
    peer.responses = [first, second, [b"third"]]
    peer.receive(PRODUCE, PRODUCE, PRODUCE)
    peer.complete(second)
    peer.now += 2.0
    peer.complete(first)
    assert b"".join(peer.written).count(b"there") == 2
    assert peer.written[-1].endswith(b"third")
    assert peer.of(PRODUCE) == [
        (0.0, 1.0, 2002.0, 0.0, 0.0),
        (0.0, 1.0, 1.0, 2000.0, 0.0),
        (0.0, 1.0, 0.0, 2000.0, 0.0),
    ]


def test_what_the_system_takes_for_a_response_is_told_apart_from_the_wait_for_it():
    peer = Peer()
    later = peer.connection.pending(pipelined=False)
    peer.responses = [later]
    peer.receive(FETCH)

    def write(data):
        peer.written.append(data)
        peer.now += 0.02

    peer.connection._transport.write = write
    peer.complete(later, turn_s=0.3)
    assert peer.of(FETCH) == [(0.0, 1.0, 0.0, 300.0, 20.0)]


def test_what_has_no_response_is_timed_and_who_is_gone_is_not():
    peer = Peer()
    later = peer.connection.pending(pipelined=True)
    peer.responses = [None, later]
    peer.receive(PRODUCE)
    assert peer.of(PRODUCE) == [(0.0, 1.0, 0.0, 0.0, 0.0)], "acks=0"
    peer.receive(PRODUCE)
    peer.connection.connection_lost(None)
    peer.complete(later)
    assert len(peer.of(PRODUCE)) == 1


def test_a_slow_request_is_told_with_what_it_waited_for(caplog):
    peer = Peer()
    peer.times.each = RequestLog(100, lambda: peer.now)
    with caplog.at_level(logging.INFO):
        for wait_s in (0.05, 0.3, 0.2, 0.4):
            later = peer.connection.pending(pipelined=True)
            peer.responses = [later]
            peer.receive(PRODUCE)
            peer.now += wait_s
            peer.complete(later)
        fetch = peer.connection.pending(pipelined=False)
        peer.responses = [fetch]
        peer.receive(FETCH)
        peer.now += 5.0
        peer.complete(fetch)
        later = peer.connection.pending(pipelined=True)
        peer.responses = [later]
        peer.receive(PRODUCE)
        peer.now += 0.2
        peer.complete(later)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        f"request slow api=Produce version=7 correlation_id=5 client_id='x' peer=127.0.0.1:5 "
        f"listener=PLAINTEXT principal=User:ANONYMOUS total_ms={ms + 1}.0 queue_ms=0.0 "
        f"local_ms=1.0 remote_ms={ms}.0 response_queue_ms=0.0 send_ms=0.0 unlogged={unlogged}"
        for ms, unlogged in ((300, 0), (200, 2))
    ], "a fetch that waits for records is not slow; a line a second"


def test_each_request_is_told_at_debug(caplog):
    assert request_log(0, lambda: 0.0) is None
    with caplog.at_level(logging.DEBUG, logger="ottla.broker.requests.request_log"):
        peer = Peer(log=request_log(0, lambda: 0.0, {"PLAINTEXT": "SSL"}))
        peer.responses = [[b"\0\0\0\5no response"]]
        peer.receive(METADATA)
    (record,) = caplog.records
    assert record.levelname == "DEBUG"
    event, _, text = record.getMessage().partition(":")
    assert event == record.event == "Completed request"
    told = json.loads(text)
    assert told["requestHeader"] == {
        "requestApiKey": 3, "requestApiVersion": 7, "correlationId": 5, "clientId": "x",
        "requestApiKeyName": "METADATA",
    }  # fmt: skip
    assert (told["request"], told["response"]) == ({}, {})
    assert [one.partition(",")[0] for one in told["cut"]] == [
        "request: not read", "response: not read",
    ]  # fmt: skip
    assert (told["totalTimeMs"], told["localTimeMs"]) == (1.0, 1.0)
    assert (told["securityProtocol"], told["principal"]) == ("SSL", "User:ANONYMOUS")


def noted(key, version, message, response=None):
    """Return what is told of a request, or of its response, and what is left out."""
    frame = encode_request_header(key, version, 5, "x") + b"".join(encode_request(message, version))
    header, pos = decode_request_header(memoryview(frame))
    cut = []
    if response is None:
        return request_log_module._request(header, memoryview(frame), pos, cut), cut
    parts = [response_header(key, version, 5), *encode_response(response, version)]
    return request_log_module._response(header, parts, cut), cut


def test_what_is_told_of_a_message_has_a_bound():
    named = MetadataRequest.MetadataRequestTopic
    many = [named(name=f"topic-{n}") for n in range(1500)]
    request, cut = noted(3, 12, MetadataRequest(topics=many))
    assert len(request["topics"]) == 1000
    assert cut == ["request: 500 elements after the first 1000"]
    request, cut = noted(3, 12, MetadataRequest(topics=many * 20))
    assert request == {}
    assert cut[0].startswith("request: all of its ")
    request, cut = noted(3, 12, MetadataRequest(topics=[named(name="n" * 3000)]))
    assert request["topics"][0]["name"] == "n" * 1000
    assert cut == ["request: the end of 1 long values"]


def test_records_are_told_by_their_size():
    r = ProduceRequest
    data = r.PartitionProduceData(index=0, records=bytes(3 << 20))
    topics = [r.TopicProduceData(name="t", partition_data=[data])]
    message = r(acks=1, timeout_ms=1, topic_data=topics)
    request, cut = noted(0, 9, message)
    (partition,) = request["topicData"][0]["partitionData"]
    assert partition == {"index": 0, "recordsSizeInBytes": 3 << 20}
    assert not cut
    data.records = bytes(5 << 20)
    request, cut = noted(0, 9, message)
    assert request == {}
    assert len(cut) == 1


def test_no_secret_is_told():
    d = DescribeDelegationTokenResponse
    token = d.DescribedDelegationToken(
        principal_type="User", principal_name="u", token_id="t", hmac=b"secret"
    )
    told, _ = noted(41, 3, DescribeDelegationTokenRequest(owners=[]), d(tokens=[token]))
    assert told["tokens"][0]["hmac"] == "[hidden]"
    told, _ = noted(36, 2, SaslAuthenticateRequest(auth_bytes=b"\0u\0secret"))
    assert told == {"authBytes": "[hidden]"}


def test_without_a_log_nothing_is_kept_of_a_request():
    peer = Peer()
    later = peer.connection.pending(pipelined=False)
    peer.responses = [later]
    peer.receive(FETCH)
    timed = later.timed
    peer.complete(later)
    assert (timed.noted, timed.parts, timed.keeps_response) == (None, None, False)
