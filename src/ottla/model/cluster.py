"""The cluster's nouns: brokers, endpoints, assignments and a partition's leadership.

Kafka: `Broker`, `EndPoint`, `LeaderAndIsr`, `LeaderIsrAndControllerEpoch` and `ReplicaAssignment`.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ottla.model.errors import OttlaError
from ottla.model.ids import NO_LEADER, ZERO_UUID, TopicPartition
from ottla.model.ports import address_text

INITIAL_LEADER_EPOCH = 0
INITIAL_PARTITION_EPOCH = 0

RECOVERED = 0
RECOVERING = 1


class Endpoint(msgspec.Struct, frozen=True):
    """One listener's address, as a znode keeps it: `PLAINTEXT://host:9092`."""

    host: str
    port: int
    listener: str = "PLAINTEXT"
    protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.listener}://{address_text(self.host, self.port)}"


class BrokerInfo(msgspec.Struct, frozen=True):
    """A broker's registration. `epoch` is the czxid of its znode (-1 while unregistered)."""

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    features: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)

    def endpoint(self, listener: str) -> Endpoint:
        """Return the endpoint named `listener`; raise KeyError naming what there is."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        have = ", ".join(e.listener for e in self.endpoints) or "none"
        raise KeyError(f"broker {self.id} has no listener {listener} (it has {have})")


class LeaderAndIsr(msgspec.Struct, frozen=True):
    """The leader and the in-sync replicas of a partition.

    `partition_epoch` is the version of the state znode: every change compares and swaps on it.
    `recovery_state` is RECOVERING after an unclean election until the leader reports RECOVERED.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int = INITIAL_PARTITION_EPOCH
    recovery_state: int = RECOVERED

    def with_leader(self, leader: int, isr: tuple[int, ...]) -> "LeaderAndIsr":
        """Return the state after an election: a new leader and ISR, the leader epoch one higher."""
        return replace(self, leader=leader, isr=isr, leader_epoch=self.leader_epoch + 1)

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER


class LeaderIsrAndControllerEpoch(msgspec.Struct, frozen=True):
    """A state znode's whole content: the leadership and the controller epoch that wrote it."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int


class Eligible(msgspec.Struct, frozen=True):
    """The eligible leader replicas of a partition: who may lead it besides its ISR (KIP-966).

    Valid for one version of the state znode (`partition_epoch`). `broker_epochs` pairs each replica
    with the broker epoch under which it was in sync, -1 where that is not known. `znode_version` is
    the version of the record's znode, ANY_VERSION (-1) before the first write. A leader deletes
    the znode before it moves the high watermark without one of these replicas (adr/0007): what is
    derived from a record is written over exactly that version.
    """

    topic_id: bytes
    partition_epoch: int
    min_isr: int
    broker_epochs: tuple[tuple[int, int], ...]
    znode_version: int = -1


class ReplicaAssignment(msgspec.Struct, frozen=True):
    """A partition's replicas (AR), and which of them a reassignment is adding or removing.

    The first replica is the preferred leader. During a reassignment `replicas` holds both the
    original and the target replicas: target first, then those being removed.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """Replicas once the reassignment is done (RAR)."""
        return tuple(r for r in self.replicas if r not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """Replicas before the reassignment began (OAR)."""
        return tuple(r for r in self.replicas if r not in self.adding)


class LeadershipUpdate(NamedTuple):
    """What a controller sends a broker about one partition of which it has a replica.

    As `LeaderAndIsr` and `ReplicaAssignment` in one, since thousands come at once. `topic_id` is 16
    bytes, ZERO_UUID if the controller names none; `is_new` tells that the replica has never been
    there. Kafka: `LeaderAndIsrPartitionState` of a LeaderAndIsr request.
    """

    tp: TopicPartition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    controller_epoch: int = 0
    recovery_state: int = RECOVERED
    topic_id: bytes = ZERO_UUID
    is_new: bool = False


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic's znode: its 16-byte id (None in znodes of version 1 and 2) and its assignment."""

    name: str
    topic_id: bytes | None
    assignment: dict[int, ReplicaAssignment]


class TopicIdNote(msgspec.Struct, frozen=True):
    """The id of the topic whose znode was created at `czxid`."""

    topic_id: bytes
    czxid: int
    by_creation: bool
    """whether the topic had this id from its creation on; else it may have been given later"""


@dataclass(slots=True)
class UpdateResult:
    """The result of an update of partition states.

    `finished` holds the new state (with its new partition epoch) or the error; `retry` names
    those whose znode had another version: read them again and decide again.
    """

    finished: dict[TopicPartition, LeaderAndIsr | OttlaError] = field(default_factory=dict)
    retry: list[TopicPartition] = field(default_factory=list)
