"""Which open transactions hang: those that no coordinator means to end."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.client import transactions
from ottla.model.errors import ConnectionLostError, ErrorCode, OttlaError
from support.fake_client import FakeClient

OLD, YOUNG, NOW = 1_000, 99_500, 100_000


class Cluster(FakeClient):
    """Broker 1 leads t-0 and t-1, broker 2 leads t-2 and u-0; u-1 is led by nobody."""

    leaders = {("t", 0): 1, ("t", 1): 1, ("t", 2): 2, ("u", 0): 2, ("u", 1): -1}  # noqa: RUF012

    def __init__(self, opened, ids, described):
        self.opened, self.ids, self.described = opened, ids, described
        self.asked = []

    async def metadata(self, topics):
        names = sorted({t for t, _ in self.leaders}) if topics is None else topics
        return SimpleNamespace(
            topics=[
                SimpleNamespace(
                    name=name,
                    error_code=0 if any(t == name for t, _ in self.leaders) else 3,
                    partitions=[
                        SimpleNamespace(partition_index=p, leader_id=leader)
                        for (t, p), leader in self.leaders.items()
                        if t == name
                    ],
                )
                for name in names
            ]
        )

    async def leader(self, topic, partition):
        if self.leaders[topic, partition] < 0:
            raise OttlaError(f"{topic}-{partition} has no leader")
        return self.leaders[topic, partition]

    async def broker_ids(self):
        return [1, 2]

    async def coordinator(self, _key, _kind):
        return 0, 1

    async def call(self, request, broker=None, **_):
        kind = type(request).__name__
        if kind == "DescribeProducersRequest":
            self.asked.append((broker, sum(len(t.partition_indexes) for t in request.topics)))
            for t in request.topics:
                for p in t.partition_indexes:
                    assert self.leaders[t.name, p] == broker
            return SimpleNamespace(
                topics=[
                    SimpleNamespace(
                        name=t.name,
                        partitions=[self._producers(t.name, p) for p in t.partition_indexes],
                    )
                    for t in request.topics
                ]
            )
        if kind == "ListTransactionsRequest":
            rows = [
                SimpleNamespace(transactional_id=i, transaction_state="Ongoing", producer_id=p)
                for p, i in self.ids.items()
                if p % 2 == broker % 2
            ]
            return SimpleNamespace(error_code=0, unknown_state_filters=[], transaction_states=rows)
        assert kind == "DescribeTransactionsRequest"
        (name,) = request.transactional_ids
        return SimpleNamespace(transaction_states=[self._description(name)])

    def _producers(self, topic, index):
        active = [
            SimpleNamespace(
                producer_id=producer,
                producer_epoch=0,
                current_txn_start_offset=start,
                last_timestamp=last,
            )
            for (t, p), (producer, start, last) in self.opened
            if (t, p) == (topic, index)
        ]
        return SimpleNamespace(partition_index=index, error_code=0, active_producers=active)

    def _description(self, name):
        partitions = self.described.get(name)
        topics = [SimpleNamespace(topic=t, partitions=[p]) for t, p in partitions or ()]
        return SimpleNamespace(
            error_code=0 if partitions is not None else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            transactional_id=name,
            transaction_state="Ongoing",
            producer_id=0,
            producer_epoch=0,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=OLD,
            topics=topics,
        )


def hanging(cluster, topics=None, older_than_ms=900):
    found = asyncio.run(transactions.hanging(cluster, topics, older_than_ms, NOW))
    return [(h.topic, h.partition, h.producer_id, h.start_offset) for h in found]


def test_what_a_coordinator_will_end_does_not_hang():
    cluster = Cluster(
        opened=[
            (("t", 0), (6, 0, OLD)),
            (("t", 1), (7, 10, OLD)),
            (("t", 2), (7, 20, OLD)),
            (("u", 0), (8, 30, OLD)),
            (("u", 0), (9, 40, YOUNG)),
            (("u", 0), (10, transactions.NONE, OLD)),
        ],
        ids={7: "known", 8: "forgotten", 11: "elsewhere"},
        described={"known": [("t", 1)]},
    )
    assert hanging(cluster) == [("t", 0, 6, 0), ("t", 2, 7, 20), ("u", 0, 8, 30)]
    assert hanging(cluster, ["t"]) == [("t", 0, 6, 0), ("t", 2, 7, 20)]
    assert ("u", 0, 9, 40) in hanging(cluster, ["u"], older_than_ms=500)


def test_a_leader_that_does_not_respond_is_a_line():
    class Cut(Cluster):
        async def call(self, request, broker=None, **more):
            if broker == 1 and type(request).__name__ == "DescribeProducersRequest":
                raise ConnectionLostError("cannot reach broker 1")
            return await super().call(request, broker, **more)

    cluster = Cut([(("t", 0), (6, 0, OLD)), (("t", 2), (7, 20, OLD))], {}, {})
    problems = []
    (found,) = asyncio.run(transactions.hanging(cluster, None, 900, NOW, problems))
    assert (found.topic, found.partition) == ("t", 2)
    assert problems == ["producers of partitions led by broker 1: cannot reach broker 1"]
    with pytest.raises(ConnectionLostError):
        hanging(cluster)


def test_leaders_are_asked_for_few_partitions_at_a_time(monkeypatch):
    monkeypatch.setattr(transactions, "AT_ONCE", 1)
    cluster = Cluster([], {}, {})
    assert hanging(cluster) == []
    assert cluster.asked == [(1, 1), (1, 1), (2, 1), (2, 1)]


def test_a_topic_that_is_not_there_is_told():
    with pytest.raises(OttlaError, match=r"topic nosuch: .*UNKNOWN_TOPIC_OR_PARTITION"):
        hanging(Cluster([], {}, {}), ["nosuch"])
