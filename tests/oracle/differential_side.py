"""One of the two clusters that the differential test asks: its brokers, topics and names.

It knows which topics there are, and what differs from cluster to cluster (ids, addresses, folders)
by what it stands for. Broker 0 is started first and so the controller on both sides.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from differential_shapes import Frame, Shape
from differential_tables import STAMP, Scenario, batch
from minimal_client import MinimalClient, Outcome, body_of

from ottla.wire.records import iter_batches, iter_records, parse_control_record
from support.waiting import until

KEPT = {"retention.ms": "-1"}
"""The records' timestamps are of long ago."""
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "read": (1, KEPT),
    "other": (1, KEPT),
    "written": (1, KEPT),
    "three": (3, {}),
    "trimmed": (1, KEPT),
    "cleared": (1, KEPT),
    "ledger": (1, {**KEPT, "segment.ms": str(20 * 365 * 86_400_000)}),
    "strict": (1, {**KEPT, "min.insync.replicas": "2"}),
    "appended": (1, {**KEPT, "message.timestamp.type": "LogAppendTime"}),
    "small": (1, {**KEPT, "max.message.bytes": "200"}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "gzipped": (1, {**KEPT, "compression.type": "gzip"}),
    "configured": (1, {"retention.ms": "1000000"}),
}
"""On one broker: the number of partitions, and the settings."""
INTERNAL = {"cleanup.policy": "compact"}
PLACED: dict[str, tuple[list[list[int]], dict[str, str]]] = {
    "__consumer_offsets": ([[0, 1, 2], [1, 2, 0], [2, 0, 1]], INTERNAL),
    "__transaction_state": ([[0, 1, 2], [1, 2, 0], [2, 0, 1]], INTERNAL),
    "spread": ([[0, 1, 2], [1, 2, 0], [2, 0, 1]], KEPT),
    "read": ([[0, 1]], KEPT),
    "moved": ([[0, 1]], KEPT),
    "lonely": ([[2]], KEPT),
    "guarded": ([[0, 2]], {**KEPT, "min.insync.replicas": "2"}),
}
"""On three brokers: the replicas of each partition, and the settings."""
FILLED = ("read", "other", "trimmed", "cleared", "moved", "lonely", "guarded")
REFUSED = {68, 76}
"""Listed by ours in the versions of Kafka 4.4, and always refused."""
UNLISTED = {17, 36, 38, 39, 40, 41, 50, 51, 58, 69} | REFUSED
"""Security, and what either side lists but always refuses."""
TOPIC_ALREADY_EXISTS = 36
UNKNOWN_MEMBER_ID, NOT_COORDINATOR = 25, 16
PATIENCE_S = 60


@dataclass
class Side:
    """One cluster, and what a scenario has to know of it."""

    name: str
    cluster: Any
    ids: dict[str, bytes] = field(default_factory=dict)
    version: int = 0
    round: int = 0
    session: int = 0
    cluster_id: str = ""
    member: str = ""
    producers: dict[int, str] = field(default_factory=dict)
    producer: tuple[int, int] = (-1, -1)

    def __post_init__(self) -> None:
        self.brokers = {b: MinimalClient(self.cluster.address(b)) for b in self.cluster.ids}
        self.folder = str(self.cluster.data(0))

    def close(self) -> None:
        for client in self.brokers.values():
            client.close()

    def ask(self, key: int, version: int, request: dict[str, Any], at: int = 0) -> Any:
        """Return an answer that a test needs to go on; the machine may be busy."""
        body = body_of(key, version, request)
        outcome = self.brokers[at].send(key, version, body, timeout_s=PATIENCE_S)
        assert outcome.result == "answered", f"{self.name}: key {key} {outcome.result}"
        return outcome.answer

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for something to become true; return it."""
        return until(condition, PATIENCE_S, f"{self.name}: {what}")

    # --- before the first scenario ----------------------------------------------------------------

    def prepare(self) -> None:
        """Create the topics, wait for their leaders, write the records."""
        many = len(self.brokers) > 1
        rows = placed_topics() if many else single_topics()
        if many:
            self.until(lambda: len(self.live()) == len(self.brokers), "not all brokers are known")

        def created() -> bool:  # a controller that has just come may not know of the broker yet
            answer = self.ask(19, 7, {"topics": rows, "timeout_ms": 20_000})
            return not {t["error_code"] for t in answer["topics"]} - {0, TOPIC_ALREADY_EXISTS}

        self.until(created, "topics are not created")
        wanted = {
            n: [r for r, _ in [(ids, 0) for ids in lists]] for n, (lists, _) in PLACED.items()
        }
        if not many:
            wanted = {name: [[0]] * count for name, (count, _) in TOPICS.items()}
        for broker in self.brokers:
            self.await_replicas(wanted, broker)
        for topic in FILLED:
            if topic in wanted:
                for values in (range(5), range(5, 10)):
                    self.write(topic, [b"v%d" % v for v in values], STAMP + values[0])
        self.await_coordinators()

    def live(self, at: int = 0) -> list[int]:
        """Return the brokers that a broker knows of."""
        brokers = self.ask(3, 12, {"topics": []}, at)["brokers"]
        return sorted(b["node_id"] for b in brokers)

    def await_replicas(self, wanted: Mapping[str, list[list[int]]], at: int = 0) -> None:
        """Wait until a broker knows that all replicas are in sync, and the first of them leads."""
        asked = {"topics": [{"name": n} for n in wanted], "allow_auto_topic_creation": False}

        def all_in_sync() -> bool:
            answer = self.ask(3, 12, asked, at)
            self.cluster_id = answer["cluster_id"]
            self.ids |= {t["name"]: t["topic_id"] for t in answer["topics"]}
            found = {
                (t["name"], p["partition_index"]): (p["leader_id"], sorted(p["isr_nodes"]))
                for t in answer["topics"]
                for p in t["partitions"]
            }
            return found == {
                (name, index): (replicas[0], sorted(replicas))
                for name, lists in wanted.items()
                for index, replicas in enumerate(lists)
            }

        self.until(all_in_sync, f"{wanted} do not come about")

    def write(self, topic: str, values: Iterable[bytes], stamp: int, at: int | None = None) -> None:
        """Write a batch to partition 0."""
        if at is None:
            at = PLACED[topic][0][0][0] if len(self.brokers) > 1 else 0
        parts = [{"index": 0, "records": batch(*values, stamp=stamp)}]
        topics = [{"name": topic, "partition_data": parts}]
        told = self.ask(0, 9, {"acks": -1, "timeout_ms": 9000, "topic_data": topics}, at)
        assert not told["responses"][0]["partition_responses"][0]["error_code"], told

    def await_coordinators(self) -> None:
        """Wait until groups and ids are served, so that no scenario meets a log that is loaded."""
        groups = ("warm", "a", "b", "c", "d", "e", "f")

        def loaded() -> bool:
            found = self.ask(10, 4, {"coordinator_keys": groups})["coordinators"]
            found += self.ask(10, 4, {"coordinator_keys": groups, "key_type": 1})["coordinators"]
            ids = self.ask(22, 4, {"transactional_id": None, "transaction_timeout_ms": 60_000})
            if ids["error_code"] or any(c["error_code"] for c in found):
                return False
            codes = [
                self.ask(12, 4, {"group_id": c["key"], "member_id": "m"}, c["node_id"])
                for c in found[: len(groups)]
            ]
            states = [
                self.ask(65, 0, {"transactional_ids": [c["key"]]}, c["node_id"])
                for c in found[len(groups) :]
            ]
            return all(c["error_code"] == UNKNOWN_MEMBER_ID for c in codes) and all(
                s["transaction_states"][0]["error_code"] == 105 for s in states
            )

        self.until(loaded, "coordinators do not come about")

    # --- scenarios --------------------------------------------------------------------------------

    def run(self, key: int, version: int, what: Scenario | Shape | Frame) -> Outcome:
        self.version = version
        if not isinstance(what, Scenario):
            return what.run(self.brokers[0])
        if what.before is not None:
            what.before(self)
        client = self.brokers[what.at]
        request = what.request(self) if callable(what.request) else what.request
        body = body_of(key, version, request)
        if what.unanswered:
            return client.send_without_response(key, version, body)
        outcome = client.send(key, version, body)
        if outcome.result == "answered":
            if what.learn is not None:
                what.learn(self, outcome.answer)
            if what.seen is not None:
                outcome = Outcome(outcome.result, what.seen(outcome.answer))
        return outcome

    def named(self, value: Any, key: str = "") -> Any:
        """Replace what differs from cluster to cluster by what it stands for."""
        if isinstance(value, dict):
            if key == "topics" and value.get("name") and value.get("topic_id"):
                self.ids.setdefault(value["name"], value["topic_id"])  # made on demand
            return {k: self.named(v, k) for k, v in value.items()}
        if isinstance(value, list):
            if key == "api_keys":
                value = [v for v in value if v["api_key"] not in UNLISTED]
            items = [self.named(v, key) for v in value]
            if items and isinstance(items[0], dict):
                items.sort(key=lambda v: json.dumps(v, sort_keys=True))
            return items
        if key == "topic_id":
            return next((f"id of {n}" for n, i in self.ids.items() if i == value), value.hex())
        if isinstance(value, bytes):
            return value.hex()
        return self._named_plain(value, key)

    def _named_plain(self, value: Any, key: str) -> Any:
        names: dict[tuple[str, Any], str] = {
            ("host", self.brokers[0].host): "its host",
            ("cluster_id", self.cluster_id): "its cluster",
            **{("port", c.port): f"port of {b}" for b, c in self.brokers.items()},
            **{("producer_id", i): name for i, name in self.producers.items()},
        }
        if self.session:
            names["session_id", self.session] = "its session"
        if (key, value) in names:
            return names[key, value]
        if isinstance(value, str):
            known_names = {self.member: "its member"}
            known_names |= {str(self.cluster.data(b)): f"folder of {b}" for b in self.brokers}
            known_names |= {self.cluster.address(b): f"address of {b}" for b in self.brokers}
            for known, name in known_names.items():
                value = value.replace(known, name) if known else value
        return value


def single_topics() -> list[dict[str, Any]]:
    return [
        {"name": n, "num_partitions": count, "replication_factor": 1, "configs": settings(configs)}
        for n, (count, configs) in TOPICS.items()
    ]


def placed_topics() -> list[dict[str, Any]]:
    return [
        {
            "name": n,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                {"partition_index": i, "broker_ids": ids} for i, ids in enumerate(lists)
            ],
            "configs": settings(configs),
        }
        for n, (lists, configs) in PLACED.items()
    ]


def settings(configs: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": k, "value": v} for k, v in configs.items()]


def contents(answer: Any) -> Any:
    """Return a Fetch answer with its records read: bytes differ by producer ids and times."""
    for topic in answer["responses"]:
        for part in topic["partitions"]:
            part["records"] = [
                _batch(part["records"], *found) for found in iter_batches(part["records"])
            ]
    return answer


def _batch(data: bytes, at: int, header: Any) -> dict[str, Any]:
    control = header.is_control
    records = list(iter_records(data, at))
    return {
        "offsets": [header.base_offset, header.last_offset],
        "leader_epoch": header.partition_leader_epoch,
        "attributes": header.attributes,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "records": [str(parse_control_record(r)) if control else [r.key, r.value] for r in records],
    }
