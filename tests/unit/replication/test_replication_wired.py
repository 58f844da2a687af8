"""Replication end to end over real logs, codec and connections, in memory and without waiting.

The first five are those of Kafka's EpochDrivenReplicationProtocolAcceptanceTest; the others carry
the number of the rule in docs/RELIABILITY.md that they prove.
"""

import asyncio
import random

import pytest

from ottla.model.cluster import RECOVERING
from ottla.model.errors import ConnectionLostError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.replication.isr import IsrState


def values(node):
    return [v.decode() for _, _, v in node.records()]


def assert_same_logs(cluster, brokers=(1, 2, 3)):
    expected = cluster[brokers[0]].records()
    for broker in brokers[1:]:
        assert cluster[broker].records() == expected, f"broker {broker} differs"
    epochs = cluster[brokers[0]].log().epochs.entries
    for broker in brokers[1:]:
        # An epoch without a record is known to its leader only.
        end = cluster[broker].log().log_end_offset
        mine = [e for e in cluster[broker].log().epochs.entries if e[1] < end]
        assert mine == [e for e in epochs if e[1] < end]


# --- EpochDrivenReplicationProtocolAcceptanceTest ------------------------------------------------


def test_basic_workflow(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2, 3], new=True)
        first = await c.produce(1, "a", "b")
        assert (first.error_code, first.base_offset) == (0, 0)
        second = await c.produce(1, "c")
        assert (second.error_code, second.base_offset) == (0, 2)
        assert c[1].log().high_watermark == 3
        await c.settle()
        for broker in (1, 2, 3):
            assert values(c[broker]) == ["a", "b", "c"]
            assert c[broker].log().high_watermark == 3
            assert c[broker].log().epochs.entries == [(0, 0)]
        await c[3].stop()
        await c.controller.lead(1, isr=[1, 2])
        await c.produce(1, "d")
        await c.controller.lead(2)
        await c.produce(2, "e")
        await c[3].start()
        await c.controller.lead(2)
        await c.until(lambda: c[3].partition().log.log_end_offset == 5)
        assert c[3].log().epochs.entries == [(0, 0), (1, 3), (2, 4)]
        assert_same_logs(c)

    wired(scenario)


def test_no_divergent_logs(wired):
    """Each broker alone writes what the other lacks (acks=1); one history must win completely."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, *"abcdefghij")
        await c.settle()
        await c[2].stop()
        for i in range(20):
            await c.produce(1, f"only-on-1-{i}", acks=1)
        await c[1].stop()
        await c[2].start()
        await c.controller.lead(2, isr=[2])
        for i in range(7):
            await c.produce(2, f"only-on-2-{i}", f"and-{i}", acks=1)
        await c[1].start()
        await c.controller.tell(c.controller.states["t", 0], [1])
        await c.until(lambda: sorted(c[2].partition().state.isr.committed) == [1, 2])
        assert_same_logs(c, (1, 2))
        assert values(c[1])[10:12] == ["only-on-2-0", "and-0"]
        assert not any("only-on-1" in v for v in values(c[1]))

    wired(scenario, brokers=2, min_insync_replicas=1)


def test_offsets_do_not_go_backwards(wired):
    """A high watermark that was shown, and a record below it, survive every clean election."""

    async def scenario(c):
        shown = {}
        await c.controller.lead(1, replicas=[1, 2], new=True)
        for turn in range(12):
            leader = 1 + turn % 2
            follower = 3 - leader
            await c.controller.lead(leader)
            for i in range(5):
                await c.produce(leader, f"{turn}-{i}")
            offset = c[leader].log().high_watermark
            for at, epoch, value in c[leader].records():
                if at < offset:
                    assert shown.setdefault(at, (epoch, value)) == (epoch, value)
            await c.produce(leader, f"{turn}-unacked", acks=1)
            await c[leader].stop()
            await c.controller.lead(follower, isr=[follower], to=[follower])
            assert c[follower].log().log_end_offset >= offset
            await c[leader].start()
            await c.controller.tell(c.controller.states["t", 0], [leader])
            await c.until(lambda f=follower: len(c[f].partition().state.isr.committed) == 2)
        assert_same_logs(c, (1, 2))

    wired(scenario, brokers=2)


def test_fast_leader_changes(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        for turn in range(10):
            leader = 1 + turn % 2
            await c.controller.lead(leader)
            await c.produce(leader, f"{turn}", acks=1)
            await c.produce(leader, f"all-{turn}", acks=-1, timeout_ms=1000)
            # Two changes in a row, without a record in between.
            await c.controller.lead(3 - leader)
            await c.controller.lead(leader)
        await c.produce(2, "end")
        await c.settle()
        assert_same_logs(c, (1, 2))
        assert values(c[1])[-1] == "end"
        starts = [start for _, start in c[1].log().epochs.entries]
        assert starts == sorted(set(starts))

    wired(scenario, brokers=2)


def test_no_divergence_on_unclean_elections(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "common")
        await c.settle()
        for turn in range(4):
            one, two = (1, 2) if turn % 2 == 0 else (2, 1)
            await c[two].stop()
            await c.controller.lead(one, isr=[one], to=[one])
            for i in range(turn + 2):
                await c.produce(one, f"{turn}-on-{one}-{i}", acks=1)
            await c[one].stop()
            await c[two].start()
            await c.controller.lead(two, isr=[two], to=[two])  # unclean: `two` lacks records
            await c.produce(two, f"{turn}-on-{two}", acks=1)
            await c[one].start()
            await c.controller.tell(c.controller.states["t", 0], [one])
            await c.until(lambda b=two: len(c[b].partition().state.isr.committed) == 2)
            assert_same_logs(c, (1, 2))
        assert values(c[1])[0] == "common"

    wired(scenario, brokers=2, min_insync_replicas=1)


def test_an_unclean_election_logs_which_committed_records_are_lost(wired, caplog):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "common")
        await c.settle()
        await c[2].stop()
        await c.controller.lead(1, isr=[1], to=[1])
        for value in ("lost", "too"):
            assert (await c.produce(1, value)).error_code == 0
        await c[1].stop()
        await c[2].start()
        await c.controller.lead(2, isr=[2], to=[])
        state = c.controller.states["t", 0]
        state.leader_recovery_state = RECOVERING
        await c.controller.tell(state, [2])
        await c.produce(2, "other", acks=1)
        await c[1].start()
        await c.controller.tell(state, [1])
        await c.until(lambda: len(c[2].partition().state.isr.committed) == 2)
        assert values(c[1]) == ["common", "other"]
        (fetcher,) = c[1].replicas.fetchers.statistics()["fetchers"]
        assert fetcher["records_lost_total"] == 2
        fetchers = c[1].replicas.fetchers
        assert fetchers.records_lost_total == 2
        fetchers.remove([TopicPartition("t", 0)])
        fetchers.close_idle()
        assert fetchers.statistics()["fetchers"] == []
        assert fetchers.records_lost_total == 2, "a fetcher that ends takes no figure along"

    wired(scenario, brokers=2, min_insync_replicas=1)
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert [text.partition(":")[0] for text in warnings if "unclean election" in text] == [
        "unclean election partition=t-0 leader_epoch=2 offset=1"
    ]
    assert [text.partition(":")[0] for text in warnings if "lost records" in text] == [
        "lost records partition=t-0 offsets=1..2 leader=2 leader_epoch=2"
    ]
    assert DOUBTFUL not in caplog.text, "they were acknowledged for sure"


DOUBTFUL = "truncated records may have been acknowledged"


def doubtful(caplog):
    return [
        r.getMessage().partition(":")[0].removeprefix(DOUBTFUL)
        for r in caplog.records
        if r.levelname == "WARNING" and r.getMessage().startswith(DOUBTFUL)
    ]


def test_f43_after_a_crash_each_truncated_record_may_have_been_acknowledged(wired, caplog):
    """Its high watermark is the checkpoint's, which was written before it had any."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "common")
        await c.settle()
        await c[2].stop()
        await c.controller.lead(1, isr=[1], to=[1])
        for value in ("acknowledged", "too"):
            assert (await c.produce(1, value)).error_code == 0
        await c[1].stop(clean=False)
        c[1].path("replication-offset-checkpoint").write_bytes(b"0\n0\n")
        await c[2].start()
        await c.controller.lead(2, isr=[2], to=[2])
        await c[1].start()
        await c.controller.tell(c.controller.states["t", 0], [1])
        await c.until(lambda: len(c[2].partition().state.isr.committed) == 2)
        assert values(c[1]) == ["common"]
        assert c[1].replicas.fetchers.records_doubtful_total == 2

    wired(scenario, brokers=2, min_insync_replicas=1)
    assert doubtful(caplog) == [" partition=t-0 offsets=1..2 leader=2 leader_epoch=2"]


def test_f43_a_leader_that_lives_on_knows_what_it_did_not_acknowledge(wired, caplog):
    caplog.set_level("INFO")

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "common")
        await c.settle()
        c.cuts.add(frozenset(("b1", "b2")))
        await c.produce(1, "tail", acks=1)
        await c[2].stop()
        c.cuts.clear()
        await c[2].start()
        await c.controller.lead(2, isr=[2], to=[1, 2])
        await c.until(lambda: len(c[2].partition().state.isr.committed) == 2)
        assert values(c[1]) == ["common"]
        assert c[1].replicas.fetchers.records_doubtful_total == 0

    wired(scenario, brokers=2, min_insync_replicas=1)
    assert doubtful(caplog) == []
    assert "truncate partition=t-0 to_offset=1 log_end_offset=2" in caplog.text


# --- the rules ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["3.9-IV0", "3.0-IV1", "2.7-IV2"])
def test_kip279_double_failover(wired, protocol):
    """R2, KIP-279: two elections between two fetches; the follower walks back epoch by epoch."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "m0", "m1")
        await c.settle()
        # Epoch 1: 2 leads alone and writes m2; epoch 2: 1 leads alone and writes n2, n3.
        await c[1].stop()
        await c.controller.lead(2, isr=[2], to=[2])
        await c.produce(2, "m2", acks=1)
        await c[2].stop()
        await c[1].start()
        await c.controller.lead(1, isr=[1], to=[1])
        await c.produce(1, "n2", acks=1)
        await c.produce(1, "n3", acks=1)
        # Epoch 3: 2 follows 1. Its last epoch (1) is unknown to 1; offset 2 holds different data.
        await c[2].start()
        await c.controller.lead(1, isr=[1])
        await c.until(lambda: sorted(c[1].partition().state.isr.committed) == [1, 2])
        assert values(c[2]) == ["m0", "m1", "n2", "n3"]
        assert_same_logs(c, (1, 2))

    wired(scenario, brokers=2, inter_broker_protocol_version=protocol)


def test_r1_nothing_is_adopted_before_epochs_match(wired):
    """R1, R11: a diverged follower first cuts; the response's high watermark does not count."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        await c.settle()
        c.part(2, 1)
        await c.controller.lead(1, isr=[1], to=[1])
        for v in "bcd":
            await c.produce(1, v)
        assert c[1].log().high_watermark == 4
        # 2 writes two records of its own in a later epoch that 1 never gets.
        await c.controller.lead(2, isr=[2], to=[2])
        await c.produce(2, "x", "y", acks=1)
        await c.controller.lead(1, isr=[1], to=[1])
        c.heal()
        seen = []
        log = c[2].log()
        adopt = log.set_high_watermark
        log.set_high_watermark = lambda o: (seen.append((o, values(c[2]))), adopt(o))[1]
        await c.controller.tell(c.controller.states["t", 0], [2])
        await c.until(lambda: values(c[2]) == ["a", "b", "c", "d"])
        assert all("x" not in have for mark, have in seen if mark > 1)

    wired(scenario, brokers=2, min_insync_replicas=1)


def test_r3_a_fenced_follower_waits_for_the_controller(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        await c.controller.lead(1, to=[1])  # 2 does not hear of epoch 1
        await c.settle(1)
        assert TopicPartition("t", 0) in c[2].replicas.fetchers.failed
        await c.controller.tell(c.controller.states["t", 0], [2])
        answer = await c.produce(1, "b")
        assert answer.error_code == 0
        assert values(c[2]) == ["a", "b"]

    wired(scenario, brokers=2)


def test_r3_a_follower_ahead_of_its_leader_tries_again(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.controller.lead(1, to=[2])  # 1 hears of epoch 1 later
        await c.settle(0.5)
        assert not c[2].replicas.fetchers.failed
        await c.controller.tell(c.controller.states["t", 0], [1])
        answer = await c.produce(1, "b")
        assert answer.error_code == 0

    wired(scenario, brokers=2)


def test_f53_a_follower_leaves_the_former_address_of_its_leader(wired, caplog):
    """The process there responds, but another one has taken its place and leads."""
    caplog.set_level("INFO", logger="ottla.replication.fetcher")

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        await c.settle(1)
        at = [r.message for r in caplog.records if "fetcher connected leader=1" in r.message]
        assert len(at) == 1
        c.metadata.alive[1] = c[3].endpoint
        await c.controller.lead(1, to=[2])  # the process that lost its place hears of nothing
        await c.settle(1)
        at = [r.message for r in caplog.records if "fetcher connected leader=1" in r.message]
        assert len(at) == 2
        assert "host=b3" in at[1]

    wired(scenario)


def test_r3_query_with_a_wrong_epoch(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1], new=True)
        await c.controller.lead(1)
        await c.produce(1, "a")
        for epoch, code in (
            (0, ErrorCode.FENCED_LEADER_EPOCH),
            (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (1, ErrorCode.NONE),
            (-1, ErrorCode.NONE),
        ):
            response = await c[1].send(wired.fetch_request(0, epoch=epoch), 17)
            assert response.responses[0].partitions[0].error_code == code
            response = await c[1].send(wired.list_offsets_request(-1, epoch=epoch), 9)
            assert response.topics[0].partitions[0].error_code == code

    wired(scenario, brokers=1)


def test_r4_the_watermark_waits_for_this_epoch(wired):
    """R4: what a follower had in an earlier epoch does not count in the next."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        c.part(2, 1)
        await c.produce(1, "b", acks=1)
        await c.controller.lead(1, to=[1])
        follower = c[1].partition().state.followers[2]
        assert follower.log_end_offset == -1
        assert c[1].log().high_watermark == 1
        c.heal()
        await c.controller.tell(c.controller.states["t", 0], [2])
        await c.until(lambda: c[1].log().high_watermark == 2)

    wired(scenario, brokers=2)


def test_r5_liveness_below_min_isr(wired):
    """R5: ISR {L}, min.insync.replicas 2, high watermark below the epoch's start; all come back."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2, 3], new=True)
        await c.produce(1, "a")
        await c[2].stop()
        await c[3].stop()
        await c.produce(1, "b", acks=1)
        await c.controller.lead(1, isr=[1], to=[1])
        assert c[1].log().high_watermark == 1
        assert c[1].partition().state.epoch_start == 2
        refused = await c.produce(1, "no")
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert values(c[1]) == ["a", "b"]
        latest = await c[1].send(wired.list_offsets_request(-1), 9)
        assert latest.topics[0].partitions[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        older = await c[1].send(wired.list_offsets_request(-1), 4)
        assert older.topics[0].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        await c[2].start()
        await c[3].start()
        await c.controller.tell(c.controller.states["t", 0], [2, 3])
        await c.until(lambda: sorted(c[1].partition().state.isr.committed) == [1, 2, 3])
        await c.until(lambda: c[1].log().high_watermark == 2)
        accepted = await c.produce(1, "c")
        assert (accepted.error_code, accepted.base_offset) == (0, 2)

    wired(scenario, topic={"min.insync.replicas": "2"})


def test_r6_shrink_then_expand(wired):
    """R6: a follower that stands still leaves the ISR after the lag period and comes back."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2, 3], new=True)
        await c.produce(1, "a")
        c.part(3, 1)
        waits = asyncio.ensure_future(c.produce(1, "b", timeout_ms=60_000))
        started = c.now
        await c.until(lambda: sorted(c[1].partition().state.isr.committed) == [1, 2])
        assert 9 < c.now - started < 16
        assert (await waits).error_code == 0
        c.heal()
        await c.until(lambda: sorted(c[1].partition().state.isr.committed) == [1, 2, 3])
        assert_same_logs(c)
        assert c.controller.states["t", 0].isr == list(c[1].partition().state.isr.committed)

    wired(scenario)


def test_r6_silence_of_an_idle_partition_is_no_lag(wired):
    """A follower whose session had nothing to say for minutes counts as caught up until then."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        await c.settle(120)
        c.part(2, 1)
        await c.produce(1, "b", acks=1)
        for _ in range(8):
            await c.settle(1)
            await c[1].replicas.expire_isr_once()
            assert c[1].partition().state.isr.maximal == (1, 2)
            assert not c[1].partition().state.isr.in_flight
        await c.until(lambda: c[1].partition().state.isr.committed == (1,), seconds=8)

    wired(scenario, brokers=2)


def test_r6_a_stale_version_waits_and_does_not_loop(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        c.controller.states["t", 0].partition_epoch += 1  # somebody else wrote
        c.part(2, 1)
        await c.produce(1, "b", acks=1)
        await c.settle(60)
        assert len(c.controller.requests) == 1
        assert c[1].partition().state.isr.maximal == (1, 2)
        assert c[1].log().high_watermark == 1
        c.heal()
        await c.controller.lead(1)
        await c.until(lambda: c[1].log().high_watermark == 2)

    wired(scenario, brokers=2)


def test_r6_a_lost_request_is_sent_again(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        c.part(2, 1)
        await c.produce(1, "b", acks=1)
        c.part(1, "controller")
        await c.settle(30)
        assert c[1].partition().state.isr.in_flight
        c.cuts.discard(frozenset(("b1", "controller")))
        await c.until(lambda: c[1].partition().state.isr.committed == (1,))
        assert c[1].log().high_watermark == 2

    wired(scenario, brokers=2)


def test_r7_the_watermark_obeys_the_maximal_isr(wired):
    """R7: a follower about to join counts at once; one about to leave still counts."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2, 3], isr=[1, 2], new=True)
        c.controller.silent = True
        await c.produce(1, "a")
        await c.until(lambda: c[1].partition().state.isr.in_flight)
        assert c[1].partition().state.isr.maximal == (1, 2, 3)
        assert c[1].partition().state.isr.committed == (1, 2)
        c.part(3, 1)
        late = await c.produce(1, "b", timeout_ms=3000)
        assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert c[1].log().high_watermark == 1

    wired(scenario)


def test_r8_a_fetch_of_an_earlier_incarnation(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        request = wired.fetch_request(0, epoch=0, replica=2)
        request.replica_state.replica_epoch = c[2].epoch - 1
        response = await c[1].send(request, 17)
        data = response.responses[0].partitions[0]
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert c[1].partition().state.followers[2].log_end_offset == 1

    wired(scenario, brokers=2)


def test_r8_a_control_request_for_an_earlier_incarnation(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1], new=True)
        state = c.controller.states["t", 0]
        state.leader_epoch += 1
        now, c[1].epoch = c[1].epoch, c[1].epoch - 1
        stale = asyncio.ensure_future(c.controller.tell(state))
        await asyncio.sleep(0)
        c[1].epoch = now
        answers = await stale
        assert answers[1].error_code == ErrorCode.STALE_BROKER_EPOCH
        assert c[1].partition().state.leader_epoch == 0

    wired(scenario, brokers=1)


def test_r9_a_dead_broker_is_not_added(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], isr=[1], new=True, to=[1])
        del c.metadata.alive[2]  # it fetches, but its registration is gone
        await c.controller.tell(c.controller.states["t", 0], [2])
        await c.produce(1, "a")
        await c.settle(5)
        assert c[1].partition().state.isr.committed == (1,)
        assert not c.controller.requests
        c.metadata.alive[2] = c[2].endpoint
        await c.until(lambda: c[1].partition().state.isr.committed == (1, 2))

    wired(scenario, brokers=2)


def test_r9_an_ineligible_replica_is_proposed_again_later(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], isr=[1], new=True)
        c.controller.refuse = ErrorCode.INELIGIBLE_REPLICA
        await c.until(lambda: c.controller.requests)
        await c.settle(5)
        assert 3 <= len(c.controller.requests) <= 12
        assert c[1].partition().state.isr.committed == (1,)
        c.controller.refuse = None
        await c.until(lambda: c[1].partition().state.isr.committed == (1, 2))

    wired(scenario, brokers=2)


def test_r9_a_broker_that_shuts_down_begins_to_follow_nothing(wired):
    """The controller takes it into no ISR: fetching would only have leaders ask for it."""

    async def scenario(c):
        c[2].replicas.leaving = True
        await c.controller.lead(1, replicas=[1, 2, 3], isr=[1], new=True)
        await c.until(lambda: c[1].partition().state.isr.committed == (1, 3))
        await c.settle(2)
        assert c[1].partition().state.isr.committed == (1, 3)
        assert c[1].partition().state.followers[2].log_end_offset == -1
        assert (await c.produce(1, "a")).error_code == 0

    wired(scenario)


def test_a_produce_does_not_wait_for_a_follower_whose_broker_went(wired):
    """No append and no fetch comes any more: only the news that the broker is gone."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2, 3], isr=[1, 2], new=True)
        c[1].replicas.fence()  # 3 catches up and is not proposed
        await c.until(lambda: c[1].partition().state.followers[3].log_end_offset == 0)
        assert c[1].partition().state.isr == IsrState.of((1, 2))
        c.part(3, 1)
        produced = asyncio.ensure_future(c.produce(1, "a", timeout_ms=20_000))
        await c.until(lambda: c[1].partition().state.followers[2].log_end_offset == 1)
        await c.settle(1)
        assert not produced.done()
        del c.metadata.alive[3]
        await c.settle(1)
        assert not produced.done()
        await c[1].replicas.raise_high_watermarks()
        assert (await produced).error_code == 0
        assert c[1].log().high_watermark == 1

    wired(scenario)


def test_r10_an_earlier_controller(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        c.controller.epoch = 0
        answers = await c.controller.lead(2)
        assert {a.error_code for a in answers.values()} == {ErrorCode.STALE_CONTROLLER_EPOCH}
        assert c[1].partition().state.leader == 1

    wired(scenario, brokers=2)


def test_leader_epoch_rules(wired):
    """Only a higher leader epoch is applied; equal and lower are error 11, a strange id 103."""

    async def scenario(c):
        answers = await c.controller.lead(1, replicas=[1], new=True)
        item = answers[1].topics[0].partition_errors[0]
        assert item.error_code == 0
        state = c.controller.states["t", 0]
        answers = await c.controller.tell(state)
        item = answers[1].topics[0].partition_errors[0]
        assert item.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        state.leader_epoch = -1
        answers = await c.controller.tell(state)
        item = answers[1].topics[0].partition_errors[0]
        assert item.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert c[1].partition().state.leader_epoch == 0
        state.leader_epoch = 7
        answers = await c.controller.tell(state, topic_id=bytes(15) + b"\x09")
        assert answers[1].error_code == 0
        item = answers[1].topics[0].partition_errors[0]
        assert item.error_code == ErrorCode.INCONSISTENT_TOPIC_ID
        assert c[1].partition().state.leader_epoch == 0

    wired(scenario, brokers=1)


def test_r13_acks_all_below_min_isr(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        c.part(2, 1)
        waits = asyncio.ensure_future(c.produce(1, "b", timeout_ms=60_000))
        await c.until(lambda: c[1].partition().state.isr.committed == (1,))
        await c.settle(1)
        # Below min.insync.replicas the watermark is frozen: no response until the time is over.
        assert not waits.done()
        assert c[1].log().high_watermark == 1
        refused = await c.produce(1, "c")
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await c.produce(1, "d", acks=1)).error_code == 0
        assert c[1].log().high_watermark == 1
        c.heal()
        assert (await waits).error_code == 0
        assert c[1].partition().state.isr.committed == (1, 2)

    wired(scenario, brokers=2, topic={"min.insync.replicas": "2"})


def test_f7_a_zombie_acknowledges_nothing(wired):
    """A fenced leader that does not know it yet: acks=all fails in the end, its tail is cut."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2, 3], new=True)
        await c.produce(1, "a")
        c[1].replicas.fence()
        await c.controller.lead(2, isr=[2, 3], to=[2, 3])
        zombie = await c.produce(1, "lost", timeout_ms=30_000)
        assert zombie.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not c.controller.requests
        assert (await c.produce(2, "kept")).error_code == 0
        c[1].replicas.unfence()
        await c.controller.tell(c.controller.states["t", 0], [1])
        await c.until(lambda: values(c[1]) == ["a", "kept"])
        assert_same_logs(c)

    wired(scenario)


def test_resignation_completes_the_requests_that_wait(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        c.part(2, 1)
        produced = asyncio.ensure_future(c.produce(1, "a", timeout_ms=60_000))
        fetched = asyncio.ensure_future(
            c[1].send(wired.fetch_request(0, epoch=0, max_wait_ms=60_000), 17)
        )
        await c.settle(0.1)
        await c.controller.lead(2, isr=[2])
        started = c.now
        answer = await produced
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 1)
        data = (await fetched).responses[0].partitions[0]
        assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert c.now - started < 0.01

    wired(scenario, brokers=2)


def test_stop_replica_deletes(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.controller.lead(1)
        await c.produce(1, "a")
        stale = await c.controller.stop_replica(2, delete=True, leader_epoch=0)
        assert stale.partition_errors[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        kept = await c.controller.stop_replica(2, delete=False, leader_epoch=1)
        assert kept.partition_errors[0].error_code == 0
        assert c[2].log() is not None
        gone = await c.controller.stop_replica(2, delete=True)
        assert gone.partition_errors[0].error_code == 0
        assert c[2].log() is None
        again = await c.controller.stop_replica(2, delete=True)
        assert again.partition_errors[0].error_code == 0
        response = await c[2].send(wired.fetch_request(0), 17)
        data = response.responses[0].partitions[0]
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    wired(scenario, brokers=2)


def test_a_fetch_wakes_within_the_turn_of_the_append(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1], new=True)
        waits = asyncio.ensure_future(c[1].send(wired.fetch_request(0, max_wait_ms=30_000), 17))
        await c.settle(1)
        started = c.now
        await c.produce(1, "a")
        data = (await waits).responses[0].partitions[0]
        assert len(data.records) > 61
        assert c.now - started < 0.005, "more than the messages take"

    wired(scenario, brokers=1)


def test_acks_all_needs_no_waiting_after_an_election(wired):
    """A follower's parked fetch completes early, so that it can fetch its new partition."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True, index=0)
        await c.produce(1, "a")
        await c.settle(0.2)  # 2's fetch is parked at 1 now
        started = c.now
        await c.controller.lead(1, replicas=[1, 2], new=True, index=1)
        assert (await c.produce(1, "b", index=1)).error_code == 0
        assert c.now - started < 0.1

    wired(scenario, brokers=2)


def test_unclean_follower_restarts_at_the_leaders_offsets(wired):
    """A follower whose records the leader no longer has starts over at the leader's log start."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], isr=[1], new=True, to=[1])
        for v in "abcdef":
            await c.produce(1, v)
        c[1].log().maybe_increment_log_start_offset(4)
        await c.controller.tell(c.controller.states["t", 0], [2])
        await c.until(lambda: sorted(c[1].partition().state.isr.committed) == [1, 2])
        assert values(c[2]) == ["e", "f"]
        assert c[2].log().log_start_offset == 4

    wired(scenario, brokers=2)


def test_r14_a_removed_replica_is_not_added_again(wired):
    """KAFKA-9672: the controller removes 3; 3 has not got StopReplica and goes on fetching."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2, 3], new=True)
        await c.produce(1, "a")
        await c.controller.lead(1, replicas=[1, 2], isr=[1, 2], to=[1, 2])
        state = c.controller.states["t", 0]
        state.replicas = [1, 2, 3]
        await c.controller.tell(state, [3])
        for v in "bc":
            assert (await c.produce(1, v)).error_code == 0
        await c.settle(20)
        assert c[1].partition().state.isr.maximal == (1, 2)
        assert not c.controller.requests
        assert values(c[3]) == ["a"]

    wired(scenario)


def test_r14_an_added_replica_joins_once_it_has_all(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        for i in range(30):
            await c.produce(1, f"v{i}")
        await c.controller.lead(1, replicas=[3, 1, 2], isr=[1, 2], to=[1, 2])
        await c.controller.tell(c.controller.states["t", 0], [3])
        await c.until(lambda: c[1].partition().state.isr.committed == (1, 2, 3))
        assert_same_logs(c)

    wired(scenario)


def test_r14_one_bad_partition_does_not_stop_the_others(wired):
    async def scenario(c):
        for index in (0, 1):
            await c.controller.lead(1, replicas=[1, 2], new=True, index=index)
            await c.produce(1, "a", index=index)
        log = c[2].log(0)
        append = log.append_as_follower
        broken = True

        def refusing(records):
            if broken:
                raise ZeroDivisionError("a bug of ours")
            return append(records)

        log.append_as_follower = refusing
        await c.produce(1, "b", acks=1)
        await c.settle(3)
        assert (await c.produce(1, "b", index=1)).error_code == 0
        assert log.log_end_offset == 1
        broken = False
        await c.until(lambda: log.log_end_offset == 2, seconds=3)

    wired(scenario, brokers=2)


@pytest.mark.parametrize("protocol", ["3.9-IV0", "2.7-IV2"])
@pytest.mark.parametrize("seed", range(6))
def test_random_leaders_and_crashes_leave_equal_logs(wired, seed, protocol):
    chance = random.Random(seed)

    async def scenario(c):
        acked = []
        await c.controller.lead(1, replicas=[1, 2, 3], new=True)
        number = 0
        for _ in range(14):
            state = c.controller.states["t", 0]
            live = [b for b in (1, 2, 3) if c[b].running]
            candidates = [b for b in state.isr if b in live]
            what = chance.random()
            if what < 0.3 and len(live) == 3:
                victim = chance.choice(live)
                await c[victim].stop(clean=False)
                isr = [b for b in state.isr if b != victim] or state.isr
                leader = state.leader if state.leader != victim else isr[0]
                await c.controller.lead(leader, isr=isr)
            elif what < 0.6 and len(live) < 3:
                dead = next(b for b in (1, 2, 3) if not c[b].running)
                await c[dead].start()
                await c.controller.tell(state, [dead])
            else:
                await c.controller.lead(chance.choice(candidates))
            leader = c.controller.states["t", 0].leader
            for _ in range(chance.randint(1, 5)):
                number += 1
                acks = chance.choice((1, -1))
                answer = await c.produce(leader, f"v{number}", acks=acks, timeout_ms=30_000)
                if acks == -1 and not answer.error_code:
                    acked.append(f"v{number}")
            if chance.random() < 0.5:
                await c.settle(chance.random())
        for broker in (1, 2, 3):
            if not c[broker].running:
                await c[broker].start()
        leader = c.controller.states["t", 0].isr[0]
        await c.controller.lead(leader)
        await c.until(lambda: len(c[leader].partition().state.isr.committed) == 3)
        await c.settle()
        assert_same_logs(c)
        have = values(c[1])
        assert [v for v in have if v in set(acked)] == acked

    wired(scenario, inter_broker_protocol_version=protocol)


def test_r13_nothing_is_acknowledged_before_no_replica_outside_the_isr_may_be_elected(wired):
    """The leader asks until ZooKeeper responds, and again in the next partition epoch."""

    async def scenario(c):
        asked, refusals = [], [2, 1]

        async def void(isrs):
            asked.append(dict(isrs))
            if refusals[0] > 0:
                refusals[0] -= 1
                raise ConnectionLostError("no session")
            if refusals[1] > 0:  # the state has another version
                refusals[1] -= 1
                return ()
            return isrs.keys()

        c[1].replicas.eligible_records._void = void
        tp = TopicPartition("t", 0)
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "both")
        await c.settle()
        assert not asked, "none is outside the ISR"
        await c[2].stop()
        await c.controller.lead(1, isr=[1], to=[1])
        assert (await c.produce(1, "alone")).error_code == 0
        partition = c[1].partition()
        isr = {tp: (frozenset({1}), partition.state.partition_epoch)}
        assert asked == [isr] * 4
        assert (await c.produce(1, "alone")).error_code == 0
        assert asked == [isr] * 4, "it was proven for this partition epoch"
        refusals[0] = 10**6
        await c.controller.lead(1, isr=[1], to=[1])
        end = partition.log.high_watermark
        await c.produce(1, "not yet", acks=1)
        await c.settle()
        assert (partition.log.high_watermark, partition.log.log_end_offset) == (end, end + 1)
        refusals[0] = 0
        await c.until(lambda: partition.log.high_watermark == end + 1)

    wired(scenario, brokers=2, min_insync_replicas=1)
