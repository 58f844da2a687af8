"""The load under which the metrics of two brokers of Kafka's and of two of ours are compared.

Broker 0 is the controller, since it was alone at first; the replicas lie as `PLACED` says. After
`Load.fill` clients hold what they have: groups in each of their states, an open transaction, fetch
sessions, a fetch and a join that wait, and a follower of a throttled topic lags. In between broker
1 is paused (`lose_other`) until its session with ZooKeeper has ended, and goes on (`regain_other`).
"""

import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from differential_tables import produce
from minimal_client import MinimalClient, body_of, header_of

from ottla.wire.records import Record, build_batch
from support.sasl_clusters import USERS
from support.waiting import until

PATIENCE_S = 60
LAG_MS = 3000
SESSION_MS = 8000
SETTINGS = {
    "auto_create_topics_enable": "false",
    "auto_leader_rebalance_enable": "false",
    "group_initial_rebalance_delay_ms": "0",
    "log_cleaner_backoff_ms": "200",
    "log_cleaner_dedupe_buffer_size": "1100000",
    "offsets_topic_num_partitions": "1",
    "replica_fetch_max_bytes": "10000",
    "replica_lag_time_max_ms": str(LAG_MS),
    "replication_quota_window_num": "120",
    "transaction_state_log_num_partitions": "1",
}
KEYS_SEGMENT_BYTES = 120_000
INTERNAL = {"cleanup.policy": "compact"}
PLACED: dict[str, tuple[list[list[int]], dict[str, str]]] = {
    "__consumer_offsets": ([[0, 1]], INTERNAL),
    "__transaction_state": ([[0, 1]], INTERNAL),
    "r": ([[0, 1], [1, 0]], {}),
    "strict": ([[0, 1]], {"min.insync.replicas": "2"}),
    "ledger": ([[0, 1]], {}),
    "keys": (
        [[0]],
        {
            **INTERNAL,
            "segment.bytes": str(KEYS_SEGMENT_BYTES),
            "min.cleanable.dirty.ratio": "0.3",
        },
    ),
    "lagging": ([[1]], {}),
    "lonely": ([[1]], {}),
    "gone": ([[0, 1]], {}),
}
LED_BY_0 = ("__consumer_offsets", "__transaction_state", "strict", "ledger", "gone")
SINGLE = "t"
"""Two partitions, not replicated: what is counted of it is all of the script's doing."""
LAGGING = {
    "unclean.leader.election.enable": "true",
    "follower.replication.throttled.replicas": "0:0",
}
"""Of the topic `lagging`, set later: what a topic is created with throttles nothing in Kafka."""
LARGE_BATCH_RECORDS, LARGE_BATCHES = 100, 3
LASTING_MS = 300_000
"""Sessions, transactions and waits that are to last as long as the test."""
SASL_FAILED = 58
UNKNOWN_MEMBER_ID, MESSAGE_TOO_LARGE, UNKNOWN_TOPIC, INVALID_RECORD, NOT_ENOUGH = 25, 10, 3, 87, 19
QUOTAS = {
    "greedy-producer": ("producer_byte_rate", 400.0),
    "greedy-consumer": ("consumer_byte_rate", 400.0),
    "greedy-asker": ("request_percentage", 0.001),
}
"""Each client breaks its bound by one request."""
HELD = {"JoinGroup": 1, "FetchConsumer": 1, "Fetch": 1}
"""Requests at broker 0 without an answer: Kafka counts a request once it has answered it."""


def records(count: int, size: int, *, keyed: bool = False, **more: Any) -> bytes:
    """Return a batch of so many records, with the keys 0, 1, 2, ..."""
    now_ms = int(time.time() * 1000)
    return build_batch(
        [
            Record(timestamp=now_ms, key=b"%d" % n if keyed else None, value=bytes(size))
            for n in range(count)
        ],
        **more,
    )


def configs(of: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in of.items()]


def topic_row(name: str, replicas: list[list[int]], settings: dict[str, str]) -> dict[str, Any]:
    """Return a topic as CreateTopics wants it."""
    return {
        "name": name, "num_partitions": -1, "replication_factor": -1,
        "assignments": [
            {"partition_index": n, "broker_ids": brokers} for n, brokers in enumerate(replicas)
        ],
        "configs": configs(settings),
    }  # fmt: skip


def reading(topic: str, **more: Any) -> dict[str, Any]:
    """Return a fetch of partition 0 from its start."""
    row = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1,
           "partition_max_bytes": 1 << 20}  # fmt: skip
    return {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20,
        "session_epoch": -1, "topics": [{"topic": topic, "partitions": [row]}], **more,
    }  # fmt: skip


class Load:
    """What clients do to one cluster, and the connections on which they wait."""

    def __init__(self, name: str, cluster: Any) -> None:
        self.name = name
        self.cluster = cluster
        self.brokers = {b: MinimalClient(cluster.address(b)) for b in cluster.ids}
        self.held: list[socket.socket] = []

    def close(self) -> None:
        for client in self.brokers.values():
            client.close()
        for connection in self.held:
            connection.close()

    def ask(
        self, key: int, version: int, request: dict[str, Any], at: int = 0, client: str = "load"
    ) -> Any:
        """Return the answer to a request."""
        body = body_of(key, version, request)
        outcome = self.brokers[at].send(key, version, body, client=client, timeout_s=PATIENCE_S)
        assert outcome.result == "answered", f"{self.name}: key {key} {outcome.result}"
        return outcome.answer

    def hold(
        self, key: int, version: int, request: dict[str, Any], at: int = 0, then: bytes = b""
    ) -> None:
        """Send a request, and another one, on a connection of its own and wait for nothing."""
        frames = [header_of(key, version, 1, "holder") + body_of(key, version, request)]
        frames += [then] if then else []
        client = self.brokers[at]
        connection = socket.create_connection((client.host, client.port), timeout=5)
        connection.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        self.held.append(connection)

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for something to become true; return it."""
        return until(condition, PATIENCE_S, f"{self.name}: {what}")

    def states(self, at: int = 0) -> dict[tuple[str, int], tuple[int, list[int]]]:
        """Return leader and ISR of each partition as a broker tells its clients."""
        answer = self.ask(3, 9, {"topics": None, "allow_auto_topic_creation": False}, at)
        return {
            (t["name"], p["partition_index"]): (p["leader_id"], sorted(p["isr_nodes"]))
            for t in answer["topics"]
            for p in t["partitions"]
        }

    def await_states(self, wanted: dict[tuple[str, int], tuple[int, list[int]]]) -> None:
        """Wait until both brokers know these leaders and ISRs."""
        for broker in self.brokers:
            self.until(
                lambda broker=broker: wanted.items() <= self.states(broker).items(),
                f"{wanted} does not come about",
            )

    def create(self, *rows: dict[str, Any]) -> None:
        answer = self.ask(19, 7, {"topics": list(rows), "timeout_ms": 30_000})
        assert not {t["error_code"] for t in answer["topics"]} - {0}, answer

    # --- what clients do --------------------------------------------------------------------------

    def prepare(self) -> None:
        """Set quotas, a throttle and the topics; a consumer has a fetch session."""
        entries = [
            {"entity": [{"entity_type": "client-id", "entity_name": client}],
             "ops": [{"key": key, "value": bound, "remove": False}]}
            for client, (key, bound) in QUOTAS.items()
        ]  # fmt: skip
        self.ask(49, 1, {"entries": entries, "validate_only": False})
        self.configure(4, "0", {"follower.replication.throttled.rate": "1"})
        self.create(topic_row(SINGLE, [[0], [0]], {"max.message.bytes": "5000"}))
        self.await_states({(SINGLE, 0): (0, [0]), (SINGLE, 1): (0, [0])})
        assert self.fetch_single(session_epoch=0)["session_id"]
        self.create(*(topic_row(name, *how) for name, how in PLACED.items()))
        self.await_states(
            {
                (name, index): (replicas[0], sorted(replicas))
                for name, (rows, _) in PLACED.items()
                for index, replicas in enumerate(rows)
            }
        )
        self.configure(2, "lagging", LAGGING)

    def fill(self) -> None:
        """Do everything that moves a figure and needs no broker to be away."""
        self.produce_and_fetch()
        self.groups()
        self.transactions()
        self.compact()
        self.break_quotas()
        self.administer()
        for _ in range(LARGE_BATCHES):
            large = records(LARGE_BATCH_RECORDS, 4000)
            self.produce("lagging", large, 0, at=1)
        move = {"partition_index": 0, "replicas": [1, 0]}
        topics = [{"name": "lagging", "partitions": [move]}]
        self.ask(45, 0, {"timeout_ms": 30_000, "topics": topics})
        self.hold(1, 11, reading("r", max_wait_ms=LASTING_MS, min_bytes=1 << 30))

    def configure(self, kind: int, name: str, settings: dict[str, str]) -> None:
        rows = [{**row, "config_operation": 0} for row in configs(settings)]
        resource = {"resource_type": kind, "resource_name": name, "configs": rows}
        answer = self.ask(44, 1, {"resources": [resource], "validate_only": False})
        assert not answer["responses"][0]["error_code"], answer

    def produce(
        self,
        topic: str,
        batch: bytes,
        expected: int = 0,
        *,
        index: int = 0,
        acks: int = -1,
        at: int = 0,
        client: str = "load",
        **more: Any,
    ) -> Any:
        request = produce(topic, batch, index, acks, **{"timeout_ms": 30_000, **more})
        answer = self.ask(0, 9, request, at, client)
        (part,) = answer["responses"][0]["partition_responses"]
        assert part["error_code"] == expected, f"{self.name}: {answer}"
        return answer

    def fetch_single(self, client: str = "load", **more: Any) -> Any:
        rows = [
            {"partition": index, "current_leader_epoch": -1, "fetch_offset": 0,
             "log_start_offset": -1, "partition_max_bytes": 1 << 20}
            for index in range(2)
        ]  # fmt: skip
        request = {**reading(SINGLE), "topics": [{"topic": SINGLE, "partitions": rows}]}
        return self.ask(1, 11, {**request, **more}, client=client)

    def produce_and_fetch(self) -> None:
        for index in range(2):
            for size, count, acks in ((10, 5, -1), (200, 3, 1), (50, 20, -1)):
                self.produce(SINGLE, records(count, size), index=index, acks=acks)
            self.produce(SINGLE, records(1, 6000), MESSAGE_TOO_LARGE, index=index)
            self.produce("r", records(4, 100), index=index, at=index)
        self.produce("missing", records(1, 10), UNKNOWN_TOPIC)
        self.produce("keys", records(1, 10), INVALID_RECORD)  # without a key
        for password, expected in ((USERS["alice"], 0), ("wrong", SASL_FAILED)):
            self.authenticate("alice", password, expected)
        for _ in range(3):
            self.fetch_single()
        for _ in range(4):
            self.ask(3, 8, {"topics": []})
        self.ask(18, 2, {})

    def authenticate(self, name: str, password: str, expected: int) -> None:
        """Connect by SASL and go away."""
        client = MinimalClient(self.cluster.sasl_address(0))
        client.send(17, 1, body_of(17, 1, {"mechanism": "PLAIN"}))
        words = {"auth_bytes": f"\0{name}\0{password}".encode()}
        answer = client.send(36, 2, body_of(36, 2, words)).answer
        assert answer["error_code"] == expected, f"{self.name}: {answer}"
        client.close()

    def groups(self) -> None:
        """Leave a group in each state."""
        beat = {"group_id": "stable", "generation_id": 1, "member_id": "m"}

        def loaded() -> bool:
            answer = self.ask(10, 4, {"coordinator_keys": ["stable"], "key_type": 0})
            if answer["coordinators"][0]["error_code"]:
                return False
            return bool(self.ask(12, 4, beat)["error_code"] == UNKNOWN_MEMBER_ID)

        self.until(loaded, "no coordinator of groups")
        self.commit("empty", -1, "")
        generation, member = self.join("stable")
        self.sync("stable", generation, member)
        self.commit("stable", generation, member)
        self.join("completing")
        self.sync("preparing", *self.join("preparing"))
        self.hold(11, 3, self.joining("preparing"))

    def joining(self, group: str) -> dict[str, Any]:
        return {
            "group_id": group, "session_timeout_ms": LASTING_MS, "member_id": "",
            "rebalance_timeout_ms": LASTING_MS, "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"x"}],
        }  # fmt: skip

    def join(self, group: str) -> tuple[int, str]:
        answer = self.ask(11, 3, self.joining(group))
        assert not answer["error_code"], answer
        return answer["generation_id"], answer["member_id"]

    def sync(self, group: str, generation: int, member: str) -> None:
        mine = [{"member_id": member, "assignment": b"all"}]
        request = {"group_id": group, "generation_id": generation, "member_id": member}
        answer = self.ask(14, 3, {**request, "assignments": mine})
        assert not answer["error_code"], answer

    def commit(self, group: str, generation: int, member: str) -> None:
        rows = [
            {"partition_index": n, "committed_offset": 3, "committed_metadata": ""} for n in (0, 1)
        ]
        answer = self.ask(8, 7, {
            "group_id": group, "generation_id_or_member_epoch": generation, "member_id": member,
            "topics": [{"name": SINGLE, "partitions": rows}],
        })  # fmt: skip
        assert not {p["error_code"] for p in answer["topics"][0]["partitions"]} - {0}, answer

    def transactions(self) -> None:
        """Abort a transaction, and leave one open."""
        self.begin("aborted")
        who = {"transactional_id": "aborted", "producer_id": self.who[0],
               "producer_epoch": self.who[1]}  # fmt: skip
        assert not self.ask(26, 3, {**who, "committed": False})["error_code"]

        def ended() -> bool:
            (found,) = self.ask(65, 0, {"transactional_ids": ["aborted"]})["transaction_states"]
            return bool(found["transaction_state"] == "CompleteAbort")

        self.until(ended, "the transaction does not end")
        self.begin("open")

    def begin(self, name: str) -> None:
        init = {"transactional_id": name, "transaction_timeout_ms": LASTING_MS}
        found = self.until(
            lambda: (a := self.ask(22, 4, init))["error_code"] == 0 and a, "no producer id"
        )
        self.who = found["producer_id"], found["producer_epoch"]
        named = {"v3_and_below_transactional_id": name, "v3_and_below_producer_id": self.who[0],
                 "v3_and_below_producer_epoch": self.who[1],
                 "v3_and_below_topics": [{"name": "ledger", "partitions": [0]}]}  # fmt: skip
        answer = self.ask(24, 3, named)
        assert "'partition_error_code': 0" in str(answer), answer
        batch = records(2, 50, is_transactional=True, producer_id=self.who[0],
                        producer_epoch=self.who[1], base_sequence=0)  # fmt: skip
        self.produce("ledger", batch, transactional_id=name)

    def compact(self) -> None:
        """Have the topic `keys` cleaned, and leave a part of it dirty that is too small."""
        for count in (1000, 1000, 300):
            self.produce("keys", records(count, 100, keyed=True))
        checkpoint = self.cluster.data(0) / "cleaner-offset-checkpoint"

        def cleaned() -> bool:
            return checkpoint.exists() and "keys 0 2000" in checkpoint.read_text()

        self.until(cleaned, "the cleaner does not come")
        self.produce("keys", records(900, 100, keyed=True))

    def break_quotas(self) -> None:
        told = self.produce("r", records(1, 5000), client="greedy-producer")
        assert told["throttle_time_ms"] > 0, told
        self.brokers[0].close()  # the broker reads nothing of it for a while
        for topic in ("ledger", "keys"):  # little, then a batch above the bound
            told = self.ask(1, 11, reading(topic), client="greedy-consumer")
        assert told["throttle_time_ms"] > 0, told
        self.brokers[0].close()
        for _ in range(2):  # ours counts the time that a request takes once it is over
            told = self.ask(3, 5, {"topics": []}, client="greedy-asker")
            self.brokers[0].close()
        assert told["throttle_time_ms"] > 0, told

    def administer(self) -> None:
        """Elect leaders, list reassignments, delete records; ask what has to wait for its turn."""
        rows = [{"topic": "r", "partitions": [0, 1]}]
        self.ask(43, 2, {"election_type": 0, "topic_partitions": rows, "timeout_ms": 30_000})
        self.ask(46, 0, {"timeout_ms": 30_000, "topics": None})
        parts = [{"partition_index": 0, "offset": 3}]
        told = self.ask(
            21, 2, {"topics": [{"name": SINGLE, "partitions": parts}], "timeout_ms": 30_000}
        )
        assert not told["topics"][0]["partitions"][0]["error_code"], told
        waiting = reading("ledger", max_wait_ms=300, min_bytes=1 << 20)
        self.hold(1, 11, waiting, then=header_of(60, 0, 2, "holder") + body_of(60, 0, {}))

    def ask_for_topics(self) -> None:
        """Ask for topics that are there and for some that are not."""
        for name in (SINGLE, "missing", "not a name", SINGLE):
            request = {"topics": [{"name": name}, {"name": "u"}]}
            for version in (8, 12):
                self.ask(3, version, {**request, "allow_auto_topic_creation": False})

    # --- a broker away ----------------------------------------------------------------------------

    def pause_other(self) -> None:
        """Pause broker 1; a record for both of them waits at broker 0."""
        self.cluster.pause(1)
        self.hold(0, 9, produce("r", records(1, 100), 0, -1, timeout_ms=LASTING_MS))

    def leave_isr(self) -> None:
        """Wait until broker 1 has left every ISR; what is asked of both then is not done."""

        def alone() -> bool:
            known = self.states()
            return all(known[name, 0] == (0, [0]) for name in (*LED_BY_0, "r"))

        self.until(alone, "broker 1 stays in the ISR")
        self.produce("strict", records(1, 10), NOT_ENOUGH)
        self.ask(20, 5, {"topic_names": ["gone"], "timeout_ms": 100})

    def lose_other(self) -> None:
        """Wait until broker 1 has left the cluster."""
        wanted = {("lonely", 0): -1, ("lagging", 0): 0, ("r", 1): 0}

        def lost() -> bool:
            known = self.states()
            return all(known[tp][0] == leader for tp, leader in wanted.items())

        self.until(lost, "the session of broker 1 does not end")

    def regain_other(self) -> None:
        """Let broker 1 go on, and wait until it is in each ISR again."""
        self.cluster.resume(1)

        def back() -> bool:
            known = self.states()
            replicated = [
                state for (name, _), state in known.items() if name not in (SINGLE, "keys")
            ]
            return all(1 in isr for _, isr in replicated) and not any(n == "gone" for n, _ in known)

        self.until(back, "broker 1 does not come back")
