"""Groups of every type as a cluster of Kafka 4.4 tells them, and what one bad element does."""

import asyncio
import re

import pytest

from ottla.admin.session import of_each
from ottla.client import groups, scram_users, transactions
from ottla.client.groups import PartitionLag, describe, refuse_share_group
from ottla.model.errors import ConnectionLostError, ErrorCode, OttlaError, UnsupportedVersionError
from ottla.wire.messages.cluster import MetadataResponse
from ottla.wire.messages.groups import (
    ConsumerGroupDescribeResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    DescribeShareGroupOffsetsResponse,
    ListGroupsResponse,
    OffsetFetchResponse,
    ShareGroupDescribeResponse,
    StreamsGroupDescribeResponse,
)
from ottla.wire.messages.records import ListOffsetsResponse
from ottla.wire.messages.security import DescribeUserScramCredentialsResponse
from ottla.wire.messages.transactions import ListTransactionsResponse
from support.fake_client import FakeClient

TYPES = {
    "old": "classic",
    "connect": "classic",
    "new": "consumer",
    "share": "share",
    "app": "streams",
}
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
END = 10


class Cluster(FakeClient):
    """Brokers 0 and 1; broker 0 coordinates a group of each type. `dead` do not respond.

    `old`: it knows classic groups alone, as Kafka 3.9, which refuses the others' requests.
    """

    def __init__(self, dead=(), *, old=False):
        self.dead, self.old = dead, old

    async def broker_ids(self):
        return [0, 1]

    async def coordinator(self, _key, _kind):
        return 0, 0

    async def leader(self, _topic, _partition):
        return 0

    async def metadata(self, topics):
        r = MetadataResponse
        partitions = {"in": 2, "side": 1}
        return r(
            topics=[
                r.MetadataResponseTopic(
                    name=n, partitions=[r.MetadataResponsePartition() for _ in range(partitions[n])]
                )
                for n in topics
                if n in partitions
            ]
        )

    async def call(self, request, broker=None, **_):
        if broker in self.dead:
            raise ConnectionLostError(f"cannot reach broker {broker}")
        name = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", type(request).__name__)
        return getattr(self, name.removesuffix("_Request").lower())(request, broker)

    def list_groups(self, _request, broker):
        r = ListGroupsResponse
        if broker == 1:
            return r(groups=[r.ListedGroup("elsewhere", "consumer", "Empty", "")])
        protocols = {"connect": "connect", "share": "share", "app": "streams"}
        return r(
            groups=[
                r.ListedGroup(name, protocols.get(name, "consumer"), "Stable", type_)
                for name, type_ in TYPES.items()
            ]
        )

    def list_transactions(self, _request, broker):
        r = ListTransactionsResponse
        one = r.TransactionState(transactional_id=f"t{broker}", transaction_state="Ongoing")
        return r(transaction_states=[one])

    def describe_groups(self, request, _broker):
        r = DescribeGroupsResponse
        (name,) = request.groups
        if TYPES.get(name) != "classic":
            return r(groups=[r.DescribedGroup(group_id=name, group_state="Dead")])
        kind = "connect" if name == "connect" else "consumer"
        member = r.DescribedGroupMember(
            member_id="m", client_id="c", client_host="/h", member_assignment=b"junk"
        )
        group = r.DescribedGroup(
            group_id=name, group_state="Stable", protocol_type=kind, members=[member]
        )
        return r(groups=[group])

    def _described(self, response, request, type_, members, **more):
        (name,) = request.group_ids
        if self.old:
            if type_ == "consumer":
                group = response.DescribedGroup(error_code=ErrorCode.UNSUPPORTED_VERSION)
                return response(groups=[group])
            raise UnsupportedVersionError("not served")
        if TYPES.get(name) != type_:
            return response(groups=[response.DescribedGroup(error_code=NOT_FOUND)])
        group = response.DescribedGroup(
            group_id=name, group_state="Stable", members=members(response), **more
        )
        return response(groups=[group])

    def consumer_group_describe(self, request, _broker):
        return self._described(
            ConsumerGroupDescribeResponse,
            request,
            "consumer",
            self._member,
            assignor_name="uniform",
        )

    def share_group_describe(self, request, _broker):
        return self._described(ShareGroupDescribeResponse, request, "share", self._member)

    def _member(self, r):
        assignment = r.Assignment([r.TopicPartitions(topic_name="in", partitions=[1, 0])])
        member = r.Member(member_id="m", client_id="c", client_host="/h", assignment=assignment)
        return [member]

    def streams_group_describe(self, request, _broker):
        def members(r):
            tasks = [r.TaskIds("0", [0, 1])]
            member = r.Member(
                member_id="m",
                client_id="c",
                client_host="/h",
                assignment=r.Assignment(tasks, [], []),
            )
            return [member]

        r = StreamsGroupDescribeResponse
        parts = [r.Subtopology("0", ["in"], [], [], [r.TopicInfo(name="side")])]
        topology = r.Topology(epoch=0, subtopologies=parts)
        return self._described(r, request, "streams", members, topology=topology)

    def offset_fetch(self, _request, _broker):
        r = OffsetFetchResponse
        one = r.OffsetFetchResponsePartition(partition_index=0, committed_offset=4)
        return r(topics=[r.OffsetFetchResponseTopic(name="in", partitions=[one])])

    def describe_share_group_offsets(self, request, _broker):
        r = DescribeShareGroupOffsetsResponse
        rows = [
            r.Partition(0, 4, 0, 3, 0),
            r.Partition(1, 5, 0, -1, 0),
            r.Partition(2, -1, 0, -1, 0),
        ]
        topic = r.Topic(topic_name="in", topic_id=bytes(16), partitions=rows)
        return r(groups=[r.Group(request.groups[0].group_id, [topic], 0)])

    def list_offsets(self, request, _broker):
        r = ListOffsetsResponse
        return r(
            topics=[
                r.ListOffsetsTopicResponse(
                    name=t.name,
                    partitions=[
                        r.ListOffsetsPartitionResponse(
                            partition_index=p.partition_index, offset=END
                        )
                        for p in t.partitions
                    ],
                )
                for t in request.topics
            ]
        )

    def delete_groups(self, request, _broker):
        r = DeleteGroupsResponse
        (name,) = request.groups_names
        if name == "new":
            raise ConnectionLostError("cannot reach broker 0")
        return r(results=[r.DeletableGroupResult(name, 0)])


def run(question):
    return asyncio.run(question)


@pytest.mark.parametrize(
    ("group", "reads", "assignor"),
    [
        ("old", [], ""),
        ("connect", [], ""),
        ("new", ["in-0", "in-1"], "uniform"),
        ("share", ["in-0", "in-1"], ""),
        ("app", ["in-0", "in-1", "side-0"], ""),
    ],
)
def test_a_group_of_each_type_is_described(group, reads, assignor):
    found = run(describe(Cluster(), group))
    assert (found.group, found.type, found.state) == (group, TYPES[group], "Stable")
    assert found.protocol == assignor
    assert [(m.member, m.client, m.host, [*map(str, m.partitions)]) for m in found.members] == [
        ("m", "c", "h", reads)
    ]


@pytest.mark.parametrize("old", [False, True])
def test_a_group_of_no_type_is_none(old):
    with pytest.raises(OttlaError, match="there is no group nosuch; `ottla groups list`") as caught:
        run(describe(Cluster(old=old), "nosuch"))
    assert caught.value.code == NOT_FOUND


def lags(group):
    return {
        f"{r.topic}-{r.partition}": (r.committed, r.end, r.lag)
        for r in run(groups.lag(Cluster(), group))
    }


def test_the_lag_of_a_group_of_each_type():
    assert lags("new") == {"in-0": (4, END, 6), "in-1": (None, END, None)}
    assert lags("app") == {**lags("new"), "side-0": (None, END, None)}
    assert lags("share") == {"in-0": (4, END, 3), "in-1": (5, END, None)}, "as the broker counts"
    assert run(groups.lag(Cluster(), "share"))[0] == PartitionLag("in", 0, 4, END, 3, "m", "h", "c")


def test_a_leader_that_does_not_respond_is_a_line():
    class Cut(Cluster):
        async def leader(self, _topic, partition):
            return 1 - partition

    problems = []
    rows = run(groups.lag(Cut(dead=(1,)), "new", problems))
    assert [(r.partition, r.end, r.lag) for r in rows] == [(0, None, None), (1, END, None)]
    assert problems == ["offsets of partitions led by broker 1: cannot reach broker 1"]


def test_one_group_that_cannot_be_described_is_a_line():
    problems = []
    ask = lambda name: groups.lag(Cluster(), name)  # noqa: E731
    found = run(of_each(Cluster(), ["new", "nosuch", "old"], ask, problems))
    assert list(found) == ["new", "old"]
    assert problems == ["there is no group nosuch; `ottla groups list` shows those there are"]


def test_one_broker_that_does_not_respond_is_a_line():
    problems = []
    found = run(groups.list_groups(Cluster(dead=(0,)), problems))
    assert [(g.group, g.type) for g in found] == [("elsewhere", "classic")]
    assert problems == ["cannot reach broker 0"]
    assert [t.transactional_id for t in run(
        transactions.list_transactions(Cluster(dead=(1,)), [], problems)
    )] == ["t0"]  # fmt: skip
    assert problems == ["cannot reach broker 0", "cannot reach broker 1"]
    with pytest.raises(ConnectionLostError):
        run(groups.list_groups(Cluster(dead=(0,))))


def test_one_group_that_cannot_be_deleted_is_a_line():
    assert run(groups.delete(Cluster(), ["old", "new", "app"])) == {
        "old": None, "new": "cannot reach broker 0", "app": None,
    }  # fmt: skip
    deletable = run(groups.deletable(Cluster(), ["new", "nosuch"]))
    assert "NON_EMPTY_GROUP" in deletable["new"]
    assert "there is no group nosuch" in deletable["nosuch"]


def test_one_user_without_credentials_is_a_line():
    r = DescribeUserScramCredentialsResponse

    class Users:
        async def call(self, _request):
            one = r.DescribeUserScramCredentialsResult
            refused = ErrorCode.RESOURCE_NOT_FOUND
            return r(results=[one(user="no", error_code=refused), one(user="alice")])

    problems = []
    assert [u.name for u in run(scram_users.describe(Users(), ["no", "alice"], problems))] == [
        "alice"
    ]
    assert problems == ["user no: RESOURCE_NOT_FOUND"]
    with pytest.raises(OttlaError, match="user no"):
        run(scram_users.describe(Users(), ["no", "alice"]))


def test_offsets_of_a_share_group_are_left_to_kafkas_tool():
    with pytest.raises(OttlaError, match=r"share is a share group: .*kafka-share-groups.sh"):
        run(refuse_share_group(Cluster(), "share"))
    assert run(refuse_share_group(Cluster(), "new")).type == "consumer"
