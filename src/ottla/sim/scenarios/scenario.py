"""A scenario: a cluster, its settings, its clients, the faults it has to bear, and its promises.

Format of a file: TOML; the names of settings are Kafka's (server.properties, topic settings,
producer settings). Plain values in, plain values out; what is wrong is one OttlaError that names
the file or option, the reason and the way out.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ottla.model.config import BrokerConfig
from ottla.model.config_keys import broker_keys, our_keys, topic_keys
from ottla.model.errors import OttlaError

MAX_BYTES = 1024 * 1024
KEPT, ONCE, ORDER, READS, GAP = "kept", "once", "order", "reads", "gap"
PROMISES = {
    KEPT: "no acknowledged record is lost",
    ONCE: "no record is there twice",
    ORDER: "records stay in the order they were sent",
    READS: "a record that was read stays at its offset",
    GAP: "writes are acknowledged again in time",
}
"""`gap` is judged where `longest-gap-seconds` says what "in time" is."""

CRASH, POWER, DISK = "crash", "power-loss", "disk-loss"
FAULTS = {
    CRASH: "a broker's process is killed; what it wrote is in the page cache and survives",
    POWER: "a broker's machine loses power; what was not written to disk yet is lost",
    DISK: "a broker's process is killed, and it starts again with empty disks",
    "shutdown": "a broker is shut down by a controlled shutdown, and starts again",
    "pause": "a broker's process stands still (SIGSTOP, a paused virtual machine)",
    "isolation": "a broker is cut off from the other brokers and from ZooKeeper, not from clients",
    "cut-from-brokers": "a broker is cut off from the other brokers only",
    "cut-from-zookeeper": "a broker is cut off from ZooKeeper only",
    "slow-network": "all that goes between a broker and the others takes 0.2 to 2 s",
    "slow-disk": "each file operation of a broker's worker threads takes 2 s",
    "session-expiry": "ZooKeeper ends a broker's session",
    "zookeeper-outage": "ZooKeeper does not respond",
}
REPLACED = ("broker.id", "node.id", "log.dir", "log.dirs", "host.name", "port")
REPLACED_STARTS = (
    *("zookeeper.connect", "zookeeper.ssl", "zookeeper.set.acl", "zookeeper.clientCnxnSocket"),
    *("listener", "advertised.", "inter.broker.listener", "control.plane", "security."),
    *("ssl.", "sasl.", "authorizer.", "principal.", "super.users", "allow.everyone"),
    *("metric.reporters", "metrics.", "kafka.metrics", "broker.rack", "process.roles"),
)
"""What a server.properties says of one machine; a simulated broker has its own."""

LEAST_DETECTION_S, LONGEST_DETECTION_S = 1.0, 300.0
ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}
MAX_INT = 2**31 - 1
BATCH = "max.in.flight.requests.per.connection"
PRODUCER = {
    "acks": "all",
    "enable.idempotence": "true",
    "retries": str(MAX_INT),
    "retry.backoff.ms": "100",
    "request.timeout.ms": "30000",
    "delivery.timeout.ms": "120000",
    BATCH: "5",
}
"""The settings of producers that are simulated, with Kafka's defaults."""

Settings = dict[str, str]
Count = Annotated[int, Meta(ge=1, le=9)]


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """What is simulated. Settings that are not named have Kafka's defaults."""

    brokers: Count = 3
    partitions: Annotated[int, Meta(ge=1, le=20)] = 1
    replication_factor: Count = 3
    at_once: Count = 1
    """How many faults may be there at a time. One ends when its broker runs, is connected, and
    has what it lost."""
    wait_for_in_sync: bool = False
    """Whether the next fault waits until all replicas are in sync."""
    catch_up_seconds: Annotated[float, Meta(ge=0, le=600)] = 60.0
    """How long a broker that was away is slow, as one that has missed much is."""
    longest_gap_seconds: Annotated[float, Meta(gt=0)] | None = None
    faults: tuple[str, ...] = tuple(FAULTS)
    promises: tuple[str, ...] = (KEPT, ONCE, ORDER, READS)
    server: Settings = msgspec.field(default_factory=dict)
    topic: Settings = msgspec.field(default_factory=dict)
    producer: Settings = msgspec.field(default_factory=dict)

    def server_config(self, broker_id: int = 0) -> BrokerConfig:
        """Return a simulated broker's settings."""
        return BrokerConfig(
            {
                "default.replication.factor": str(self.replication_factor),
                **self.server,
                "broker.id": str(broker_id),
                "zookeeper.connect": "zk:2181",
                "listeners": f"PLAINTEXT://b{broker_id}:9092",
                "log.dirs": "/var/ottla/a",
            }
        )

    def producer_settings(self) -> "ProducerSettings":
        """Return the settings of producers, typed; OttlaError where they contradict each other."""
        text = PRODUCER | self.producer
        acks = ACKS[text["acks"]]
        idempotent = text["enable.idempotence"] == "true"
        in_flight, retries = int(text[BATCH]), int(text["retries"])
        if idempotent:
            conflict = (
                f"acks={text['acks']}"
                if acks != -1
                else f"{BATCH}={in_flight}"
                if in_flight > 5
                else "retries=0"
                if not retries
                else None
            )
            if conflict is not None and "enable.idempotence" in self.producer:
                raise OttlaError(
                    f"producer: enable.idempotence=true does not go with {conflict}, in Kafka's "
                    "producer either; leave one of them out"
                )
            idempotent = conflict is None
        return ProducerSettings(
            acks=acks,
            idempotent=idempotent,
            retries=retries,
            retry_backoff_s=int(text["retry.backoff.ms"]) / 1000,
            request_timeout_s=int(text["request.timeout.ms"]) / 1000,
            delivery_timeout_s=int(text["delivery.timeout.ms"]) / 1000,
            in_flight=in_flight,
        )

    @property
    def min_isr(self) -> int:
        return self.server_config().topic_config(self.topic).min_insync_replicas

    @property
    def longest_detection_s(self) -> float:
        """How long it takes at most that a dead or slow broker is noticed by its settings."""
        config = self.server_config()
        keys = ("zookeeper.session.timeout.ms", "replica.lag.time.max.ms")
        return max(config.integer(key) for key in keys) / 1000


class ProducerSettings(msgspec.Struct, frozen=True):
    """A producer's settings: `acks` is -1 for all; times in seconds."""

    acks: int
    idempotent: bool
    retries: int
    retry_backoff_s: float
    request_timeout_s: float
    delivery_timeout_s: float
    in_flight: int


def parse(data: bytes, where: str) -> dict[str, Any]:
    """Return what a scenario file says, unchecked but for being TOML."""
    if len(data) > MAX_BYTES:
        raise OttlaError(f"{where}: a scenario has at most {MAX_BYTES:,} bytes")
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise OttlaError(
            f"{where} is not a scenario: {error}; `ottla sim check --print` prints one"
        ) from None


def checked(values: Mapping[str, Any], where: str) -> Scenario:
    """Return the scenario of a file's or the options' values; OttlaError says what is wrong."""
    values = with_tables(values, where)
    if "replication-factor" not in values and isinstance(values.get("brokers"), int):
        values["replication-factor"] = min(values["brokers"], 3)
    if "longest-gap-seconds" in values and "promises" not in values:
        values["promises"] = list(PROMISES)
    try:
        scenario = msgspec.convert(values, Scenario)
    except msgspec.ValidationError as error:
        raise OttlaError(
            f"{where}: {error}; `ottla sim check --print` prints all there is"
        ) from None
    try:
        _check(scenario)
    except OttlaError as error:
        raise OttlaError(f"{where}: {error}") from None
    return scenario


def with_tables(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return values with the tables of settings, as text; OttlaError where one is none."""
    values = dict(values)
    for table in ("server", "topic", "producer"):
        found = values.get(table, {})
        if not isinstance(found, dict) or any(isinstance(v, dict | list) for v in found.values()):
            raise OttlaError(
                f"{where}: [{table}] holds settings; write names with dots in quotes, such as "
                '"min.insync.replicas" = 2'
            )
        values[table] = {name: _text(value) for name, value in found.items()}
    return values


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(scenario: Scenario) -> None:
    for name, chosen, known in (
        ("faults", scenario.faults, FAULTS),
        ("promises", scenario.promises, PROMISES),
    ):
        unknown = sorted(set(chosen) - set(known))
        if unknown:
            raise OttlaError(f"{name}: unknown {', '.join(unknown)}; there are {', '.join(known)}")
        if len(set(chosen)) != len(chosen) or (name == "promises" and not chosen):
            raise OttlaError(f"{name}: name each once, and at least one promise")
    if GAP in scenario.promises and scenario.longest_gap_seconds is None:
        raise OttlaError("promises: gap needs longest-gap-seconds, say 60")
    if scenario.replication_factor > scenario.brokers:
        raise OttlaError(
            f"replication-factor {scenario.replication_factor} needs as many brokers; there are "
            f"{scenario.brokers}"
        )
    _refuse_unknown("server", scenario.server, broker_keys() | our_keys())
    _refuse_unknown("topic", scenario.topic, topic_keys())
    _refuse_unknown("producer", scenario.producer, PRODUCER)
    of_a_machine = [name for name in scenario.server if is_of_a_machine(name)]
    if of_a_machine:
        raise OttlaError(
            f"server: {of_a_machine[0]} is a machine's own; a simulated broker has another. Leave "
            "it out"
        )
    if not LEAST_DETECTION_S <= scenario.longest_detection_s <= LONGEST_DETECTION_S:
        raise OttlaError(
            "server: the longer one of zookeeper.session.timeout.ms and replica.lag.time.max.ms is "
            f"{scenario.longest_detection_s:g} s; {LEAST_DETECTION_S:g} s to "
            f"{LONGEST_DETECTION_S:g} s can be simulated"
        )
    if scenario.min_isr > scenario.replication_factor:
        raise OttlaError(
            f"min.insync.replicas={scenario.min_isr} is more than replication-factor "
            f"{scenario.replication_factor}: no record would ever be acknowledged"
        )
    _check_producer(scenario.producer)
    scenario.producer_settings()


def _check_producer(settings: Settings) -> None:
    for name, value in settings.items():
        if name == "acks":
            fine, want = value in ACKS, "all, 1 or 0"
        elif name == "enable.idempotence":
            fine, want = value in ("true", "false"), "true or false"
        else:
            low = 1 if name in (BATCH, "request.timeout.ms", "delivery.timeout.ms") else 0
            fine = value.isascii() and value.isdigit() and low <= int(value) <= MAX_INT
            want = f"a whole number from {low} to {MAX_INT}"
        if not fine:
            raise OttlaError(f"producer: {name}={value}: expected {want}")


def _refuse_unknown(table: str, settings: Settings, known: Iterable[str]) -> None:
    unknown = sorted(set(settings) - set(known))
    if unknown:
        some = f"; simulated are {', '.join(known)}" if table == "producer" else ""
        raise OttlaError(f"{table}: unknown setting {unknown[0]}{some}")


def is_of_a_machine(name: str) -> bool:
    """Whether a setting of server.properties belongs to one machine, not to the cluster."""
    return name in REPLACED or name.startswith(REPLACED_STARTS)


def of_the_cluster(properties: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Return the settings of a server.properties that are simulated, and names left out."""
    known = broker_keys() | our_keys()
    kept = {k: v for k, v in properties.items() if k in known and not is_of_a_machine(k)}
    return kept, [name for name in properties if name not in kept]


def of_a_producer(properties: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Return the settings of a producer.properties that are simulated, and names left out."""
    kept = {k: v for k, v in properties.items() if k in PRODUCER}
    return kept, [name for name in properties if name not in kept]


def to_text(scenario: Scenario) -> str:
    """Return a scenario as a file with all there is to say, and what it means."""
    idempotence = {"enable.idempotence": _text(scenario.producer_settings().idempotent)}
    lines = [
        "# A scenario for `ottla sim check FILE`. What is not named has Kafka's default.",
        f"brokers = {scenario.brokers}",
        f"partitions = {scenario.partitions}",
        f"replication-factor = {scenario.replication_factor}",
        "",
        "# How many faults may be there at a time. A fault is over when its broker runs, is",
        "# connected, and has all it lost.",
        f"at-once = {scenario.at_once}",
        "# Whether the next fault waits until all replicas are in sync.",
        f"wait-for-in-sync = {_text(scenario.wait_for_in_sync)}",
        "# How long a broker that was away is slow, as one that has missed much is.",
        f"catch-up-seconds = {scenario.catch_up_seconds:g}",
        "faults = [",
        *_choices(FAULTS, scenario.faults),
        "]",
        "",
        "promises = [",
        *_choices(PROMISES, scenario.promises),
        "]",
        "# For the promise gap: no partition may be without an acknowledged write for longer.",
        "# longest-gap-seconds = 60"
        if scenario.longest_gap_seconds is None
        else f"longest-gap-seconds = {scenario.longest_gap_seconds:g}",
        "",
        *_table("server", "as in server.properties", scenario.server),
        *_table("topic", "settings of the topic", scenario.topic),
        *_table("producer", "the producers' settings", PRODUCER | scenario.producer | idempotence),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _choices(known: Mapping[str, str], chosen: Sequence[str]) -> list[str]:
    return [
        f'  {"" if name in chosen else "# "}"{name}",  # {meaning}'
        for name, meaning in known.items()
    ]


def _table(name: str, meaning: str, settings: Settings) -> list[str]:
    rows = [f'"{key}" = {msgspec.json.encode(value).decode()}' for key, value in settings.items()]
    return [f"[{name}]  # {meaning}", *rows, ""]
