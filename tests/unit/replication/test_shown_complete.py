"""R18: a log that may have lost its tail counts only once it is shown to have all there was.

Answers that were cut short, errors and silence show nothing: neither to a follower, nor to a broker
that is to lead.
"""

import pytest

from ottla.model.errors import CorruptRecordError, ErrorCode
from ottla.model.ids import TopicPartition

LARGE = "x" * 900_000
COUNT = 6
"""partitions of two large batches each: more than is read from files for one response"""
SMALL = COUNT
"""the partition that is left out of such a response"""
TP = TopicPartition("t", SMALL)


def values(node, index=0):
    return [v.decode() for _, _, v in node.records(index)]


async def write(c, leader, *records, index=0, acks=-1):
    for v in records:
        assert (await c.produce(leader, v, index=index, acks=acks)).error_code == 0


async def crash_with_cold_files(c, victim, brokers=(1, 2, 3)):
    """Fill the partitions, crash all brokers; the victim loses the end of each log."""
    for index in range(COUNT + 1):
        await c.controller.lead(1, replicas=brokers, new=True, index=index)
    for index in range(COUNT):
        await write(c, 1, LARGE, LARGE, index=index)
    await write(c, 1, *"abcdef", index=SMALL)
    await c.until(lambda: all(c[b].log(SMALL).log_end_offset == 6 for b in brokers))
    for broker in brokers:
        await c[broker].stop(clean=False)
    for index in range(COUNT):
        c[victim].lose_tail(1, index)
    c[victim].lose_tail(2, SMALL)
    for broker in brokers:
        await c[broker].start()


def test_r18_a_follower_is_not_in_sync_after_a_response_that_was_cut_short(wired):
    """What it was not sent, for want of room, it does not have: 3 keeps what 2 lost."""

    async def scenario(c):
        await crash_with_cold_files(c, 2)
        for index in range(COUNT + 1):
            await c.controller.lead(1, isr=[1, 2, 3], index=index)
        cleared = []

        class Marks(set):
            def discard(self, tp):
                if tp in self:
                    cleared.append((tp.partition, c[2].log(tp.partition).log_end_offset))
                    if tp == TP and not c.cuts:
                        c.part(2, 1)  # its leader is gone in this moment
                super().discard(tp)

        c[2].logs.unclean = Marks(c[2].logs.unclean)
        await c.until(lambda: TP not in c[2].logs.unclean)
        assert [end for index, end in cleared if index == SMALL] == [6]
        assert all(end == 2 for index, end in cleared if index != SMALL)
        await c[1].stop(clean=False)
        c.heal()
        await c.controller.lead(2, isr=[2, 3], index=SMALL, to=[2, 3])
        await c.until(lambda: c[2].partition(SMALL).state.is_leader)
        ours, other = c[2].log(SMALL), c[3].log(SMALL)
        await c.until(lambda: ours.log_end_offset == other.log_end_offset)
        assert values(c[2], SMALL) == values(c[3], SMALL) == list("abcdef")

    wired(scenario)


def test_r18_a_new_leader_does_not_confirm_a_replica_whose_response_was_cut_short(wired):
    """Broker 1 lost its tails and is to lead: 2 cannot give all of it in one response."""

    async def scenario(c):
        await crash_with_cold_files(c, 1, brokers=(1, 2))
        for index in range(COUNT + 1):
            await c.controller.lead(1, isr=[1], index=index)
        for index in range(COUNT + 1):
            await c.until(lambda i=index: c[1].partition(i).state.is_leader)
        assert values(c[1], SMALL) == list("abcdef")
        assert all(c[1].log(index).log_end_offset == 2 for index in range(COUNT))

    wired(scenario, brokers=2)


def test_r18_a_replica_that_cannot_read_its_log_is_not_confirmed(wired):
    """Broker 2 alone kept the end, and its disk does not give it yet."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await write(c, 1, *"abcdef")
        for broker in (1, 2):
            await c[broker].stop(clean=False)
        c[1].lose_tail(2)
        for broker in (1, 2):
            await c[broker].start()
        read = c[2].log().read

        def fails(*_args):
            raise CorruptRecordError("cannot be read")

        c[2].log().read = fails
        await c.controller.lead(1, isr=[1])
        await c.settle(15)
        assert not c[1].partition().state.is_leader
        c[2].log().read = read
        await c.until(lambda: c[1].partition().state.is_leader)
        assert values(c[1]) == list("abcdef")

    wired(scenario, brokers=2)


def test_one_in_the_isr_that_lost_nothing_is_enough(wired):
    """Broker 3 never comes back; 2 was in sync and did not stop, so it has all there is."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2, 3], new=True)
        await write(c, 1, *"abcdef")
        await c.until(lambda: c[2].log().log_end_offset == 6)
        await c[3].stop(clean=False)
        await c.controller.lead(1, isr=[1, 2])
        await c[1].stop(clean=False)
        c[1].lose_tail(3)
        await c[1].start()
        await c.controller.tell(c.controller.states["t", 0], [1])
        await c.until(lambda: c[1].partition().state.is_leader, seconds=5)
        assert values(c[1]) == list("abcdef")

    wired(scenario)


def test_also_where_we_have_more_than_it(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2, 3], new=True)
        await write(c, 1, "a")
        await c.until(lambda: c[2].log().log_end_offset == 1)
        await c[3].stop()
        await c.controller.lead(1, isr=[1, 2])
        await c.settle(1)
        c.part(2, 1)
        await write(c, 1, "b", acks=1)
        await c[1].stop(clean=False)
        c.heal()
        await c[1].start()
        await c.controller.tell(c.controller.states["t", 0], [1])
        await c.until(lambda: c[1].partition().state.is_leader, seconds=5)
        assert values(c[1]) == ["a", "b"]

    wired(scenario)


@pytest.mark.parametrize("why", ["it crashed too", "it is not in the isr"])
def test_r13_but_not_one_of_which_that_is_not_known(wired, why):
    """Broker 3 may have what 1 and 2 both lack: it is waited for."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2, 3], new=True)
        await write(c, 1, *"abcdef")
        await c.until(lambda: all(c[b].log().log_end_offset == 6 for b in (2, 3)))
        await c[3].stop()
        await c[1].stop(clean=False)
        c[1].lose_tail(3)
        if why == "it crashed too":
            await c[2].stop(clean=False)
            c[2].lose_tail(4)
            await c[2].start()
        else:
            c[2].log().set_high_watermark(6)
            c[2].log().truncate_to(4)
        await c[1].start()
        await c.controller.lead(1, isr=[1, 2] if why == "it crashed too" else [1])
        await c.settle(60)
        assert not c[1].partition().state.is_leader
        refused = await c.produce(1, "g", acks=1)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await c[3].start()
        await c.controller.tell(c.controller.states["t", 0], [3])
        await c.until(lambda: c[1].partition().state.is_leader)
        assert values(c[1]) == list("abcdef")

    wired(scenario)


async def two_histories(c):
    """Offsets 2 and 3 as 1 wrote them in epoch 1, and 2 in epoch 0; the others followed neither."""
    await c.controller.lead(2, replicas=[1, 2], new=True)
    await write(c, 2, *"ab")
    await c.until(lambda: c[1].log().log_end_offset == 2)
    c.part(1, 2)
    await write(c, 2, *"cd", acks=1)
    await c[2].stop(clean=False)
    await c.controller.lead(1, isr=[1, 2], to=[1])
    await write(c, 1, *"xyz", acks=1)
    await c[1].stop(clean=False)
    c.heal()


@pytest.mark.parametrize("wrote", [True, False], ids=["with a record", "without a record"])
def test_a_leader_of_a_later_epoch_is_believed_whatever_its_last_records_epoch(wired, wrote):
    """2 led in epoch 2 and committed what it had of epoch 0; then 1, of epoch 1, is to lead.

    A power loss can bring about such an end of 1's: it undoes a truncation.
    """

    async def scenario(c):
        await two_histories(c)
        await c[2].start()
        c[2].logs.unclean.clear()
        await c.controller.lead(2, isr=[2], to=[2])
        assert c[2].partition().state.is_leader
        if wrote:
            await write(c, 2, "e", acks=1)
        expected = list("abcde") if wrote else list("abcd")
        assert values(c[2]) == expected
        await c[1].start()
        assert values(c[1]) == list("abxyz")
        await c.controller.lead(1, isr=[1, 2])
        await c.until(lambda: c[1].partition().state.is_leader)
        assert values(c[1]) == expected

    wired(scenario, brokers=2)


@pytest.mark.parametrize("stops", [1, 3])
def test_f48_a_stop_while_it_waits_for_the_others_is_not_forgotten(wired, stops):
    """Power loss everywhere; 1 waits for the others, is stopped by SIGTERM and started again."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2, 3], new=True)
        await write(c, 1, *"abcdef")
        await c.until(lambda: all(c[b].log().log_end_offset == 6 for b in (2, 3)))
        for broker in (1, 2, 3):
            await c[broker].stop(clean=False)
        c[1].lose_tail(2)
        await c[1].start()
        for _ in range(stops):
            await c.controller.lead(1, isr=[1], to=[1])
            await c.settle(3)
            await c[1].stop(clean=True)
            await c[1].start()
        await c.controller.lead(1, isr=[1], to=[1])
        await c.settle(3)
        assert not c[1].partition().state.is_leader
        for broker in (2, 3):
            await c[broker].start()
            await c.controller.tell(c.controller.states["t", 0], [broker])
        await c.until(lambda: c[1].partition().state.is_leader)
        assert values(c[1]) == list("abcdef")
        await c.until(lambda: len(c[1].partition().state.isr.committed) == 3)
        for broker in (1, 2, 3):
            await c[broker].stop(clean=True)
        await c[1].start()
        assert not c[1].logs.unclean, "shown to be complete, and stopped cleanly since"

    wired(scenario)
