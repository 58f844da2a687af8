"""What commands print as JSON, where no operation has a struct for it.

One vocabulary for all commands: `topic`, `partition` (a number beside its topic), `broker`,
`leader` (null if there is none), `problem` (null if there is none), and times as `…_ms`,
milliseconds since 1970.
"""

from msgspec import UNSET, Struct, UnsetType

from ottla.model.ids import Partition


class StartedBroker(Struct):
    broker: int
    address: str
    metrics: str | None


class Up(Struct):
    folder: str
    started: int
    bootstrap_servers: str
    zookeeper: str
    zookeeper_server: str
    client_settings: str | None
    brokers: list[StartedBroker]
    schema_registry: str | None


class Down(Struct):
    folder: str
    stopped: int
    by_force: int


class BrokerResult(Struct):
    broker: int
    result: str


class Drained(Struct):
    broker: int
    moved: int


class ShutDown(Struct):
    """`remaining`: the partitions that the broker still leads."""

    broker: int
    remaining: list[Partition]


class TopicResult(Struct):
    topic: str
    result: str


class Produced(Struct):
    topic: str
    records: int
    result: str


class Counted(Partition, frozen=True):
    records: int


class Offsets(Partition, frozen=True):
    """`offset` with --at, the other two without."""

    beginning: int | UnsetType | None = UNSET
    end: int | UnsetType | None = UNSET
    offset: int | UnsetType | None = UNSET

    @property
    def between(self) -> int | None:
        if isinstance(self.beginning, int) and isinstance(self.end, int):
            return self.end - self.beginning
        return None


class OffsetResult(Partition, frozen=True):
    result: str
    problem: str | None


class GroupResult(Struct):
    group: str
    result: str
    problem: str | None


class UserResult(Struct):
    user: str
    mechanism: str
    result: str


class Rotated(Struct):
    user: str
    result: str


class FileResult(Struct):
    file: str
    result: str


class ProfileResult(Struct):
    profile: str
    result: str


class Profile(Struct):
    profile: str
    in_use: bool
    bootstrap_servers: str | None
    dir: str | None
    command_config: str | None


class Chosen(Struct):
    """The cluster that commands ask."""

    cluster: str
    command_config: str | None


class Certificate(Struct):
    name: str
    subject: str
    hosts: list[str]
    expires_ms: int | None
    days: int | None
    problem: str | None


class Aborted(Partition, frozen=True):
    start_offset: int
    producer_id: int
    producer_epoch: int
    result: str


class LostRecords(Struct, rename={"first": "from", "last": "to"}):
    """Offsets that a broker has and the leader has not; null where they are not known."""

    broker: int
    first: int | None
    last: int | None
    or_earlier: bool


class Elected(Partition, frozen=True):
    """`leader` and `lost` are what is expected until the election has been held."""

    result: str
    problem: str | None
    leader: int | None
    lost: list[LostRecords]
    recommendation: str | None


class Moving(Partition, frozen=True):
    state: str
    replicas: list[int]
    target: list[int]


class Cancelled(Partition, frozen=True):
    replicas: list[int]
    cancelled: bool
