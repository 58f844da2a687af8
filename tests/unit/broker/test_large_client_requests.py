"""F46: a client's request about very many things is read, handled and answered in slices.

What a handler is given at once is counted, and so are the turns of the event loop; answers are
compared with those to the whole request.
"""

import asyncio
import functools
from collections import Counter
from types import SimpleNamespace

import pytest
from msgspec import structs

from ottla.broker.requests.error_counts import ErrorCounts
from ottla.broker.requests.large_requests import MOST, NOTICEABLE_BYTES
from ottla.broker.requests.records import offsets
from ottla.broker.requests.responses import respond
from ottla.broker.requests.router import LARGE_FRAME_BYTES, Router
from ottla.broker.requests.routes import ROUTES
from ottla.broker.requests.transactions import producer_transactions
from ottla.broker.tasks import Tasks
from ottla.model.errors import ErrorCode, OttlaError, UnknownTopicError
from ottla.net.connection import CloseConnection
from ottla.wire.codec import (
    APIS,
    decode_response,
    encode_request,
    request_class,
    response_class,
)
from ottla.wire.headers import RequestHeader, decode_response_header, encode_request_header
from ottla.wire.messages.groups import DescribeGroupsRequest
from ottla.wire.messages.records import ListOffsetsRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.messages.transactions import AddPartitionsToTxnRequest
from ottla.wire.portions import InPortions, Joined, cut

CUT = [
    (key, APIS[key].max_version) for key, api in ROUTES.items() if isinstance(api.large, InPortions)
]
CUT += [(9, 7), (20, 5), (10, 4)]
REFUSAL = OttlaError("", ErrorCode.NOT_CONTROLLER)


def shape_of(key, version):
    return ROUTES[key].large.shape(version)


def error_response(key, version, request, error):
    return ROUTES[key].error_response(request, version, error)


def on_a_loop(test):
    @functools.wraps(test)
    def run(**given):
        asyncio.run(asyncio.wait_for(test(**given), 60))

    return run


def about(key, version, counts):
    """Return a request about different things: so many at each level of its lists."""
    path = shape_of(key, version).asked

    def filled(struct, number):
        item = struct.made()
        for field in struct.fields:
            if field.present(version) and not field.array:
                if field.type == "string":
                    setattr(item, field.name, f"n{number}")
                elif field.type == "int32":
                    setattr(item, field.name, number)
                elif field.type == "int64":
                    setattr(item, field.name, number)
                    break
        return item

    def fill(holder, layout, depth):
        field = next(f for f in layout.fields if f.name == path[depth] and f.present(version))
        if field.struct is None:
            text = field.type == "string"
            made = [f"n{i}" if text else i for i in range(counts[depth])]
        else:
            made = [filled(field.struct, i) for i in range(counts[depth])]
            if depth + 1 < len(path):
                for item in made:
                    fill(item, field.struct, depth + 1)
        setattr(holder, field.name, made)

    request = request_class(key)()
    fill(request, request.LAYOUT, 0)
    return request


def counts_for(key, version, total):
    depth = len(shape_of(key, version).asked)
    return {1: (total,), 2: (7, total // 7), 3: (3, 5, total // 15)}[depth]


def weigh(holder, path):
    inside = getattr(holder, path[0]) or []
    return len(inside) if len(path) == 1 else sum(weigh(item, path[1:]) or 1 for item in inside)


@pytest.mark.parametrize(("key", "version"), CUT)
def test_f46_portions_are_the_request_and_their_responses_the_response(key, version):
    shape = shape_of(key, version)
    request = about(key, version, counts_for(key, version, 1500))
    whole = error_response(key, version, request, REFUSAL)
    joined, total, portions = Joined(shape), 0, 0
    for portion in cut(request, shape, [100]):
        if portion is None:
            continue
        size = weigh(portion, shape.asked)
        assert 0 < size <= 100
        total, portions = total + size, portions + 1
        joined.add(error_response(key, version, portion, REFUSAL))
    assert total == weigh(request, shape.asked)
    assert portions >= 14
    if key == 34:  # a topic in several dirs has one entry
        names = [r.topic_name for r in joined.response.results]
        assert sorted(names) == sorted({r.topic_name for r in whole.results})
        told = [p for r in joined.response.results for p in r.partitions]
        asked = [p for r in whole.results for p in r.partitions]
        assert sorted(p.partition_index for p in told) == sorted(p.partition_index for p in asked)
        return
    assert joined.response == whole


def test_f46_topics_without_partitions_are_in_a_portion_too():
    request = about(2, 7, (3, 0))
    (portion,) = [p for p in cut(request, shape_of(2, 7), [100]) if p is not None]
    assert portion == request


def test_f46_a_request_for_all_topics_of_many_groups_is_kept():
    request = about(9, 9, (300, 0, 0))
    for group in request.groups[::2]:
        group.topics = None
    portions = [p for p in cut(request, shape_of(9, 9), [100]) if p is not None]
    assert len(portions) == 3
    assert [g for p in portions for g in p.groups] == request.groups


def test_f46_what_is_named_twice_stays_together_however_far_apart():
    names = [f"t{i}" for i in range(1000)] + ["t7", "t900"] + ["many"] * 1025
    topics = [CreateTopicsRequest.CreatableTopic(name=n) for n in names]
    shape = shape_of(19, 5)
    wanted, refused = [], []
    for portion in cut(CreateTopicsRequest(topics=topics), shape, [64]):
        if portion is not None:
            times = Counter(t.name for t in portion.topics)
            wanted += [t.name for t in portion.topics]
            refused += [t.name for t in portion.topics if times[t.name] > 1]
    times = Counter(names)
    assert Counter(wanted) == times
    assert Counter(refused) == Counter(n for n in names if times[n] > 1)


@pytest.mark.parametrize(
    ("key", "version"), [(3, 12), (9, 9), (9, 7), (15, 5), (42, 2), (61, 0), (65, 0)]
)
def test_f46_what_is_described_once_is_in_one_portion_however_often_it_is_named(key, version):
    request = about(key, version, counts_for(key, version, 300))
    path = shape_of(key, version).asked
    listed = getattr(request, path[0])
    named_again = request.__class__(**{path[0]: [*listed, *listed, *listed]})
    portions = [p for p in cut(named_again, shape_of(key, version), [50]) if p is not None]
    assert sum(weigh(p, path) for p in portions) == weigh(request, path)


class Client:
    """Stands for a connection: what a handler may ask of it, and the response that came."""

    def __init__(self):
        self.peer = ("127.0.0.1", 1)
        self.closed = False
        self.listener = "PLAINTEXT"
        self.parts = self.reason = None
        self.response_memory = SimpleNamespace(building=asyncio.Lock(), full=False)

    def pending(self, pipelined):
        return self

    def on_drop(self, callback):
        pass

    def complete(self, parts):
        self.parts = parts

    def fail(self, reason):
        self.reason = reason

    @property
    def done(self):
        return self.parts is not None or self.reason is not None

    def answer(self, key, version):
        whole = memoryview(b"".join(self.parts))
        return decode_response(key, version, whole, decode_response_header(key, version, whole)[1])


class Bench:
    """A router with one handler, and how much that was given in each turn of the event loop."""

    def __init__(self, key, handle=None):
        self.key = key
        self.turns = []
        self.server = SimpleNamespace(
            tasks=Tasks(), served=(), authorizer=None, quotas=SimpleNamespace(active=False)
        )
        self.router = Router(
            self.server, [structs.replace(ROUTES[key], handle=handle or self.refuse)]
        )

    def refuse(self, _server, _conn, header, request):
        shape = shape_of(header.api_key, header.api_version)
        self.turns[-1:] = [(self.turns or [0])[-1] + weigh(request, shape.asked)]
        return respond(header, error_response(self.key, header.api_version, request, REFUSAL))

    def dispatch(self, client, request, version):
        raw = encode_request_header(self.key, version, 1, "c")
        raw += b"".join(encode_request(request, version))
        return self.router.dispatch(client, memoryview(raw)), len(raw)

    async def until(self, *clients):
        for _ in range(50_000):
            if all(client.done for client in clients):
                return
            self.turns.append(0)
            await asyncio.sleep(0)
        raise AssertionError("no answer")


@pytest.mark.parametrize(
    ("key", "version", "total"), [(15, 5, 1000), (2, 5, 1000), (2, 5, 20_000), (3, 9, 20_000)]
)
@on_a_loop
async def test_f46_little_is_handled_in_one_turn_of_the_loop(key, version, total):
    bench, client = Bench(key), Client()
    request = about(key, version, counts_for(key, version, total))
    outcome, size = bench.dispatch(client, request, version)
    assert size > NOTICEABLE_BYTES
    assert (size > LARGE_FRAME_BYTES) == (total > 1000)
    assert outcome is client
    await bench.until(client)
    assert max(bench.turns) <= MOST
    assert client.answer(key, version) == error_response(key, version, request, REFUSAL)
    # What portions were answered counts once, with the whole response.
    counts = ErrorCounts()
    counts.count(RequestHeader(key, version, 1, "c"), client.answer(key, version))
    assert list(bench.router.errors.counts()) == list(counts.counts())


@on_a_loop
async def test_f46_large_requests_take_turns():
    bench, clients = Bench(15), [Client(), Client(), Client()]
    request = about(15, 5, (5000,))
    for client in clients:
        bench.dispatch(client, request, 5)
    await bench.until(*clients)
    assert max(bench.turns) <= MOST
    for client in clients:
        assert client.answer(15, 5) == error_response(15, 5, request, REFUSAL)


@on_a_loop
async def test_f46_a_request_about_a_few_things_is_handled_at_once():
    bench, client = Bench(2), Client()
    outcome, _ = bench.dispatch(client, about(2, 5, (4, 50)), 5)
    assert outcome is not client
    assert sum(bench.turns) == 200


@on_a_loop
async def test_f46_a_request_about_too_many_things_closes_its_connection():
    bench, client = Bench(15), Client()
    bench.dispatch(client, DescribeGroupsRequest(groups=["x"] * 210_000), 5)
    await bench.until(client)
    assert "more than 100000 elements" in client.reason
    assert not sum(bench.turns)


@on_a_loop
async def test_f46_no_further_portion_is_handled_for_a_client_that_is_gone():
    bench, client = Bench(15), Client()
    bench.dispatch(client, about(15, 5, (20_000,)), 5)
    while not sum(bench.turns):
        bench.turns.append(0)
        await asyncio.sleep(0)
    client.closed = True
    await bench.until(client)
    assert sum(bench.turns) < 10 * MOST
    assert client.reason == "the client is gone"


@on_a_loop
async def test_f46_a_handler_that_responds_later_is_waited_for():
    async def later(pending, parts):
        await asyncio.sleep(0.001)
        pending.complete(parts)

    tasks = []

    def handle(server, conn, header, request):
        pending = conn.pending(pipelined=False)
        parts = respond(header, error_response(8, header.api_version, request, REFUSAL))
        tasks.append(asyncio.ensure_future(later(pending, parts)))
        return pending

    bench, client = Bench(8, handle), Client()
    request = about(8, 8, (7, 400))
    bench.dispatch(client, request, 8)
    while not client.done:
        await asyncio.sleep(0.001)
    assert client.answer(8, 8) == error_response(8, 8, request, REFUSAL)
    assert len(tasks) > 5


@on_a_loop
async def test_f46_a_refusal_of_a_portion_closes_the_connection():
    def handle(server, conn, header, request):
        raise CloseConnection("not today")

    bench, client = Bench(15, handle), Client()
    bench.dispatch(client, about(15, 5, (5000,)), 5)
    await bench.until(client)
    assert client.reason == "not today"


@on_a_loop
async def test_f46_partitions_named_twice_in_a_large_list_offsets_are_refused():
    r = ListOffsetsRequest
    parts = [r.ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(3000)]
    parts += [r.ListOffsetsPartition(partition_index=i, timestamp=-1) for i in (5, 2000)]

    def hosted(topic, index):
        raise UnknownTopicError("")

    bench, client = Bench(2, offsets.handle), Client()
    bench.server.replicas = SimpleNamespace(hosted=hosted)
    bench.dispatch(client, r(replica_id=-1, topics=[r.ListOffsetsTopic("t", parts)]), 5)
    await bench.until(client)
    (topic,) = client.answer(2, 5).topics
    codes = Counter((p.partition_index, p.error_code) for p in topic.partitions)
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST
    expected = Counter({(i, unknown): 1 for i in range(3000) if i not in (5, 2000)})
    assert codes == expected + Counter({(5, invalid): 2, (2000, invalid): 2})


def test_f46_an_all_or_nothing_request_is_bounded():
    r = AddPartitionsToTxnRequest
    topic = r.AddPartitionsToTxnTopic(name="t", partitions=list(range(6000)))
    request = r(v3_and_below_transactional_id="x", v3_and_below_topics=[topic])
    header = SimpleNamespace(api_key=24, api_version=3, correlation_id=1, throttle_ms=0)
    with pytest.raises(CloseConnection, match="more than 5000 partitions"):
        producer_transactions.add_partitions(SimpleNamespace(), Client(), header, request)


def test_every_shape_is_of_lists_that_are_there():
    for key, version in CUT:
        shape = shape_of(key, version)
        for cls, path in (
            (request_class(key), shape.asked),
            (response_class(key), shape.responded),
        ):
            layout = cls.LAYOUT
            for name in path:
                field = next(f for f in layout.fields if f.name == name)
                assert field.array
                assert field.present(version), (key, version, name)
                layout = field.struct
