"""Chaos and its checker on a real cluster: a real loss is found, and seeds repeat choices."""

import asyncio
import contextlib
import sys
import threading

import pytest
from confluent_kafka import Producer

import ottla
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
        cluster.restart(1)
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


@pytest.mark.parametrize("when", ["before the block", "in the block", "after the block"])
def test_a_nemesis_that_fails_is_reported_and_the_cluster_mended(monkeypatch, when):
    with SyncCluster(1, in_process=True) as cluster:
        chaos = Chaos(cluster)
        begun = threading.Event()

        @contextlib.contextmanager
        def fails(nemesis):
            nemesis.cluster.pause(1)
            if when != "before the block":
                yield
            if when == "after the block":
                until(lambda: not nemesis._working(), 30, "the block is over")
            raise OttlaError("planted")

        monkeypatch.setitem(sys.modules["ottla.testing.chaos"].NEMESES, "kill_any", fails)

        def work():
            with chaos.during("kill_any", pause_s=(0, 0.01), longest_s=0.01):
                begun.set()
                if when == "in the block":
                    until(lambda: not chaos.pending, 30, "an application does not wait for ever")

        with pytest.raises(OttlaError, match="nemesis kill_any failed: planted"):
            work()
        assert begun.is_set() == (when != "before the block")
        assert not cluster.paused(1)
        assert cluster.controller == 1
        assert not chaos.happened
        with pytest.raises(ConfigError, match="no nemesis kill_everyone"):
            with chaos.during("kill_everyone"):
                pass


def test_each_nemesis_that_is_named_happens_though_the_application_is_done_at_once():
    names = ["kill_any", "pause_leader", "slow_broker", "partition_leader", "rolling_restart"]
    with SyncCluster(3, in_process=True) as cluster:
        cluster.create_topic("orders")
        chaos = Chaos(cluster, seed=1)
        with chaos.during(*names, pause_s=(0, 0.01), longest_s=0.05):
            down = [b for b in cluster.broker_ids if not cluster.running(b)]
            assert len(down) == 1, "the first fault is not in force when the block begins"
        assert chaos.happened == dict.fromkeys(names, 1)
        assert chaos.late == {**dict.fromkeys(names, 1), "kill_any": 0}
        assert not chaos.pending
        assert all(cluster.running(b) and not cluster.paused(b) for b in cluster.broker_ids)
        write(cluster.bootstrap, chaos, "all", ["one"])
        assert str(chaos.check()).splitlines()[-1] == (
            "faults: kill_any 1, partition_leader 1, pause_leader 1, rolling_restart 1, "
            "slow_broker 1 (after the block's work: partition_leader 1, pause_leader 1, "
            "rolling_restart 1, slow_broker 1)"
        )


def test_an_application_that_is_done_at_once_meets_the_first_fault():
    """All that a leader acknowledged alone is lost, though the block takes only a moment."""
    with SyncCluster(3, in_process=True) as cluster:
        cluster.create_topic("orders")
        chaos = Chaos(cluster)
        with chaos.during("kill_isolated_leader", longest_s=0.1):
            write(cluster.bootstrap, chaos, "1", [f"{n}" for n in range(500)])
        with pytest.raises(AssertionError, match="500 records acknowledged, 0 found\nlost: 500"):
            chaos.check()


def test_in_asyncio_the_loop_runs_while_faults_happen():
    async def main():
        async with ottla.Cluster(3, in_process=True) as cluster:
            await cluster.create_topic("orders")
            chaos = Chaos(cluster)
            turns = 0

            async def turn():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0.001)

            task = asyncio.create_task(turn())
            async with chaos.during("kill_leader", "pause_leader", longest_s=0.3) as same:
                assert same is chaos
                before = turns
            assert turns > before + 50, "the loop stood still at the end of the block"
            task.cancel()
            assert chaos.happened == {"kill_leader": 1, "pause_leader": 1}

    asyncio.run(main())


def test_a_check_without_a_fault_fails(capsys):
    with SyncCluster(1, in_process=True) as cluster:
        cluster.create_topic("orders")
        cluster.pause(1)
        cluster.resume(1)
        chaos = Chaos(cluster)
        assert chaos.unchecked == 0
        write(cluster.bootstrap, chaos, "all", ["one"])
        with pytest.raises(AssertionError, match="no fault happened, so this check proves nothing"):
            chaos.check()
        cluster.kill(1)
        cluster.start(1)
        assert chaos.check().faults == {"kill": 1}
        assert chaos.unchecked == 0
        out = capsys.readouterr().out
        assert out == "chaos: 1 records acknowledged, 1 found; faults: kill 1\n"


@pytest.mark.parametrize("name", ["kill_leader", "pause_leader", "kill_isolated_leader"])
def test_a_leader_of_nothing_is_an_error(name):
    with SyncCluster(1, in_process=True) as cluster:
        with pytest.raises(OttlaError, match=f"{name} failed: there is no partition whose leader"):
            Chaos(cluster).once(name)
        assert not cluster.faults


@pytest.mark.parametrize("name", ["kill_isolated_leader", "lose_responses"])
def test_a_fault_that_meets_no_write_did_not_happen(name):
    with SyncCluster(3, in_process=True) as cluster:
        cluster.create_topic("orders")
        chaos = Chaos(cluster)
        with pytest.raises(OttlaError, match=f"{name} failed: nothing was written to leader"):
            with chaos.during(name, longest_s=0.05):
                pass
        assert not chaos.happened
        assert cluster.faults["kill"] == 0
        cluster.wait_until_in_sync()


def test_a_full_disk_that_nothing_is_written_to_is_no_fault(monkeypatch):
    nemeses = sys.modules["ottla.testing.nemeses"]
    monkeypatch.setattr(nemeses, "ENDS_WITHIN_S", 0.1)
    with SyncCluster(1, in_process=True) as cluster:
        monkeypatch.setattr(cluster, "disk_full", lambda broker: None)
        chaos = Chaos(cluster)
        with pytest.raises(OttlaError, match="broker 1 wrote nothing to its full disk"):
            chaos.once("disk_full", longest_s=0.01)
        assert not chaos.happened


def test_the_error_of_the_block_is_the_one_that_is_raised():
    with SyncCluster(1, in_process=True) as cluster:
        with pytest.raises(ZeroDivisionError):
            with Chaos(cluster).during("slow_broker", pause_s=(0, 0.01)):
                _ = 1 / 0
        assert cluster.controller == 1
