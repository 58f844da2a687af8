"""How long throttles make a copy last: beside sums made by hand."""

import asyncio

from ottla.client import configs
from ottla.client.copy_progress import ASK_EVERY_S, CopyThrottles
from ottla.model.errors import ConnectionLostError
from ottla.model.ids import TopicPartition
from ottla.model.throttle_settings import FOLLOWER_RATE, LEADER_RATE
from ottla.wire.messages.cluster import MetadataResponse

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LEFT = {(P0, 3): 600, (P1, 3): 300, (P1, 4): 300}


class Brokers:
    """P0 is led by 1, P1 by 2; each broker has the rates it is given, or does not respond."""

    def __init__(self, monkeypatch, rates):
        self.rates = rates
        self.asked = 0
        monkeypatch.setattr(configs, "own", self._own)

    async def metadata(self, topics):
        self.asked += 1
        assert topics == ["t"]
        r = MetadataResponse
        found = [
            r.MetadataResponsePartition(partition_index=i, leader_id=leader)
            for i, leader in ((0, 1), (1, 2))
        ]
        return r(topics=[r.MetadataResponseTopic(name="t", partitions=found)])

    async def _own(self, _client, _kind, name, _keys, *, timeout_s):
        assert timeout_s
        found = self.rates.get(int(name), {})
        if found is None:
            raise ConnectionLostError("gone")
        return {key: str(rate) for key, rate in found.items()}


def least(monkeypatch, rates, left=LEFT):
    brokers = Brokers(monkeypatch, rates)
    return asyncio.run(CopyThrottles(brokers).least_s(left, 0.0))


def test_the_end_that_takes_longest_counts(monkeypatch):
    assert least(monkeypatch, {}) is None
    assert least(monkeypatch, {3: {FOLLOWER_RATE: 100}}) == 9.0
    assert least(monkeypatch, {4: {FOLLOWER_RATE: 100}}) == 3.0
    every = {b: {FOLLOWER_RATE: 100, LEADER_RATE: 100} for b in (1, 2, 3, 4)}
    assert least(monkeypatch, every) == 9.0
    assert least(monkeypatch, every | {2: {LEADER_RATE: 10}}) == 60.0
    assert least(monkeypatch, {3: None, 4: {FOLLOWER_RATE: 100}}) == 3.0
    assert least(monkeypatch, every, {(P0, 3): 0}) is None


def test_brokers_are_asked_now_and_then(monkeypatch):
    brokers = Brokers(monkeypatch, {3: {FOLLOWER_RATE: 100}})
    throttles = CopyThrottles(brokers)

    async def look():
        seen = [await throttles.least_s(LEFT, 0.0)]
        brokers.rates[3] = {FOLLOWER_RATE: 200}
        seen += [await throttles.least_s(LEFT, t) for t in (ASK_EVERY_S - 1, ASK_EVERY_S)]
        return seen

    assert asyncio.run(look()) == [9.0, 9.0, 4.5]
    assert brokers.asked == 2
