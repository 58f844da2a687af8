"""What a cooperative member of the simulator goes on from, against a coordinator that is a script.

One that was away for a generation: what it owned may have been another's, which read on.
"""

import asyncio

import pytest

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.sim.history import History
from ottla.sim.members import CooperativeReader
from ottla.sim.world import Simulation
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.groups import (
    ConsumerProtocolAssignment,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

MOVED, KEPT = TopicPartition("events", 0), TopicPartition("events", 1)
BOTH = (MOVED, KEPT)
OTHERS_POSITION = 50


class Script:
    """The member is given both partitions in its first generation, in its last one `KEPT` alone.

    In those between its SyncGroup is refused. It reads only after the first, while it joins, so it
    has nothing to commit before. Each committed offset is `OTHERS_POSITION` from then on.
    """

    def __init__(self, generations):
        self.left = list(generations)
        self.shares = {generations[0]: (0, 1), generations[-1]: (1,)}
        self.generation = -1
        self.begun = False
        self.committed = 0
        self.history = History()
        self.commits = []
        self.fetched = []

    async def ask(self, request, *_codes, **_how):
        return await {
            JoinGroupRequest: self.join,
            SyncGroupRequest: self.sync,
            HeartbeatRequest: self.heartbeat,
            OffsetCommitRequest: self.commit,
            OffsetFetchRequest: self.fetch,
        }[type(request)](request)

    async def join(self, _request):
        if not self.left:
            await asyncio.sleep(10_000)  # it gave a partition up; more is not played
        if self.generation >= 0:
            self.begun = True
            await asyncio.sleep(3)
            self.committed = OTHERS_POSITION
        self.generation = self.left.pop(0)
        return JoinGroupResponse(generation_id=self.generation, member_id="us", leader="another")

    async def sync(self, _request):
        if self.generation not in self.shares:
            return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        share = list(self.shares[self.generation])
        own = ConsumerProtocolAssignment.TopicPartition(topic="events", partitions=share)
        return SyncGroupResponse(
            assignment=encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[own]), 0)
        )

    async def heartbeat(self, _request):
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)

    async def commit(self, request):
        r = OffsetCommitResponse
        for topic in request.topics:
            self.commits += [
                (
                    request.generation_id_or_member_epoch,
                    TopicPartition(topic.name, p.partition_index),
                )
                for p in topic.partitions
            ]
        return r(
            topics=[
                r.OffsetCommitResponseTopic(
                    name=t.name,
                    partitions=[
                        r.OffsetCommitResponsePartition(partition_index=p.partition_index)
                        for p in t.partitions
                    ],
                )
                for t in request.topics
            ]
        )

    async def fetch(self, request):
        r = OffsetFetchResponse
        (topic,) = request.topics
        self.fetched.append((self.generation, *topic.partition_indexes))
        partitions = [
            r.OffsetFetchResponsePartition(partition_index=p, committed_offset=self.committed)
            for p in topic.partition_indexes
        ]
        return r(topics=[r.OffsetFetchResponseTopic(name=topic.name, partitions=partitions)])

    async def poll(self, _tp, offset, **_how):
        return [], offset + 1 if self.begun and offset < OTHERS_POSITION else offset

    @property
    def claims(self):
        return [(claim.generation, claim.partitions) for claim in self.history.claimed]


@pytest.fixture
def play():
    """Return what plays generations and returns the script afterwards."""
    with Simulation(1) as simulation:

        def played(*generations):
            script = Script(generations)

            async def main(world):
                reader = CooperativeReader(
                    world, [], "m0a1", "readers", BOTH, script.history, "static-0"
                )
                reader.member.ask, reader.member.poll = script.ask, script.poll
                await reader.run()

            simulation.node("m0a").boot(main)
            simulation.run_for(20)
            assert not script.left
            return script

        yield played


def test_what_moves_is_committed_as_it_is_given_up(play):
    script = play(1, 2)
    assert script.commits == [(2, MOVED)]
    assert script.fetched == [(1, 0, 1)]
    assert script.claims == [(1, ()), (2, BOTH)]


def test_a_member_that_missed_a_generation_commits_nothing_of_before_and_asks_anew(play):
    script = play(1, 3)
    assert script.commits == []
    assert script.fetched == [(1, 0, 1), (3, 1)]
    assert script.claims == [(1, ()), (3, BOTH)]


def test_a_generation_that_it_joined_is_not_missed_though_it_was_given_nothing_in_it(play):
    """What it owns it said, so nobody else can have had it."""
    script = play(1, 2, 3)
    assert script.commits == [(3, MOVED)]
    assert script.fetched == [(1, 0, 1)]
    assert script.claims == [(1, ()), (2, BOTH), (3, BOTH)]


def test_one_it_missed_before_that_counts(play):
    script = play(1, 3, 4)
    assert script.commits == []
    assert script.fetched == [(1, 0, 1), (4, 1)]
