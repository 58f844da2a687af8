"""A group and its offsets as records of `__consumer_offsets`, and back.

A decider: bytes and values. Invariants: bytes are those of the JVM's coordinator; a record that
cannot be decoded is skipped with a warning, since it may be of a later version. Kafka: the record
functions of `GroupMetadataManager` and its `doLoadGroupsAndOffsets`.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ottla.coordinators.group import Group, GroupState, Member
from ottla.coordinators.offsets import AppendedCommit, Commit
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.wire.batch_header import BatchHeader
from ottla.wire.codec import decode_versioned, encode_versioned
from ottla.wire.messages.groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.wire.records import COMMIT, Record, parse_control_record

logger = logging.getLogger(__name__)

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
VALUE_VERSION = 3
"""The newest that is not flexible; JVM brokers of 2.3 to 3.9 write it too."""

EXPIRING_VERSION = 1
"""The only version of an offset's value that has an expiry time."""


def offset_key(group_id: str, tp: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group_id, topic=tp.topic, partition=tp.partition)
    return encode_versioned(key, OFFSET_KEY_VERSION)


def offset_value(commit: Commit) -> bytes:
    value = OffsetCommitValue(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        commit_timestamp=commit.commit_timestamp,
        expire_timestamp=commit.expire_timestamp,
    )
    expires = commit.expire_timestamp >= 0
    return encode_versioned(value, EXPIRING_VERSION if expires else VALUE_VERSION)


def group_key(group_id: str) -> bytes:
    return encode_versioned(GroupMetadataKey(group=group_id), GROUP_KEY_VERSION)


def group_value(group: Group, assignment: Mapping[str, bytes]) -> bytes:
    """Return a group's record; `assignment` names every member."""
    members = []
    for m in group.members.values():
        assert group.protocol is not None, "a generation with members has a protocol"
        members.append(
            GroupMetadataValue.MemberMetadata(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                rebalance_timeout=m.rebalance_timeout_ms,
                session_timeout=m.session_timeout_ms,
                subscription=m.metadata(group.protocol),
                assignment=assignment[m.member_id],
            )
        )
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=group.state_timestamp,
        members=members,
    )
    return encode_versioned(value, VALUE_VERSION)


def read_group(group_id: str, raw: bytes, wall_ms: int) -> Group:
    """Return the group of a record: Stable with its members, or Empty."""
    value = decode_versioned(GroupMetadataValue, raw)
    group = Group(group_id, wall_ms)
    group.generation = value.generation
    group.protocol = value.protocol
    group.state_timestamp = value.current_state_timestamp
    version = int.from_bytes(raw[:2], "big")
    for m in value.members:
        member = Member(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            m.session_timeout if version == 0 else m.rebalance_timeout,
            m.session_timeout,
            [(value.protocol or "", bytes(m.subscription))],
            bytes(m.assignment),
        )
        group.add(member, value.protocol_type, None)
    group.protocol_type = value.protocol_type or None
    group.leader = value.leader
    if group.members:
        group.state = GroupState.STABLE
        if group.leader not in group.members:
            group.leader = next(iter(group.members))
    group.update_subscribed_topics()
    return group


def read_commit(raw: bytes) -> Commit:
    value = decode_versioned(OffsetCommitValue, raw)
    return Commit(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
    )


class _Raw(NamedTuple):
    """An offset's value as it is in the log, and the base offset of its batch."""

    value: bytes
    base_offset: int


RECORDS_IN_A_STEP = 64
"""Read before other tasks may run."""


class GroupRecordReader:
    """Reads the records of a partition in log order; values are decoded once, at the end.

    Until then a key is kept as its bytes: of a million commits of one partition only the last is
    decoded. In the end `loaded` is called with each group. Other tasks may run after each step.
    """

    def __init__(self, loaded: Callable[[Group], None], wall_ms: int) -> None:
        self._loaded = loaded
        self._wall_ms = wall_ms
        self._offsets: dict[bytes, _Raw] = {}
        self._in_transactions: dict[int, dict[bytes, _Raw]] = {}
        self._groups: dict[bytes, bytes] = {}

    def load_batch(self, header: BatchHeader, records: Iterator[Record]) -> Iterator[None]:
        """Read one batch in steps."""
        if header.is_control:
            self._end_transaction(header, records)
            return
        offsets = self._offsets
        if header.is_transactional:
            offsets = self._in_transactions.setdefault(header.producer_id, {})
        first = None
        for n, record in enumerate(records, 1):
            if n % RECORDS_IN_A_STEP == 0:
                yield
            if first is None:
                first = record.offset
            key = record.key or b""
            kind = int.from_bytes(key[:2], "big") if len(key) >= 2 else -1
            if kind in (0, OFFSET_KEY_VERSION):
                if record.value is None:
                    offsets.pop(key[2:], None)
                else:
                    # By offset, not by position: a commit marker may bring in an older one later.
                    offsets[key[2:]] = _Raw(record.value, first)
            elif kind == GROUP_KEY_VERSION:
                if record.value is None:
                    self._groups.pop(key[2:], None)
                else:
                    self._groups[key[2:]] = record.value
            else:
                logger.warning(
                    "unknown key in a group's log kind=%d offset=%d", kind, record.offset
                )

    def _end_transaction(self, header: BatchHeader, records: Iterator[Record]) -> None:
        if not header.count:
            return  # the cleaner left nothing of it
        marker = parse_control_record(next(records))
        waiting = self._in_transactions.pop(header.producer_id, {})
        if marker.type == COMMIT:
            for key, raw in waiting.items():
                known = self._offsets.get(key)
                if known is None or known.base_offset < raw.base_offset:
                    self._offsets[key] = raw

    def finish(self) -> Iterator[None]:
        """Decode what was read, and pass on the groups with their offsets, in steps."""
        found: dict[str, Group] = {}
        for key, raw in self._groups.items():
            try:
                name = decode_versioned(GroupMetadataKey, _prefixed(GROUP_KEY_VERSION, key)).group
                group = found[name] = read_group(name, raw, self._wall_ms)
                group.log_subscription_error()
            except (OttlaError, AssertionError) as error:
                logger.warning("group not understood key=%r error=%s", key, error)
            yield
        for key, raw_offset in self._offsets.items():
            read = self._read_offset(found, key, raw_offset)
            if read is not None:
                group, tp, commit = read
                group.offsets.keep(tp, commit)
            yield
        for producer_id, waiting in self._in_transactions.items():
            for key, raw_offset in waiting.items():
                read = self._read_offset(found, key, raw_offset)
                if read is not None:
                    group, tp, commit = read
                    group.offsets.restore_in_transaction(producer_id, tp, commit)
                yield
        for group in found.values():
            self._loaded(group)
            yield

    def _read_offset(
        self, found: dict[str, Group], key: bytes, raw: _Raw
    ) -> tuple[Group, TopicPartition, AppendedCommit] | None:
        """Return an offset and its group, which is made if it has no record of its own."""
        try:
            named = decode_versioned(OffsetCommitKey, _prefixed(OFFSET_KEY_VERSION, key))
            commit = read_commit(raw.value)
        except OttlaError as error:
            logger.warning("offset not understood key=%r error=%s", key, error)
            return None
        group = found.get(named.group)
        if group is None:
            group = found[named.group] = Group(named.group, self._wall_ms)
        tp = TopicPartition(named.topic, named.partition)
        return group, tp, AppendedCommit(commit, raw.base_offset)


def _prefixed(version: int, key: bytes) -> bytes:
    return version.to_bytes(2, "big") + key
