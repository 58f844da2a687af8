"""Answers count for what they return: named once, built in slices, bounded while they are built."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from ottla.broker.requests import responses
from ottla.broker.requests.large_requests import Aside, LargeRequests, decoded
from ottla.broker.requests.responses import ELEMENT_BYTES, respond_in_steps
from ottla.broker.requests.router import Router
from ottla.broker.requests.routes import ROUTES
from ottla.broker.tasks import Tasks
from ottla.coordinators.offsets import Commit
from ottla.coordinators.requests import (
    FetchedOffset,
    GroupDescription,
    GroupOverview,
    MemberSummary,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.net.connection import CloseConnection
from ottla.security.acls import Entry, Pattern
from ottla.security.authorizer import AclAuthorizer
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import RequestHeader, decode_response_header, encode_request_header
from ottla.wire.messages.cluster import DescribeLogDirsRequest
from ottla.wire.messages.groups import (
    DescribeGroupsRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetFetchRequest,
)
from ottla.wire.messages.security import DescribeAclsRequest
from ottla.wire.messages.transactions import DescribeProducersRequest, ListTransactionsRequest

LONGEST_TURN_S = 0.05
HEADER = RequestHeader(16, 4, 1, "c")


class Client:
    """Stands for a connection."""

    listener = "PLAINTEXT"
    peer = ("127.0.0.1", 1)

    def __init__(self, building=None):
        self.response_memory = SimpleNamespace(building=building or asyncio.Lock(), full=False)
        self.closed = False
        self.parts = self.reason = None

    def pending(self, pipelined):
        return self

    def complete(self, parts):
        self.parts = parts

    def fail(self, reason):
        self.reason = reason


class Turns:
    """A server whose clock is the process's; measures how long the loop's callbacks took."""

    def __init__(self, **parts):
        self.world = SimpleNamespace(
            clock=SimpleNamespace(
                monotonic=time.process_time, wall_ms=lambda: 10**12, slice_s=0.008
            )
        )
        self.tasks, self.served, self.authorizer = Tasks(), (), None
        self.quotas = SimpleNamespace(active=False)
        vars(self).update(parts)

    async def ask(self, client, request, version):
        """Return (response or None, longest turn of the loop in seconds)."""
        key = request.API_KEY
        router = Router(self, [ROUTES[key]], time.process_time)
        raw = encode_request_header(key, version, 1, "c")
        raw += b"".join(encode_request(request, version))
        began = time.process_time()
        outcome = router.dispatch(client, memoryview(raw))
        longest = time.process_time() - began
        while outcome is client and client.parts is None and client.reason is None:
            began = time.process_time()
            await asyncio.sleep(0)
            longest = max(longest, time.process_time() - began)
        parts = client.parts if outcome is client else outcome
        if parts is None:
            return None, longest
        whole = memoryview(b"".join(parts))
        return decode_response(
            key, version, whole, decode_response_header(key, version, whole)[1]
        ), (longest)


def elements(count, size=ELEMENT_BYTES):
    for _ in range(count):
        yield size
    return ListGroupsResponse(groups=[])


def test_a_small_answer_is_given_at_once():
    async def main():
        return respond_in_steps(Turns(), Client(), HEADER, elements(100))

    assert isinstance(asyncio.run(main()), list)


def test_a_large_answer_is_stopped_while_it_is_built():
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield 1 << 20

    async def main():
        await respond_in_steps(Turns(), Client(), HEADER, endless())

    with pytest.raises(CloseConnection, match="32 MiB"):
        asyncio.run(main())
    assert len(taken) < 40


def test_one_large_answer_is_built_at_a_time_and_none_while_responses_are_not_read():
    at_work, most = set(), []

    def steps(who):
        for number in range(20):
            if number > 2:
                at_work.add(who)
                most.append(len(at_work))
            yield 200_000
        at_work.discard(who)
        return ListGroupsResponse(groups=[])

    async def main():
        lock = asyncio.Lock()
        clients = [Client(lock) for _ in range(4)]
        clients[0].response_memory.full = True
        works = [
            asyncio.ensure_future(respond_in_steps(Turns(), c, HEADER, steps(i)))
            for i, c in enumerate(clients)
        ]
        await asyncio.sleep(0.05)
        assert not any(work.done() for work in works), "unread responses fill the memory"
        clients[0].response_memory.full = False
        await asyncio.gather(*works)

    asyncio.run(main())
    assert max(most) == 1


def test_who_is_gone_is_not_worked_for():
    async def main():
        client = Client()
        work = respond_in_steps(Turns(), client, HEADER, elements(10**9))
        client.closed = True
        await work

    with pytest.raises(CloseConnection, match="gone"):
        asyncio.run(main())


def test_a_portion_is_passed_on_without_being_encoded():
    """Or a large portion would be read back in one go."""

    async def main():
        parts = await respond_in_steps(Turns(), Aside(Client()), HEADER, elements(10_000))
        assert decoded(HEADER, parts) == ListGroupsResponse(groups=[])

    asyncio.run(main())
    assert LargeRequests  # they join portions


# What each API returns, of brokers that hold very much.


class Groups:
    offsets, groups, members, metadata = 2000, 60_000, 2000, "m" * 4000

    def fetch_offsets(self, group_id, partitions, *, require_stable):
        del require_stable
        commit = Commit(5, 1, self.metadata, 0, 0)
        found = (TopicPartition("big", i) for i in range(self.offsets))
        return ErrorCode.NONE, (FetchedOffset(tp, commit) for tp in partitions or found)

    def list_groups(self, states, types):
        del states, types
        return ErrorCode.NONE, (
            GroupOverview(f"g{i}", "consumer", "Stable") for i in range(self.groups)
        )

    def describe(self, group_id):
        member = MemberSummary("m" * 40, None, "c", "h", b"x" * 100, b"y" * 100)
        return GroupDescription(
            ErrorCode.NONE, group_id, "Stable", "consumer", "p", [member] * self.members
        )


def producers_server(count):
    producer = SimpleNamespace(
        id=1, epoch=0, last_sequence=1, last_timestamp=1, coordinator_epoch=1, txn_first=None
    )
    log = SimpleNamespace(
        producers=SimpleNamespace(producers=dict.fromkeys(range(count), producer))
    )
    hosted = SimpleNamespace(local_log=lambda leader_only: log)
    return Turns(
        metadata=SimpleNamespace(contains=lambda _: True),
        replicas=SimpleNamespace(hosted=lambda *_: hosted),
    )


def log_dirs_server(count):
    logs = [
        SimpleNamespace(tp=TopicPartition("t", i), parent_dir="/d", log_end_offset=1, size=5)
        for i in range(count)
    ]
    manager = SimpleNamespace(
        live_dirs=["/d"], offline_dirs=[], all_logs=lambda: logs, future=lambda _: None
    )
    server = Turns(replicas=SimpleNamespace(logs=manager, get=lambda _: None))
    server.world.files = SimpleNamespace(space=lambda _: (1, 1))
    return server


def acls_server(count):
    authorizer = AclAuthorizer()
    for i in range(count):
        authorizer.set(Pattern(2, f"t{i}"), [Entry("User:a", "*", 3, 3)])
    return Turns(acl_cache=SimpleNamespace(authorizer=authorizer))


def transactions_server(count):
    found = [
        SimpleNamespace(
            transactional_id=f"t{i}", producer_id=i, state=SimpleNamespace(label="Ongoing")
        )
        for i in range(count)
    ]
    select = SimpleNamespace(select=lambda *_: (ErrorCode.NONE, found, []))
    return Turns(transactions=select)


def offsets_of(*groups):
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    return OffsetFetchRequest(groups=[group(group_id=g, topics=None) for g in groups])


def producers_of(*indexes):
    topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=list(indexes))
    return DescribeProducersRequest(topics=[topic])


def acls():
    return DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        pattern_type_filter=1,
        operation=1,
        permission_type=1,
    )


def groups_server():
    return Turns(groups=Groups())


CASES = {
    "one group 240 times": (groups_server, offsets_of(*["g"] * 240), 8, "groups", 1),
    "offsets of 3 groups": (groups_server, offsets_of("a", "b", "c"), 8, "groups", 3),
    "offsets of 100 groups": (
        groups_server, offsets_of(*map(str, range(100))), 8, "groups", None),
    "offsets of 1000 groups": (
        groups_server, offsets_of(*map(str, range(1000))), 8, "groups", None),
    "60,000 groups": (groups_server, ListGroupsRequest(), 4, "groups", 60_000),
    "a group described 230 times": (
        groups_server, DescribeGroupsRequest(groups=["g"] * 230), 5, "groups", 1),
    "20 groups described": (
        groups_server, DescribeGroupsRequest(groups=list(map(str, range(20)))),
        5, "groups", 20),
    "400 groups described": (
        groups_server, DescribeGroupsRequest(groups=list(map(str, range(400)))),
        5, "groups", None),
    "a partition's producers 220 times": (
        lambda: producers_server(20_000), producers_of(*[0] * 220), 0, "topics", 1),
    "producers of 100 partitions": (
        lambda: producers_server(20_000), producers_of(*range(100)), 0, "topics", None),
    "100,000 transactions": (
        lambda: transactions_server(100_000), ListTransactionsRequest(), 0, "transaction_states",
        100_000),
    "50,000 logs": (
        lambda: log_dirs_server(50_000), DescribeLogDirsRequest(topics=None), 4,
        "results", 1),
    "30,000 ACLs": (lambda: acls_server(30_000), acls(), 3, "resources", 30_000),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_no_answer_keeps_the_loop_busy(case):
    """`None`: it would be above the bound, so the connection is closed."""
    make, request, version, field, count = CASES[case]

    async def main():
        server, client = make(), Client()
        response, longest = await server.ask(client, request, version)
        if count is None:
            assert "32 MiB" in client.reason
        else:
            assert len(getattr(response, field)) == count
        return longest

    assert any(asyncio.run(main()) < LONGEST_TURN_S for _ in range(3))
    assert responses.MOST_RESPONSE_BYTES <= 64 << 20
