"""What simulated operators do when a cluster answers in ways that they did not expect."""

import asyncio

from ottla.model.errors import ErrorCode
from ottla.sim.history import History
from ottla.sim.operators import Churn
from ottla.sim.world import simulate
from ottla.wire.messages.cluster import MetadataResponse
from ottla.wire.messages.records import ProduceResponse


class Answers:
    """A client whose produce requests are answered with the codes given, then with the last."""

    def __init__(self, world, *codes):
        self.world = world
        self.codes = list(codes)
        self.produced = 0

    async def metadata(self, topics):
        topic = MetadataResponse.MetadataResponseTopic(name=topics[0], topic_id=bytes(16))
        return MetadataResponse(topics=[topic])

    async def leader(self, topic, partition, refresh):
        return 1

    async def call(self, request, target, version, timeout_s):
        self.produced += 1
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        partition = ProduceResponse.PartitionProduceResponse(index=0, error_code=code)
        return ProduceResponse(
            responses=[ProduceResponse.TopicProduceResponse(partition_responses=[partition])]
        )


def written(*codes):
    """Let a churned topic's records be written; return what was said, tries and seconds."""

    async def main(simulation, node):
        churn = Churn(node.world, [("b0", 1)], "churn", History())
        churn.client = client = Answers(node.world, *codes)
        there = await churn._write_some()
        return there, client.produced, asyncio.get_running_loop().time()

    return simulate(1, main)


def test_a_topic_that_is_gone_is_not_written_to_for_long():
    """A new controller called the topic before unknown, so its deletion took the new one away."""
    there, tries, seconds = written(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert not there
    assert tries == 10
    assert seconds < 3.5


def test_a_topic_whose_leaders_do_not_know_it_yet_is_written_to():
    codes = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 9 + [ErrorCode.NONE]
    there, tries, _ = written(*codes)
    assert there
    assert tries == 9 + 4


def test_one_that_takes_no_records_for_a_while_is_tried_on():
    unknown, few = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS
    there, tries, _ = written(*[unknown] * 9, few, *[unknown] * 9, ErrorCode.NONE)
    assert there
    assert tries == 19 + 4
