"""Groups and offsets as records, and back (Kafka's GroupMetadataManagerTest)."""

from ottla.coordinators.coordinator_log import java_hash, partition_for
from ottla.coordinators.group import Group, GroupState, Member
from ottla.coordinators.group_records import (
    GroupRecordReader,
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_commit,
    read_group,
)
from ottla.coordinators.offsets import Commit
from ottla.model.ids import TopicPartition
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.groups import GroupMetadataValue
from ottla.wire.records import (
    ABORT,
    COMMIT,
    Record,
    build_batch,
    build_control_batch,
    iter_records,
    parse_batch_header,
)

from .conftest import subscription

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WALL = 1_700_000_000_000


class Log:
    """Batches one after the other, as a partition holds them."""

    def __init__(self):
        self.found = {}
        self.replay = GroupRecordReader(self.loaded, WALL)
        self.end = 0

    def loaded(self, group):
        self.found[group.group_id] = group

    def _take(self, batch, count):
        view = memoryview(batch)
        for _ in self.replay.load_batch(parse_batch_header(view), iter_records(view)):
            pass
        self.end += count
        return self

    def add(self, *records, producer_id=-1):
        made = [Record(timestamp=WALL, key=k, value=v) for k, v in records]
        more = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        batch = build_batch(
            made, base_offset=self.end, is_transactional=producer_id >= 0,
            **(more if producer_id >= 0 else {}),
        )  # fmt: skip
        return self._take(batch, len(made))

    def marker(self, kind, producer_id):
        batch = build_control_batch(
            kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=WALL,
            base_offset=self.end,
        )  # fmt: skip
        return self._take(batch, 1)

    @property
    def groups(self):
        self.found = {}
        for _ in self.replay.finish():
            pass
        return self.found

    def offsets(self, group="g"):
        return {tp: r.commit.offset for tp, r in self.groups[group].offsets.committed.items()}


def commit(offset):
    return Commit(offset, 3, "m", WALL)


def offset(tp, value, group="g"):
    return offset_key(group, tp), None if value is None else offset_value(commit(value))


def stable_group(name="g", instance=None):
    group = Group(name, WALL)
    offered = [("range", subscription("t")), ("sticky", b"")]
    group.add(Member("m", instance, "c", "/h", 60_000, 10_000, offered), "consumer", None)
    group.generation, group.protocol, group.state = 7, "range", GroupState.STABLE
    return group


def test_a_commit_survives():
    assert read_commit(offset_value(commit(9))) == commit(9)
    assert offset_value(commit(9))[:2] == b"\0\3"
    expiring = commit(9)._replace(expire_timestamp=WALL + 1, leader_epoch=-1)
    assert offset_value(expiring)[:2] == b"\0\1"
    assert read_commit(offset_value(expiring)) == expiring


def test_a_group_survives():
    raw = group_value(stable_group(instance="i"), {"m": b"mine"})
    assert raw[:2] == b"\0\3"
    group = read_group("g", raw, WALL)
    assert (group.state, group.generation, group.leader) == (GroupState.STABLE, 7, "m")
    assert (group.protocol_type, group.protocol) == ("consumer", "range")
    assert group.subscribed_topics == {"t"}
    assert group.static_members == {"i": "m"}
    member = group.members["m"]
    assert (member.assignment, member.client_host) == (b"mine", "/h")
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (60_000, 10_000)
    assert group.select_protocol() == "range"
    assert group_value(group, {"m": b"mine"}) == raw


def test_an_empty_group_survives():
    group = Group("g", WALL)
    group.generation, group.protocol_type = 8, "consumer"
    back = read_group("g", group_value(group, {}), WALL + 5)
    assert (back.state, back.generation, back.protocol) == (GroupState.EMPTY, 8, None)
    assert back.state_timestamp == WALL
    assert back.subscribed_topics == frozenset()


def test_old_versions_of_a_group_are_read():
    for version in (0, 1, 2):
        value = GroupMetadataValue(
            protocol_type="consumer", generation=1, protocol="range", leader="m",
            current_state_timestamp=55,
            members=[GroupMetadataValue.MemberMetadata(
                member_id="m", client_id="c", client_host="/h", rebalance_timeout=9,
                session_timeout=7, subscription=b"", assignment=b"x")],
        )  # fmt: skip
        group = read_group("g", encode_versioned(value, version), WALL)
        assert group.members["m"].rebalance_timeout_ms == (7 if version == 0 else 9)
        assert group.state_timestamp == (55 if version == 2 else -1)


def test_load_offsets_without_group_and_with_tombstones():
    log = Log().add(offset(T0, 1), offset(T1, 2)).add(offset(T0, 5))
    assert log.offsets() == {T0: 5, T1: 2}
    log.add(offset(T1, None))
    assert log.offsets() == {T0: 5}
    group = log.groups["g"]
    assert (group.state, group.generation) == (GroupState.EMPTY, 0)
    assert group.protocol_type is None


def test_load_offsets_and_group():
    value = group_value(stable_group(), {"m": b"a"})
    log = Log().add(offset(T0, 1)).add((group_key("g"), value)).add(offset(T1, 2))
    assert log.groups["g"].state is GroupState.STABLE
    assert log.offsets() == {T0: 1, T1: 2}


def test_load_group_with_tombstone():
    value = group_value(stable_group(), {"m": b"a"})
    log = Log().add((group_key("g"), value)).add((group_key("g"), None))
    assert log.groups == {}
    log.add(offset(T0, 1))
    assert log.groups["g"].state is GroupState.EMPTY


def test_transactional_offsets_show_with_the_commit_marker():
    log = Log().add(offset(T0, 1)).add(offset(T0, 5), offset(T1, 6), producer_id=13)
    assert log.offsets() == {T0: 1}
    group = log.groups["g"]
    assert group.offsets.unstable(T0)
    assert group.offsets.unstable(T1)
    log.marker(COMMIT, 13)
    assert log.offsets() == {T0: 5, T1: 6}
    assert not log.groups["g"].offsets.in_transactions


def test_aborted_transactional_offsets_are_not_loaded():
    log = Log().add(offset(T0, 1), producer_id=13).marker(ABORT, 13)
    assert log.groups == {}
    log.add(offset(T0, 2), producer_id=13).marker(COMMIT, 13)
    assert log.offsets() == {T0: 2}


def test_producers_do_not_end_each_others_transactions():
    log = Log().add(offset(T0, 1), producer_id=1).add(offset(T1, 2), producer_id=2)
    log.marker(COMMIT, 1).marker(ABORT, 2)
    assert log.offsets() == {T0: 1}


def test_a_plain_commit_after_a_transactional_one_wins_and_before_it_loses():
    wins = Log().add(offset(T0, 1), producer_id=1).add(offset(T0, 9)).marker(COMMIT, 1)
    assert wins.offsets() == {T0: 9}
    loses = Log().add(offset(T0, 9)).add(offset(T0, 1), producer_id=1).marker(COMMIT, 1)
    assert loses.offsets() == {T0: 1}


def warnings(caplog):
    """Return the warnings since the last call, in short."""
    found = [line.partition(" understood")[0].partition(" kind")[0] for line in caplog.messages]
    caplog.clear()
    return found


def test_what_is_not_understood_is_passed_over(caplog):
    broken = (group_key("x"), b"\0\3\xff")
    future = (offset_key("x", T0), b"\0\x63what")
    unknown = (b"\0\x63", b"?")
    log = Log().add(offset(T0, 1), broken, future, unknown, (b"", b""))
    assert warnings(caplog) == ["unknown key in a group's log"] * 2
    assert log.offsets() == {T0: 1}
    assert warnings(caplog) == ["group not", "offset not"]
    assert list(log.groups) == ["g"]


def test_partition_of_a_key_is_javas():
    # As Java's String.hashCode prints them; the last one is Integer.MIN_VALUE.
    assert java_hash("") == 0
    assert java_hash("console-consumer-12345") == 158_455_506
    assert java_hash("hello") == 99_162_322
    assert java_hash("gr\u00fc\u00dfe\u20ac\U0001f600") == 355_386_136
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22
