"""Responses that reach a follower late, twice or unrequested (AbstractFetcherThreadTest)."""

import asyncio

import pytest

from ottla.model.errors import ErrorCode, StorageError
from ottla.model.ids import TopicPartition
from ottla.model.time_slices import TimeSlice
from ottla.replication.inter_broker import fetch_version, list_offsets_version
from ottla.replication.leader_session import LeaderSession
from ottla.wire.messages.records import FetchResponse

TP = TopicPartition("t", 0)


def fetcher(node):
    ((_, found),) = node.replicas.fetchers._fetchers.items()
    return found


def answer(wired, fetcher, index, offset, *values, **fields):
    """Build a response to the last request, as the leader might have sent it."""
    records = bytearray(wired.batch(values)) if values else b""
    if values:
        records[0:8] = offset.to_bytes(8, "big")
    data = FetchResponse.PartitionData(
        partition_index=index,
        high_watermark=fields.pop("hw", 0),
        last_stable_offset=0,
        log_start_offset=0,
        aborted_transactions=None,
        records=bytes(records),
        **fields,
    )
    topic = FetchResponse.FetchableTopicResponse(topic_id=wired.topic_id, partitions=[data])
    return FetchResponse(session_id=fetcher._session._session_id, responses=[topic])


async def following(c):
    await c.controller.lead(1, replicas=[1, 2], new=True)
    await c.produce(1, "a")
    await c.settle()
    found = fetcher(c[2])
    task, found._task = found._task, None
    task.cancel()  # from here on the test says what the leader answers
    await asyncio.gather(task, return_exceptions=True)
    return found


def test_the_same_epoch_again_changes_nothing(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        await c.settle()
        state = fetcher(c[2]).states[TP]
        c[2].replicas.fetchers.add(c[2].partition())
        assert fetcher(c[2]).states[TP] is state
        assert c[2].log().log_end_offset == 1

    wired(scenario, brokers=2)


def test_data_of_a_partition_that_was_removed_is_ignored(wired):
    async def scenario(c):
        found = await following(c)
        late = answer(wired, found, 0, 1, "late", hw=2)
        c[2].replicas.fetchers.remove([TP])
        await found._apply_response(late)
        assert c[2].log().log_end_offset == 1
        assert c[2].log().high_watermark <= 1

    wired(scenario, brokers=2)


def test_a_response_for_a_former_epoch_is_ignored(wired):
    async def scenario(c):
        found = await following(c)
        partition = c[2].partition()
        cut = FetchResponse.EpochEndOffset(epoch=0, end_offset=0)
        late = answer(wired, found, 0, 1, diverging_epoch=cut)
        partition.state.leader_epoch += 1  # a LeaderAndIsr came while the response was under way
        found.add(partition)
        await found._apply_response(late)
        assert c[2].log().log_end_offset == 1, "nothing was truncated"

    wired(scenario, brokers=2)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_refusal_of_a_former_epoch_is_ignored(wired, monkeypatch, code):
    """R14: a large response is taken in turns, and a LeaderAndIsr may come between two of them."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True, index=1)
        found = await following(c)
        partition = c[2].partition()
        late = answer(wired, found, 0, 1, error_code=code)
        late.responses[0].partitions += answer(wired, found, 1, 0).responses[0].partitions
        turns = []

        async def next_turn(_turn):
            turns.append(None)
            if len(turns) == 2:  # the first partition's response was read
                partition.state.leader_epoch += 1
                c[2].replicas.fetchers.add(partition)

        monkeypatch.setattr(TimeSlice, "over", True)
        monkeypatch.setattr(TimeSlice, "next", next_turn)
        await found._apply_response(late)
        assert len(turns) == 2
        state = found.states[TP]
        assert (state.leader_epoch, state.delayed) == (partition.state.leader_epoch, False)
        assert not c[2].replicas.fetchers.failed

    wired(scenario, brokers=2)


def test_data_of_a_partition_that_was_not_requested_is_ignored(wired):
    async def scenario(c):
        found = await following(c)
        await found._apply_response(answer(wired, found, 7, 1, "unrequested"))
        assert c[2].log().log_end_offset == 1
        assert TopicPartition("t", 7) not in c[2].replicas.partitions

    wired(scenario, brokers=2)


@pytest.mark.parametrize(
    ("level", "versions"),
    [((3, 9), (17, 9)), ((3, 0), (12, 6)), ((2, 7), (12, 5))],
    ids=lambda v: ".".join(map(str, v)),
)
def test_versions_follow_the_inter_broker_protocol(level, versions):
    assert (fetch_version(level), list_offsets_version(level)) == versions


def test_lag_is_known_also_without_records(wired):
    async def scenario(c):
        found = await following(c)
        await found._apply_response(answer(wired, found, 0, 1, hw=5))
        assert found.statistics()["max_lag"] == 4, "the leader has committed four records more"
        await found._apply_response(answer(wired, found, 0, 1, hw=1))
        assert found.statistics()["max_lag"] == 0

    wired(scenario, brokers=2)


@pytest.mark.parametrize("step", ["append", "truncate"])
def test_a_disk_that_fails_under_one_partition_leaves_the_others(wired, monkeypatch, step):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.controller.lead(1, replicas=[1, 2], new=True, index=1)
        await c.produce(1, "a")
        await c.produce(1, "a", index=1)
        await c.settle()
        found = fetcher(c[2])
        task, found._task = found._task, None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        def broken(*_args):
            raise StorageError("Input/output error")

        log = c[2].log()
        if step == "append":
            monkeypatch.setattr(log, "append_as_follower", broken)
            await found._apply_response(answer(wired, found, 0, 1, "b"))
        else:
            monkeypatch.setattr(log, "truncate_to", broken)
            cut = FetchResponse.EpochEndOffset(epoch=0, end_offset=0)
            await found._apply_response(answer(wired, found, 0, 1, diverging_epoch=cut))
        assert TP in c[2].replicas.fetchers.failed, "until the next LeaderAndIsr"
        assert TP not in found.states
        await found._apply_response(answer(wired, found, 1, 1, "b"))
        assert c[2].log(1).log_end_offset == 2

    wired(scenario, brokers=2)


def test_the_first_fetch_after_a_lost_connection_is_full(wired, monkeypatch):
    """KIP-227: the follower cannot know whether the leader has handled the lost request."""
    epochs = []
    build = LeaderSession.build

    def noted(session):
        built = build(session)
        if built is not None:
            epochs.append(built[0].session_epoch)
        return built

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "a")
        await c.settle()
        monkeypatch.setattr(LeaderSession, "build", noted)
        await c.settle()
        assert epochs, "incremental fetches, of a session"
        assert min(epochs) > 0
        c.part(2, 1)
        await c.settle()
        c.heal()
        epochs.clear()
        await c.until(lambda: epochs)
        assert epochs[0] == 0

    wired(scenario, brokers=2)


async def led_without_its_follower(c, count):
    """Let broker 1 lead partitions for so long that it expects no fetch of broker 2 any more."""
    for index in range(count):
        await c.controller.lead(1, isr=[1], replicas=[1, 2], index=index, new=True, to=[1])
    await c.settle(10.0)


def known(c, index):
    """Return whether broker 1 knows where the log of its follower ends."""
    return c[1].partition(index).state.followers[2].log_end_offset == 0


def test_partitions_added_in_slices_do_not_wait_for_the_first_slices_fetch(wired):
    """A broker that starts again gets thousands of partitions; their leaders hear of nothing."""

    async def scenario(c):
        await led_without_its_follower(c, 4)
        for index in range(4):
            await c.controller.tell(c.controller.states["t", index], [2])
            await asyncio.sleep(0.03)
        began_s = c.now
        await c.until(lambda: all(known(c, index) for index in range(4)), 1.0)
        assert c.now - began_s < 0.05
        before = fetcher(c[2]).fetches_total
        await c.settle(10.0)
        assert fetcher(c[2]).fetches_total - before < 15, "from now on they wait"

    wired(scenario, brokers=2, replica_fetch_wait_max_ms=5000)


def test_a_delayed_partition_does_not_wait_for_the_others_fetch(wired):
    async def scenario(c):
        await led_without_its_follower(c, 1)
        await c.controller.tell(c.controller.states["t", 0], [2])
        await c.settle(1.0)
        await c.controller.lead(1, isr=[1], replicas=[1, 2], index=1, new=True, to=[2])
        await c.settle(8.0)  # broker 1 does not know that it leads
        state = fetcher(c[2]).states[TopicPartition("t", 1)]
        assert state.delayed
        refused = fetcher(c[2]).errors_total
        await c.settle(3.2)
        assert fetcher(c[2]).errors_total - refused == 3, "once in replica.fetch.backoff.ms"

    wired(scenario, brokers=2, replica_fetch_wait_max_ms=5000)


def test_log_ends_in_several_requests_do_not_wait_for_a_fetch(wired, monkeypatch):
    """R18: of logs that may have lost their tails so many log ends are requested at once."""
    monkeypatch.setattr("ottla.replication.fetcher.MOST_AT_ONCE", 1)

    async def scenario(c):
        await led_without_its_follower(c, 30)
        monkeypatch.setattr(c[2].replicas, "is_unclean", lambda tp: True)
        verified = []
        monkeypatch.setattr(c[2].replicas, "in_sync", verified.append)
        for index in range(30):
            await c.controller.tell(c.controller.states["t", index], [2])
        await c.until(lambda: len(verified) == 30, 1.0)

    wired(scenario, brokers=2, replica_fetch_wait_max_ms=5000)
