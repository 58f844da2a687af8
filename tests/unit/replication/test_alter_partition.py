"""ISR changes on their way to the controller, as Kafka's AlterPartitionManagerTest has them."""

import pytest

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition


async def two_late_followers(c):
    """Two partitions led by 1; broker 2 is dead, its lag is over, no request was sent yet."""
    await c.controller.lead(1, replicas=[1, 2], new=True)
    await c.controller.lead(1, replicas=[1, 2], new=True, index=1)
    await c.produce(1, "a")
    await c.produce(1, "b", index=1)
    await c[2].stop()
    await c.produce(1, "c", acks=1)
    await c.produce(1, "d", acks=1, index=1)
    c.controller.requests.clear()


def isrs(c):
    return [list(c[1].partition(i).state.isr.committed) for i in (0, 1)]


def test_changes_made_together_leave_in_one_request(wired):
    async def scenario(c):
        await two_late_followers(c)
        await c.until(lambda: isrs(c) == [[1], [1]])
        (request,) = c.controller.requests
        asked = [p.partition_index for t in request.topics for p in t.partitions]
        assert sorted(asked) == [0, 1]
        assert request.broker_epoch == c[1].epoch

    wired(scenario, brokers=2, min_insync_replicas=1)


def test_a_change_follows_from_a_response(wired):
    """The high watermark rises with the response, and the next change is made from that state."""

    async def scenario(c):
        await two_late_followers(c)
        await c.until(lambda: isrs(c) == [[1], [1]])
        counts = c[1].replicas.alter.statistics()
        assert (counts["shrinks_total"], counts["expands_total"]) == (2, 0)
        await c[2].start()
        for index in (0, 1):
            await c.controller.tell(c.controller.states["t", index], [2])
        await c.until(lambda: isrs(c) == [[1, 2], [1, 2]])
        counts = c[1].replicas.alter.statistics()
        assert (counts["shrinks_total"], counts["expands_total"]) == (2, 2)
        versions = [
            p.partition_epoch
            for request in c.controller.requests
            for t in request.topics
            for p in t.partitions
            if p.partition_index == 0
        ]
        assert versions == sorted(set(versions)), "each from what the one before came to"

    wired(scenario, brokers=2, min_insync_replicas=1)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.NOT_CONTROLLER,
    ],
)
def test_a_refused_request_is_sent_again(wired, error):
    async def scenario(c):
        refused = []
        right = c.controller.dispatch

        def dispatch(conn, frame):
            if len(refused) < 3 and frame[:2] == (56).to_bytes(2, "big"):
                return _refuse(refused, frame, error)
            return right(conn, frame)

        c.controller.server.dispatch = dispatch
        await two_late_followers(c)
        await c.until(lambda: isrs(c) == [[1], [1]])
        assert len(refused) == 3

    wired(scenario, brokers=2, min_insync_replicas=1)


def _refuse(refused, frame, error):
    from ottla.wire.codec import encode_response
    from ottla.wire.headers import decode_request_header, response_header
    from ottla.wire.messages.control import AlterPartitionResponse

    header, _ = decode_request_header(frame)
    refused.append(error)
    head = response_header(header.api_key, header.api_version, header.correlation_id)
    answer = AlterPartitionResponse(error_code=error)
    return [head, *encode_response(answer, header.api_version)]


def test_a_partition_without_a_response_is_sent_again(wired):
    async def scenario(c):
        right = c.controller.alter
        left_out = []

        def alter(broker_id, p):
            item = right(broker_id, p)
            if p.partition_index == 0 and not left_out:
                left_out.append(p)
                item.partition_index = 99  # a response to nothing that was asked
            return item

        c.controller.alter = alter
        await two_late_followers(c)
        await c.until(lambda: isrs(c) == [[1], [1]])
        assert left_out
        assert len(c.controller.requests) >= 2

    wired(scenario, brokers=2, min_insync_replicas=1)


def test_topics_without_ids_are_sent_by_name(wired):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        state = c.controller.states["t", 0]
        other = type(state)(
            partition_index=5,
            controller_epoch=1,
            leader=1,
            leader_epoch=0,
            isr=[1, 2],
            partition_epoch=0,
            replicas=[1, 2],
            is_new=True,
        )
        c.controller.states["t", 5] = other
        c.metadata.topics["t", 5] = other
        await c.controller.tell(other, topic_id=bytes(16))
        c[1].replicas.partitions[TopicPartition("t", 5)].state.topic_id = bytes(16)
        await c[2].stop()
        await c.produce(1, "a", acks=1)
        await c.produce(1, "a", acks=1, index=5)
        c.controller.requests.clear()
        await c.until(lambda: c.controller.requests)
        (topic,) = c.controller.requests[0].topics
        assert topic.topic_name == "t"
        assert bytes(topic.topic_id) == bytes(16)

    wired(scenario, brokers=2, min_insync_replicas=1)


def test_r8_members_are_named_by_the_lives_they_were_seen_in(wired):
    """KIP-903: else a controller could not know that a member has died since."""

    async def scenario(c):
        await two_late_followers(c)
        await c.until(lambda: isrs(c) == [[1], [1]])
        c.controller.requests.clear()
        await c[2].start()
        await c.controller.tell(c.controller.states["t", 0], [2])
        await c.until(lambda: isrs(c)[0] == [1, 2])
        (asked,) = [p for r in c.controller.requests for t in r.topics for p in t.partitions]
        lives = [(m.broker_id, m.broker_epoch) for m in asked.new_isr_with_epochs]
        assert lives == [(1, c[1].epoch), (2, c[2].epoch)]

    wired(scenario, brokers=2, min_insync_replicas=1)


def test_f11_a_delayed_change_names_the_life_that_ended(wired):
    """A4: 3 is about to join, loses power and its tail, and is back before the request arrives."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2, 3], isr=[1, 2], new=True)
        refused = []

        def late(_broker, p):
            """Respond as a controller that has not handled the partition: it is sent again."""
            refused.append(p)
            return _refused(p, ErrorCode.UNKNOWN_SERVER_ERROR)

        accepts, c.controller.alter = c.controller.alter, late
        await c.produce(1, "a", "b", "c")
        await c.until(lambda: c[1].partition().state.isr.proposed == (1, 2, 3))
        first = c[3].epoch
        await c[3].stop(clean=False)
        c[3].lose_tail(1)
        await c[3].start()
        await c.until(lambda: len(refused) > 1)
        named = [{m.broker_id: m.broker_epoch for m in p.new_isr_with_epochs} for p in refused]
        assert {lives[3] for lives in named} == {first} != {c[3].epoch}
        assert (
            c[1].partition().state.followers[3].log_end_offset == 3
        )  # of an earlier registration, until ...
        c.controller.alter = lambda broker, p: (
            accepts(broker, p)
            if all(m.broker_epoch == c[m.broker_id].epoch for m in p.new_isr_with_epochs)
            else _refused(p, ErrorCode.INELIGIBLE_REPLICA)
        )
        await c.until(lambda: c[1].partition().state.isr.proposed is None)
        assert c[1].partition().state.isr.committed == (1, 2)
        await c.controller.tell(c.controller.states["t", 0], [3])
        await c.until(lambda: c[1].partition().state.isr.committed == (1, 2, 3))
        asked = [p for r in c.controller.requests for t in r.topics for p in t.partitions]
        assert asked[-1].new_isr_with_epochs[2].broker_epoch == c[3].epoch

    wired(scenario)


def test_r8_an_idle_follower_that_registered_again_is_named_by_its_new_epoch(wired):
    """Only its ZooKeeper session was a new one: it fetches on in its fetch session."""

    async def scenario(c):
        await c[3].stop()
        await c.controller.lead(1, replicas=[1, 2, 3], isr=[1, 2], new=True, to=[1, 2])
        await c.produce(1, "a")
        tp = TopicPartition("t", 0)
        await c.until(lambda: c[1].partition().log.high_watermark == 1)
        await c.until(
            lambda: (
                not any(
                    entry.topic == tp.topic
                    for s in c[1].replicas.sessions._sessions.values()
                    for entry in s.dirty
                )
            )
        )
        c[2].epoch = c.next_broker_epoch()
        accepts = c.controller.alter

        def strict(broker, p):
            """Compare epochs as Ottla's controller does."""
            if all(m.broker_epoch == c[m.broker_id].epoch for m in p.new_isr_with_epochs):
                return accepts(broker, p)
            return _refused(p, ErrorCode.INELIGIBLE_REPLICA)

        c.controller.alter = strict
        await c[3].start()
        await c.controller.tell(c.controller.states["t", 0], [3])
        await c.until(lambda: c[1].partition().state.isr.committed == (1, 2, 3))

    wired(scenario)


def _refused(p, error):
    from ottla.wire.messages.control import AlterPartitionResponse

    return AlterPartitionResponse.PartitionData(partition_index=p.partition_index, error_code=error)
