"""F20: a damaged replica gives leadership up, is copied anew, returns; the last one serves on.

The logs, connections and handlers are real; the controller does what Kafka's does when a broker
says that some of its replicas are not to be had (`conftest.Controller.announced`).
"""

import asyncio
import itertools

import pytest

from ottla.log import damage
from ottla.log.checkpoints import CLEAN_SHUTDOWN
from ottla.log.leaving_folders import SetAside
from ottla.model.errors import CorruptRecordError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.replication.damaged_replicas import DamageDecision, decide
from ottla.wire.records import iter_batches, iter_records
from support import planted

TP = TopicPartition("t", 0)
DONE = SetAside.done
SMALL_TOPIC = {"segment.bytes": "400", "index.interval.bytes": "100"}
COUNT = 12


def folder(c, broker):
    return c[broker].path("t-0")


def mark(c, broker):
    path = folder(c, broker) / damage.DAMAGE_FILE
    return damage.decode(path.read_bytes()) if path.exists() else None


def aside(c, broker):
    return sorted(folder(c, broker).parent.glob("t-0.*-stray"))


def log_bytes(c, broker) -> bytes:
    return b"".join(p.read_bytes() for p in sorted(folder(c, broker).glob("*.log")))


def flip(c, broker, number, at=70) -> int:
    """Flip a bit in a closed segment's `number`th batch; return the offset of that batch."""
    return planted.flip(planted.segments(folder(c, broker))[1], number, at)


def go_cold(c, broker):
    """Have the log read from its files: what lies in memory is not damaged."""
    log = c[broker].log()
    log.local.tail.clear()


def harm(c, broker, at=70) -> int:
    """Flip a bit of a batch that is read from the file; return the offset of that batch."""
    offset = flip(c, broker, 1, at)
    go_cold(c, broker)
    return offset


def cut_off_from_others(c):
    c.part(1, 2)
    c.part(1, 3)


async def left_alone(c):
    """Have broker 1 be the last one in sync."""
    await c[2].stop()
    await c[3].stop()
    await c.controller.lead(1, isr=[1])


async def filled(c, *, replicas=(1, 2, 3)):
    """Have all replicas hold COUNT records, all committed."""
    await c.controller.lead(replicas[0], replicas=list(replicas), new=True)
    for number in range(COUNT):
        assert (await c.produce(replicas[0], f"value {number}")).error_code == 0
    await c.until(lambda: all(c[b].log().high_watermark == COUNT for b in replicas), 30)


async def fetch(c, wired, broker, offset, **more):
    request = wired.fetch_request(offset, **more)
    response = await c[broker].send(request, 12)
    return response.responses[0].partitions[0]


async def consume(c, wired, *, start=0, until=COUNT) -> tuple[dict[int, bytes], set[int]]:
    """Read as a consumer does, which finds the leader after errors; return values and errors."""
    found: dict[int, bytes] = {}
    errors: set[int] = set()
    offset = start
    end_s = c.now + 60
    while offset < until:
        assert c.now < end_s, (offset, errors)
        leader = c.controller.states["t", 0].leader
        if leader < 0 or not c[leader].running:
            await asyncio.sleep(0.05)
            continue
        data = await fetch(c, wired, leader, offset)
        if data.error_code:
            errors.add(data.error_code)
            await asyncio.sleep(0.05)
            continue
        if not data.records:
            await asyncio.sleep(0.05)
        for position, header in iter_batches(memoryview(data.records)):
            for record in iter_records(memoryview(data.records)[position:][: header.size]):
                found[record.offset] = bytes(record.value)
            offset = header.base_offset + header.count
    return found, errors


EVERYTHING = {n: f"value {n}".encode() for n in range(COUNT)}


def back(c, broker, replicas=(1, 2, 3)):
    """Return whether a replica is intact and in sync, and the damaged one is deleted."""
    node, state = c[broker], c.controller.states["t", 0]
    return (
        TP in node.replicas.partitions
        and set(state.isr) == set(replicas)
        and node.log().damaged is None
        and node.log().high_watermark >= COUNT
        and not aside(c, broker)
        and mark(c, broker) is None
    )


def test_f20_a_leader_with_damage_gives_up_is_copied_anew_and_returns(wired):
    async def scenario(c):
        await filled(c)
        offset = harm(c, 1)
        found, errors = await consume(c, wired)
        assert found == EVERYTHING
        assert errors <= {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert c.controller.states["t", 0].leader == 2
        assert (1, ErrorCode.KAFKA_STORAGE_ERROR) in c.controller.answers
        await c.until(lambda: back(c, 1), 30)
        assert c[1].logs.statistics()["corrupt_reads"] == 0, "another log"
        said = c[1].replicas.damaged.statistics()
        assert said.pop("corrupt_reads") >= 1
        assert said == {"damaged": 0, "set_aside": 0, "given_up_total": 1, "rebuilt_total": 1}
        assert (await c.produce(2, "more")).error_code == 0
        await c.until(lambda: c[1].log().log_end_offset == COUNT + 1, 30)
        await c.controller.lead(1)
        found, errors = await consume(c, wired, until=COUNT + 1)
        assert found == EVERYTHING | {COUNT: b"more"}
        assert offset in found
        await c.settle()
        assert log_bytes(c, 1) == log_bytes(c, 2) == log_bytes(c, 3)

    wired(scenario, topic=SMALL_TOPIC)


@pytest.mark.parametrize("at", [9, 70], ids=["nonsense size", "value"])
def test_f20_the_last_replica_in_sync_goes_on_serving_intact_batches(wired, at, caplog):
    async def scenario(c):
        await filled(c)
        await left_alone(c)
        offset = harm(c, 1, at)
        answers = [await fetch(c, wired, 1, n, partition_max_bytes=1) for n in range(COUNT)]
        bad = [n for n, a in enumerate(answers) if a.error_code]
        assert bad == [offset] if at == 70 else offset in bad and len(bad) <= 3
        assert {answers[n].error_code for n in bad} == {ErrorCode.CORRUPT_MESSAGE}
        for n in set(range(COUNT)) - set(bad):
            data = memoryview(answers[n].records)
            position, header = next(iter(iter_batches(data)))
            record = next(iter(iter_records(data[position:][: header.size])))
            assert (record.offset, bytes(record.value)) == (n, f"value {n}".encode())
        await c.until(lambda: mark(c, 1) is not None)
        await c.settle(30)
        assert c.controller.announcements == []
        assert c[1].partition().state.is_leader
        assert (await c.produce(1, "more", acks=1)).error_code == 0
        said = [r for r in caplog.records if "goes on leading" in r.getMessage()]
        assert len(said) == len({r.getMessage() for r in said}) >= 1
        noted = {o for first, end in mark(c, 1).ranges for o in range(first, end)}
        assert noted == set(bad)

    wired(scenario, topic=SMALL_TOPIC)


def test_f20_the_last_one_gives_up_as_soon_as_another_is_in_sync(wired):
    """Another that has the records that are damaged here, because it only was away."""

    async def scenario(c):
        await filled(c)
        await left_alone(c)
        offset = harm(c, 1)
        assert (await fetch(c, wired, 1, offset)).error_code == ErrorCode.CORRUPT_MESSAGE
        await c.until(lambda: mark(c, 1) is not None)
        await c[2].start()
        await c.controller.tell(c.controller.states["t", 0], [2])
        found, _ = await consume(c, wired)
        assert found == EVERYTHING
        assert c.controller.states["t", 0].leader == 2
        await c.until(lambda: back(c, 1, (1, 2)), 30)

    wired(scenario, topic=SMALL_TOPIC)


def test_f20_a_follower_that_finds_damage_leaves_the_isr_and_is_copied_anew(wired):
    """A consumer that reads from a follower (KIP-392) finds it."""

    async def scenario(c):
        await filled(c)
        offset = harm(c, 3)
        first = await fetch(c, wired, 3, offset)
        assert first.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await c.until(lambda: (3, ErrorCode.KAFKA_STORAGE_ERROR) in c.controller.answers, 5)
        assert c.controller.states["t", 0].leader == 1
        await c.until(lambda: back(c, 3), 30)
        assert log_bytes(c, 3) == log_bytes(c, 1)

    wired(scenario, topic=SMALL_TOPIC)


def test_f20_damage_is_not_copied(wired):
    """A follower out of the ISR reaches the damage on the last replica in sync, and stops there."""

    async def scenario(c):
        await filled(c, replicas=(1, 2))
        await c[2].stop()
        await c.controller.lead(1, isr=[1], replicas=[1, 2, 3], to=[1])
        offset = harm(c, 1)
        await c.controller.tell(c.controller.states["t", 0], [3])
        await c.settle(20)
        assert c[3].log().log_end_offset == offset
        assert 3 not in c.controller.states["t", 0].isr

    wired(scenario, topic=SMALL_TOPIC)


def test_f20_a_follower_takes_nothing_that_changed_in_its_leaders_memory(wired):
    """It fetches again, and the leader reads from its disk: the batch there is intact."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        assert (await c.produce(1, "before")).error_code == 0
        c.part(2, 1)
        for number in range(4):
            await c.produce(1, f"late {number}", acks=1)
        parts = c[1].log().local.tail._parts
        parts[2][70] ^= 1
        c.heal()
        await c.until(lambda: c[2].log().log_end_offset == 5, 30)
        assert log_bytes(c, 2) == log_bytes(c, 1)
        assert c[1].log().corrupt_reads == 1
        assert c[1].log().damaged is None
        assert c[1].partition().state.is_leader

    wired(scenario, brokers=2)


STEPS = ["marked", "refused", "set aside", "copying"]


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("step", STEPS)
def test_f20_a_restart_at_any_step_does_not_forget(wired, step, clean):
    async def scenario(c):
        await filled(c)
        offset = harm(c, 1)
        c.controller.deaf = step == "marked"
        assert (await fetch(c, wired, 1, offset)).error_code
        if step == "marked":
            await c.until(lambda: mark(c, 1) is not None)
        elif step == "refused":
            await c.until(lambda: (1, ErrorCode.KAFKA_STORAGE_ERROR) in c.controller.answers)
        else:
            if step == "copying":
                cut_off_from_others(c)
            await c.until(lambda: aside(c, 1))
        await c[1].stop(clean=clean)
        c.heal()
        c.controller.deaf = False
        await c[1].start()
        c.controller.offline.clear()  # as Kafka's controller does when a broker starts
        state = c.controller.states["t", 0]
        if step == "marked":
            assert state.leader == 1
        answers = await c.controller.tell(state)
        if step in {"marked", "refused"}:
            code = answers[1].topics[0].partition_errors[0].error_code
            assert code == ErrorCode.KAFKA_STORAGE_ERROR, "it does not lead with it, nor follow"
            if step == "marked":
                await c.controller._ask_for_replicas(1)
        found, _ = await consume(c, wired)
        assert found == EVERYTHING
        await c.until(lambda: back(c, 1), 60)
        await c.settle()
        assert log_bytes(c, 1) == log_bytes(c, 2)

    wired(scenario, topic=SMALL_TOPIC)


@pytest.mark.parametrize("committed", [COUNT, 0], ids=["known", "after a crash"])
def test_f20_the_damaged_log_is_kept_until_all_of_it_was_copied(wired, monkeypatch, committed):
    if not committed:  # the high watermark in the checkpoint is from before the records
        monkeypatch.setattr(SetAside, "done", lambda self, tp, _: DONE(self, tp, COUNT))

    async def scenario(c):
        await filled(c)
        offset = harm(c, 1)
        before = log_bytes(c, 1)
        # The other leader's disk is damaged further on, where this one is intact.
        await c[3].stop()
        await c.controller.lead(1, isr=[1, 2])
        other = flip(c, 2, 3)
        assert other > offset
        go_cold(c, 1)
        await fetch(c, wired, 1, offset)
        await c.until(lambda: aside(c, 1))
        go_cold(c, 2)
        await c.until(lambda: c[2].log().damaged is not None)
        await c.settle(30)
        assert c[1].log().log_end_offset == other
        assert c.controller.states["t", 0].isr == [2]
        (kept,) = aside(c, 1)
        assert b"".join(p.read_bytes() for p in sorted(kept.glob("*.log"))) == before
        assert damage.decode((kept / damage.DAMAGE_FILE).read_bytes()).committed == COUNT
        await c[1].stop()
        await c[1].start()
        await c.controller.tell(c.controller.states["t", 0], [1])
        await c.settle(10)
        assert aside(c, 1) == [kept]

    wired(scenario, topic=SMALL_TOPIC)


def test_f20_a_replica_elected_amid_its_copy_does_not_lead_with_a_part_of_the_log(wired):
    """However it was elected: its log is an empty one in the place of a known one (R18)."""

    async def scenario(c):
        await filled(c)
        offset = harm(c, 1)
        cut_off_from_others(c)
        await fetch(c, wired, 1, offset)
        await c.until(lambda: aside(c, 1))
        assert c[1].log().log_end_offset == 0
        await c.controller.lead(1, isr=[1])
        await c.settle(60)
        assert not c[1].partition().state.is_leader
        assert c[2].log().log_end_offset == c[3].log().log_end_offset == COUNT
        c.heal()
        found, _ = await consume(c, wired)
        assert found == EVERYTHING
        assert c[1].partition().state.is_leader
        await c.until(lambda: back(c, 1), 60)

    wired(scenario, topic=SMALL_TOPIC)


def test_f20_a_topic_is_deleted_with_its_damaged_log(wired):
    async def scenario(c):
        await filled(c)
        offset = harm(c, 1)
        await fetch(c, wired, 1, offset)
        await c.until(lambda: TP in c[1].replicas.offline)
        c.controller.deaf = True
        answer = await c.controller.stop_replica(1, delete=True)
        assert answer.partition_errors[0].error_code == 0
        assert TP not in c[1].replicas.offline
        assert not folder(c, 1).exists()
        await c.settle(10)
        assert c[1].replicas.damaged.statistics()["damaged"] == 0

    wired(scenario, topic=SMALL_TOPIC)


def test_f20_a_topic_is_deleted_with_what_was_set_aside(wired):
    async def scenario(c):
        await filled(c)
        offset = harm(c, 1)
        cut_off_from_others(c)
        await fetch(c, wired, 1, offset)
        await c.until(lambda: aside(c, 1))
        await c.controller.stop_replica(1, delete=True)
        assert not aside(c, 1)

    wired(scenario, topic=SMALL_TOPIC)


def test_f20_damage_ends_where_its_records_are_deleted(wired):
    """An operator who can do without them may delete all up to there; replicas follow again."""

    async def scenario(c):
        await filled(c)
        await left_alone(c)
        offset = harm(c, 1)
        await fetch(c, wired, 1, offset)
        await c.until(lambda: mark(c, 1) is not None)
        c[1].partition().delete_records_before(offset + 1)
        await c.until(lambda: mark(c, 1) is None, 10)
        assert c[1].log().damaged is None
        assert c[1].replicas.damaged.statistics()["damaged"] == 0

    wired(scenario, topic=SMALL_TOPIC)


def test_f20_damage_above_the_high_watermark_makes_a_leader_give_up_too(wired):
    """Followers cannot copy what lies beyond it: the partition would stand still."""

    async def scenario(c):
        await filled(c)
        c.part(2, 1)
        c.part(3, 1)
        for number in range(8):
            assert (await c.produce(1, f"late {number}", acks=1)).error_code == 0
        log = c[1].log()
        assert (log.high_watermark, log.log_end_offset) == (COUNT, COUNT + 8)
        path = max(folder(c, 1).glob("*.log"))
        data = bytearray(path.read_bytes())
        data[70] ^= 1
        path.write_bytes(data)
        go_cold(c, 1)
        c.heal()
        await c.until(lambda: c.controller.states["t", 0].leader == 2, 30)
        found, _ = await consume(c, wired)
        assert found.items() >= EVERYTHING.items(), "what was committed"
        await c.until(lambda: back(c, 1), 30)

    wired(scenario, topic=SMALL_TOPIC)


def test_f20_a_disk_that_cannot_take_the_mark_is_a_broken_disk(wired):
    async def scenario(c):
        await filled(c)
        offset = harm(c, 1)

        def refuse(path, data):
            raise OSError(5, "Input/output error")

        c[1].files.write_durable = refuse
        await fetch(c, wired, 1, offset)
        await c.until(lambda: c[1].logs.offline_dirs)
        assert TP in c[1].replicas.offline
        assert c[1].logs.get(TP).failed is not None

    wired(scenario, topic=SMALL_TOPIC)


def test_f20_decision():
    """Every combination of leader and ISR, beside the rule in words."""
    for leader, size in itertools.product((-1, 1, 2, 3), range(4)):
        for isr in itertools.combinations((1, 2, 3), size):
            for dead in ((), (2,), (3,), (2, 3)):
                for refused in (True, False):
                    decision = decide(1, leader, isr, {2, 3}.difference(dead), refused=refused)
                    other_holds_all = any(b != 1 and b not in dead for b in isr)
                    if decision is DamageDecision.REBUILD:
                        assert 1 not in isr
                        assert leader in (2, 3)
                        assert refused
                    if decision is DamageDecision.REFUSE and 1 in isr:
                        assert other_holds_all
                    if 1 in isr and other_holds_all:
                        assert decision is DamageDecision.REFUSE
                    if isr == (1,) or (leader == 1 and 1 not in isr):
                        assert decision is DamageDecision.SERVE


def test_f20_a_record_that_cannot_be_read_is_an_error_below(wired):
    async def scenario(c):
        await filled(c, replicas=(1,))
        offset = harm(c, 1)
        with pytest.raises(CorruptRecordError):
            c[1].log().read(offset, 100, COUNT)
        await c.until(lambda: mark(c, 1) is not None)
        await c[1].stop()
        assert (folder(c, 1).parent / CLEAN_SHUTDOWN).exists()

    wired(scenario, brokers=1, topic=SMALL_TOPIC)
