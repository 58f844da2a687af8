"""PeerConnection and Client, against small servers in a simulated network."""

import asyncio

import pytest

from ottla.client.client import Client, parse_bootstrap
from ottla.model.errors import (
    ConnectionLostError,
    ErrorCode,
    OttlaError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from ottla.net.peer import PeerConnection
from ottla.net.server import Server
from ottla.sim.world import Simulation
from ottla.wire.codec import decode_request, encode_response
from ottla.wire.headers import decode_request_header, response_header
from ottla.wire.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from ottla.wire.messages.groups import FindCoordinatorResponse
from ottla.wire.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
)

PORT = 9092


class Host:
    """A small broker. `answers` has its response by API key; it keeps the requests."""

    def __init__(self, simulation, broker_id, cluster):
        self.id = broker_id
        self.cluster = cluster
        self.node = simulation.node(f"b{broker_id}")
        self.asked = []
        self.highest_api_versions = 4
        self.answers = {18: self.api_versions, 3: self.metadata}
        self.node.boot(self.main)

    async def main(self, world):
        server = Server(world, "", PORT, self.dispatch)
        await server.start()
        await asyncio.Event().wait()

    def dispatch(self, connection, frame):
        header, pos = decode_request_header(frame)
        self.asked.append((header.api_key, header.api_version))
        if header.api_key == 18 and header.api_version > self.highest_api_versions:
            refusal = ApiVersionsResponse(
                error_code=35,
                api_keys=[
                    ApiVersionsResponse.ApiVersion(
                        api_key=18, min_version=0, max_version=self.highest_api_versions
                    )
                ],
            )
            return self.whole(header, refusal, 0)
        request = decode_request(header.api_key, header.api_version, frame, pos)
        answer = self.answers[header.api_key](connection, request)
        if answer is None or not hasattr(answer, "API_KEY"):
            return answer
        return self.whole(header, answer, header.api_version)

    def whole(self, header, answer, version):
        head = response_header(header.api_key, version, header.correlation_id)
        return [head, *encode_response(answer, version)]

    def api_versions(self, connection, request):
        ranges = {3: (0, 12), 18: (0, self.highest_api_versions), 19: (0, 5), 43: (0, 2)}
        ranges |= {60: (7, 9), 10: (0, 6)}
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(api_key=k, min_version=a, max_version=b)
                for k, (a, b) in ranges.items()
            ]
        )

    def metadata(self, connection, request):
        return MetadataResponse(
            controller_id=self.cluster["controller"],
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=i, host=self.cluster["hosts"].get(i, f"b{i}"), port=PORT
                )
                for i in self.cluster["alive"]
            ],
            topics=[
                MetadataResponse.MetadataResponseTopic(
                    name="t",
                    topic_id=self.cluster.get("topic_id", bytes(16)),
                    partitions=[
                        MetadataResponse.MetadataResponsePartition(
                            partition_index=p,
                            leader_id=n,
                            leader_epoch=self.cluster.get("epoch", 0),
                        )
                        for p, n in enumerate(self.cluster["leaders"])
                    ],
                )
            ],
        )


class Net:
    def __init__(self, seed=1, hosts=2):
        self.simulation = Simulation(seed)
        self.cluster = {"controller": 1, "alive": [0, 1], "leaders": [0, 1, -1]}
        self.cluster["hosts"] = {}
        self.hosts = [Host(self.simulation, i, self.cluster) for i in range(hosts)]
        self.node = self.simulation.node("client")
        self.simulation.run_for(0.1)

    def run(self, main):
        return self.node.call(main(self.node.world))

    def client(self, world):
        return Client(world, "b0:9092,b1:9092", timeout_s=5.0)


@pytest.fixture
def net():
    net = Net()
    yield net
    net.simulation.close()


async def open_peer(world, host="b0"):
    return await PeerConnection.open(world, host, PORT, "me", timeout_s=2.0)


def test_requests_are_pipelined_with_responses_in_order(net):
    async def main(world):
        peer = await open_peer(world)
        futures = [peer.send(MetadataRequest(topics=[]), v, 5.0) for v in (1, 9, 12, 0)]
        futures.append(peer.send(ApiVersionsRequest(), 0, 5.0))
        assert peer.in_flight == 5
        answers = await asyncio.gather(*futures)
        assert [type(a).__name__ for a in answers] == ["MetadataResponse"] * 4 + [
            "ApiVersionsResponse"
        ]
        assert peer.in_flight == 0
        peer.close()

    net.run(main)


def test_a_request_without_a_response_in_time_ends_the_connection(net):
    net.hosts[0].answers[3] = lambda connection, request: connection.pending(pipelined=False)

    async def main(world):
        peer = await open_peer(world)
        lost = []
        peer.on_lost(lambda: lost.append(1))
        began = world.clock.monotonic()
        slow = peer.send(MetadataRequest(), 12, 3.0)
        behind = peer.send(ApiVersionsRequest(), 3, 60.0)
        for future in (slow, behind):
            with pytest.raises(ConnectionLostError):
                await future
        assert world.clock.monotonic() - began == pytest.approx(3.0, abs=0.01)
        assert peer.closed
        assert lost == [1]
        with pytest.raises(ConnectionLostError, match="no response to api 3 v12 within 3 s"):
            peer.send(MetadataRequest(), 12, 3.0)

    net.run(main)


def test_the_soonest_deadline_counts(net):
    net.hosts[0].answers[3] = lambda connection, request: connection.pending(pipelined=False)

    async def main(world):
        peer = await open_peer(world)
        began = world.clock.monotonic()
        late = peer.send(MetadataRequest(), 12, 30.0)
        soon = peer.send(MetadataRequest(), 12, 2.0)
        with pytest.raises(ConnectionLostError):
            await soon
        assert late.done()
        late.exception()
        assert world.clock.monotonic() - began < 2.1

    net.run(main)


def test_a_crash_fails_everything_open(net):
    net.hosts[0].answers[3] = lambda connection, request: connection.pending(pipelined=False)

    async def main(world):
        peer = await open_peer(world)
        future = peer.send(MetadataRequest(), 12, 30.0)
        asyncio.get_running_loop().call_later(1.0, net.hosts[0].node.crash)
        with pytest.raises(ConnectionLostError):
            await future

    net.run(main)


def test_close_sends_what_was_written(net):
    async def main(world):
        peer = await open_peer(world)
        peer.send_without_response(MetadataRequest(topics=[]), 12)
        peer.close()
        await asyncio.sleep(1)
        assert net.hosts[0].asked == [(3, 12)]

    net.run(main)


@pytest.mark.parametrize(
    "garbage",
    [
        [b"\x00\x00\x00\x63", bytes(20)],
        [b"\x00\x00\x00\x00", b"\xff" * 20],
        [b"\x00"],
    ],
    ids=["another correlation id", "unreadable", "short"],
)
def test_an_invalid_response_ends_the_connection(net, garbage):
    net.hosts[0].answers[3] = lambda connection, request: garbage

    async def main(world):
        peer = await open_peer(world)
        with pytest.raises(ConnectionLostError, match="unreadable response"):
            await peer.send(MetadataRequest(), 12, 5.0)

    net.run(main)


def test_nobody_there(net):
    async def main(world):
        with pytest.raises(ConnectionLostError, match="cannot reach b0:1"):
            await PeerConnection.open(world, "b0", 1, None, timeout_s=1.0)
        net.simulation.internet.partition(["client"], ["b0"])
        with pytest.raises(ConnectionLostError):
            await open_peer(world)

    net.run(main)


def test_versions_are_negotiated_down_from_a_refusal(net):
    for host in net.hosts:
        host.highest_api_versions = 2

    async def main(world):
        client = net.client(world)
        await client.metadata()
        assert net.hosts[0].asked + net.hosts[1].asked == [(18, 4), (18, 2), (3, 12)]
        await client.close()

    net.run(main)


def test_the_highest_common_version_is_used_or_none(net):
    net.hosts[1].answers[19] = lambda c, r: CreateTopicsResponse(
        topics=[CreateTopicsResponse.CreatableTopicResult(name="t")]
    )

    async def main(world):
        client = net.client(world)
        await client.call(CreateTopicsRequest(), "controller")
        assert net.hosts[1].asked[-1] == (19, 5)
        from ottla.wire.messages.cluster import DescribeClusterRequest

        with pytest.raises(UnsupportedVersionError, match="api 60"):
            await client.call(DescribeClusterRequest())
        await client.close()

    net.run(main)


def elections(error_code):
    r = ElectLeadersResponse
    result = r.PartitionResult(error_code=error_code, error_message=None)
    topic = r.ReplicaElectionResult(topic="t", partition_result=[result])
    return r(replica_election_results=[topic])


def test_the_controller_is_followed_when_only_partitions_say_that_it_moved(net):
    def moved(connection, request):
        net.cluster["controller"] = 0
        return elections(41)

    net.hosts[1].answers[43] = moved
    net.hosts[0].answers[43] = lambda c, r: elections(0)

    async def main(world):
        client = net.client(world)
        request = ElectLeadersRequest(topic_partitions=None)
        assert await client.call(request, "controller") == elections(0)

    net.run(main)


def test_the_controller_is_followed_when_it_moves(net):
    def moved(connection, request):
        net.cluster["controller"] = 0
        return CreateTopicsResponse(
            topics=[CreateTopicsResponse.CreatableTopicResult(error_code=41)]
        )

    net.hosts[1].answers[19] = moved
    net.hosts[0].answers[19] = lambda c, r: CreateTopicsResponse(
        topics=[CreateTopicsResponse.CreatableTopicResult(name="made")]
    )

    async def main(world):
        client = net.client(world)
        response = await client.call(CreateTopicsRequest(), "controller")
        assert response.topics[0].name == "made"

    net.run(main)


@pytest.mark.parametrize(("moves_after_s", "patience_s"), [(8.0, 30.0), (8.0, 0.0), (99.0, 30.0)])
def test_a_dead_controller_is_waited_for_as_long_as_any_broker_responds(
    net, moves_after_s, patience_s
):
    net.cluster["controller"] = 7  # until its session ends
    net.hosts[0].answers[19] = lambda c, r: CreateTopicsResponse()
    addresses = "b0:9092,b1:9092"

    async def main(world):
        began_s = world.clock.monotonic()
        client = Client(world, addresses, timeout_s=5.0, patience_s=patience_s)
        loop = asyncio.get_running_loop()
        loop.call_later(moves_after_s, net.cluster.__setitem__, "controller", 0)
        if moves_after_s < patience_s:
            await client.call(CreateTopicsRequest(), "controller")
        else:
            with pytest.raises(ConnectionLostError, match="broker 7 is not alive"):
                await client.call(CreateTopicsRequest(), "controller")
        await client.close()
        return world.clock.monotonic() - began_s

    took_s = net.run(main)
    if moves_after_s < patience_s:
        assert moves_after_s <= took_s < moves_after_s + 2
    else:
        assert patience_s <= took_s < patience_s + 3


def test_no_wait_where_no_broker_responds(net):
    async def main(world):
        began_s = world.clock.monotonic()
        client = Client(world, "b0:1,b1:1", timeout_s=5.0, patience_s=600.0)
        with pytest.raises(ConnectionLostError, match="cannot reach"):
            await client.call(CreateTopicsRequest(), "controller")
        assert world.clock.monotonic() - began_s < 60

    net.run(main)


def test_a_cluster_without_a_controller_is_an_error_in_the_end(net):
    net.cluster["controller"] = -1

    async def main(world):
        with pytest.raises(ConnectionLostError, match="no controller"):
            await net.client(world).call(CreateTopicsRequest(), "controller")

    net.run(main)


def test_leaders_are_found_and_remembered(net):
    async def main(world):
        client = net.client(world)
        assert await client.leader("t", 1) == 1
        net.cluster["leaders"][1] = 0
        assert await client.leader("t", 1) == 1
        assert await client.leader("t", 1, refresh=True) == 0
        with pytest.raises(OttlaError) as caught:
            await client.leader("t", 2)
        assert caught.value.code == ErrorCode.LEADER_NOT_AVAILABLE
        with pytest.raises(UnknownTopicError):
            await client.leader("t", 9)
        assert await client.broker_ids() == [0, 1]

    net.run(main)


def test_old_news_of_a_leader_is_not_believed_but_a_new_topic_is(net):
    async def main(world):
        client = net.client(world)
        net.cluster.update(epoch=5, topic_id=b"t" * 16)
        assert await client.leader("t", 1, refresh=True) == 1
        assert client.leader_epoch("t", 1) == 5
        net.cluster.update(epoch=4, leaders=[0, 0])
        assert await client.leader("t", 1, refresh=True) == 1
        net.cluster.update(topic_id=b"u" * 16)
        assert await client.leader("t", 1, refresh=True) == 0
        assert client.leader_epoch("t", 1) == 4
        assert client.leader_epoch("t", 77) == -1

    net.run(main)


def test_a_dead_bootstrap_address_is_passed_over(net):
    net.hosts[0].node.crash()

    async def main(world):
        for _ in range(5):
            client = net.client(world)
            await client.metadata()
            await client.close()

    net.run(main)


def test_a_dead_leader_is_reported_at_once(net):
    async def main(world):
        client = net.client(world)
        assert await client.leader("t", 1) == 1
        net.hosts[1].node.crash()
        await asyncio.sleep(1)
        began = world.clock.monotonic()
        with pytest.raises(ConnectionLostError):
            await client.call(MetadataRequest(topics=[]), 1)
        assert world.clock.monotonic() - began < 0.1

    net.run(main)


def test_a_broker_that_could_not_be_reached_is_found_at_its_new_address(net):
    async def main(world):
        client = net.client(world)
        await client.metadata([])
        net.hosts[1].node.crash()
        moved = Host(net.simulation, 2, net.cluster)
        net.cluster["hosts"][1] = "b2"
        await asyncio.sleep(1)
        with pytest.raises(ConnectionLostError):
            await client.call(MetadataRequest(topics=[]), 1)
        assert moved.asked == []
        await client.call(MetadataRequest(topics=[]), 1)
        assert (3, 12) in moved.asked
        asked = len(net.hosts[0].asked)
        await client.call(MetadataRequest(topics=[]), 1)
        assert len(net.hosts[0].asked) == asked, "metadata is asked for once for each failure"

    net.run(main)


def test_a_coordinator_is_asked_at_the_address_that_was_found_with_it(net):
    """Not at the one known before, where another broker may be alive."""
    moved = Host(net.simulation, 2, net.cluster)
    code = 15
    found = FindCoordinatorResponse(error_code=0, node_id=1, host="b2", port=PORT)
    net.hosts[0].answers[10] = net.hosts[1].answers[10] = lambda *_: (
        FindCoordinatorResponse(error_code=code, node_id=-1, host="", port=-1) if code else found
    )

    async def main(world):
        nonlocal code
        await asyncio.sleep(1)
        client = net.client(world)
        await client.metadata([])
        assert await client.coordinator("g", 0) == (15, -1)
        assert await client.broker_ids() == [0, 1]
        code = 0
        assert await client.coordinator("g", 0) == (0, 1)
        await client.call(MetadataRequest(topics=[]), 1)
        assert (3, 12) in moved.asked

    net.run(main)


def test_everybody_dead_is_an_error_within_bounds(net):
    for host in net.hosts:
        host.node.crash()

    async def main(world):
        began = world.clock.monotonic()
        with pytest.raises(ConnectionLostError):
            await net.client(world).metadata()
        assert world.clock.monotonic() - began < 10

    net.run(main)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1", [("a", 1)]),
        (" a:1 , b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:9092", [("::1", 9092)]),
    ],
)
def test_bootstrap_addresses(text, expected):
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:x", "a:0", "a:70000"])
def test_what_is_no_bootstrap_address(text):
    with pytest.raises(ValueError, match="host:port"):
        parse_bootstrap(text)
