"""Chaos and its checker on a real cluster: a real loss is found, and seeds repeat choices."""

import sys

import pytest
from confluent_kafka import Producer

from ottla.model.errors import ConfigError, OttlaError
from ottla.testing.chaos import Chaos
from ottla.testing.sync_cluster import SyncCluster
from support.waiting import until


def write(bootstrap, chaos, acks, values, **settings):
    """Write values; report to the checker what the producer reports."""

    def delivered(error, message):
        assert error is None, error
        chaos.acknowledged(
            "orders", message.key(), message.value(), message.partition(), message.offset()
        )

    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, **settings})
    for value in values:
        producer.produce("orders", value, key="k", on_delivery=delivered)
    assert producer.flush(20) == 0


def test_a_loss_that_acks_1_allows_is_found():
    """A leader that is cut off acknowledges alone; what it wrote is truncated when it returns."""
    with SyncCluster(3, in_process=True, session_timeout_ms=1500) as cluster:
        cluster.create_topic("orders")
        chaos = Chaos(cluster, seed=1)
        write(cluster.bootstrap, chaos, "all", [f"kept {n}" for n in range(10)])
        leader = cluster.leader_of("orders-0")
        cluster.partition(leader, from_=["brokers", "zookeeper"])
        write(cluster.address(leader), chaos, "1", [f"lost {n}" for n in range(7)])
        until(lambda: cluster.leader_of("orders-0") != leader, 60, "another one leads")
        cluster.heal()
        cluster.wait_until_in_sync()
        with pytest.raises(AssertionError) as caught:
            chaos.check()
        text = str(caught.value)
        assert "17 records acknowledged, 10 found" in text
        assert "lost: 7" in text
        assert "value=b'lost 0'" in text
        assert "doubled" not in text


def test_records_of_aborted_transactions_are_left_out_on_request():
    with SyncCluster(1, in_process=True) as cluster:
        cluster.create_topic("orders")
        chaos = Chaos(cluster)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t"})
        producer.init_transactions(20)
        for value, end in (("aborted", producer.abort_transaction),
                           ("committed", producer.commit_transaction)):  # fmt: skip
            producer.begin_transaction()
            producer.produce("orders", value)
            producer.flush(20)
            end(20)
        chaos.acknowledged("orders", None, "committed")
        assert chaos.check(committed=True).found == 1
        assert chaos.check().found == 2
        chaos.acknowledged("orders", None, "aborted")
        assert chaos.check().right
        with pytest.raises(AssertionError, match="lost: 1"):
            chaos.check(committed=True)


def test_a_seed_repeats_what_is_chosen():
    def events(seed):
        with SyncCluster(3, in_process=True) as cluster:
            cluster.create_topic("orders", partitions=6)
            chaos = Chaos(cluster, seed)
            for _ in range(6):
                chaos.once("kill_any", longest_s=0.05)
            return [what for _, what in cluster.events if what.startswith("killed")]

    assert events(7) == events(7)
    assert len({tuple(events(seed)) for seed in (7, 8, 9)}) > 1


def test_a_nemesis_that_fails_is_reported_and_the_cluster_mended(monkeypatch):
    with SyncCluster(1, in_process=True) as cluster:
        chaos = Chaos(cluster)

        def fails(nemesis):
            nemesis.cluster.pause(1)
            raise OttlaError("planted")

        monkeypatch.setitem(sys.modules["ottla.testing.chaos"].NEMESES, "kill_any", fails)
        with pytest.raises(OttlaError, match="a nemesis failed: planted"):
            with chaos.during("kill_any", pause_s=(0, 0.01)):
                until(lambda: cluster.paused(1), 30, "it is paused")
        assert not cluster.paused(1)
        assert cluster.controller == 1
        with pytest.raises(ConfigError, match="no nemesis kill_everyone"):
            with chaos.during("kill_everyone"):
                pass


def test_the_error_of_the_block_is_the_one_that_is_raised():
    with SyncCluster(1, in_process=True) as cluster:
        with pytest.raises(ZeroDivisionError):
            with Chaos(cluster).during("slow_broker", pause_s=(0, 0.01)):
                _ = 1 / 0
        assert cluster.controller == 1
