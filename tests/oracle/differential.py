"""The same requests to Apache Kafka 3.9 and to us, by the same minimal client; the same answers.

    python tests/oracle/differential.py            all of it: about a minute
    python tests/oracle/differential.py --key 1    of one request; --verbose prints every mask used

One broker of each kind, the same topics and records, then every row of the tables in every version.
Both answers are compared field by field, with the connection's fate. Ids, addresses and folders are
replaced by what they stand for; what else may differ is a mask with its reason beside its row.
The order of what Kafka keeps in hash maps is not compared: lists of structures are sorted.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from differential_admin import administration
from differential_groups import groups
from differential_masks import GENERAL
from differential_shapes import Frame, Shape, frames, shapes
from differential_tables import STAMP, Scenario, batch, data_path
from differential_transactions import transactions
from minimal_client import MinimalClient, Outcome, body_of

from cluster import OttlaCluster  # tests are no package
from kafka39 import Kafka39Cluster
from ottla.broker.routes import HANDLERS
from ottla.wire.apis import APIS

SETTINGS = {
    "auto_create_topics_enable": "true",
    "auto_leader_rebalance_enable": "false",
    "offsets_topic_num_partitions": "3",
    "offsets_topic_replication_factor": "1",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "3",
    "group_initial_rebalance_delay_ms": "0",
    "inter_broker_protocol_version": "3.9",
}
KEPT = {"retention.ms": "-1"}
"""The records' timestamps are of long ago."""
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "read": (1, KEPT),
    "other": (1, KEPT),
    "written": (1, KEPT),
    "three": (3, {}),
    "trimmed": (1, KEPT),
    "cleared": (1, KEPT),
    "strict": (1, {**KEPT, "min.insync.replicas": "2"}),
    "appended": (1, {**KEPT, "message.timestamp.type": "LogAppendTime"}),
    "small": (1, {**KEPT, "max.message.bytes": "200"}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "gzipped": (1, {**KEPT, "compression.type": "gzip"}),
    "configured": (1, {"retention.ms": "1000000"}),
}
UNLISTED = {17, 29, 30, 31, 36, 38, 39, 40, 41, 50, 51, 58, 68, 69}
"""Security, and what Kafka lists in ZooKeeper mode but always refuses."""
TOPIC_ALREADY_EXISTS = 36
FILLED = ("read", "other", "trimmed", "cleared")


@dataclass
class Side:
    """One broker, and what a scenario has to know of it."""

    name: str
    client: MinimalClient
    folder: str
    ids: dict[str, bytes] = field(default_factory=dict)
    version: int = 0
    session: int = 0
    cluster_id: str = ""
    member: str = ""
    memory: dict[str, Any] = field(default_factory=dict)

    def ask(self, key: int, version: int, request: dict[str, Any]) -> Any:
        outcome = self.client.send(key, version, body_of(key, version, request))
        assert outcome.fate == "answered", f"{self.name}: key {key} {outcome.fate}"
        return outcome.answer

    def prepare(self) -> None:
        """Create the topics, wait for their leaders, write the records."""
        rows = [
            {
                "name": name,
                "num_partitions": count,
                "replication_factor": 1,
                "configs": [{"name": k, "value": v} for k, v in configs.items()],
            }
            for name, (count, configs) in TOPICS.items()
        ]
        deadline = time.monotonic() + 30
        while True:  # a controller that has just come may not know of the broker yet
            answer = self.ask(19, 7, {"topics": rows, "timeout_ms": 20_000})
            if not {t["error_code"] for t in answer["topics"]} - {0, TOPIC_ALREADY_EXISTS}:
                break
            assert time.monotonic() < deadline, answer
            time.sleep(0.2)
        self.await_leaders()
        for topic in FILLED:
            for values in (range(5), range(5, 10)):
                records = batch(*(b"v%d" % v for v in values), stamp=STAMP + values[0])
                parts = [{"index": 0, "records": records}]
                topics = [{"name": topic, "partition_data": parts}]
                told = self.ask(0, 9, {"acks": -1, "timeout_ms": 9000, "topic_data": topics})
                assert not told["responses"][0]["partition_responses"][0]["error_code"], told
        self.await_coordinator()

    def await_leaders(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            asked = {"topics": [{"name": n} for n in TOPICS], "allow_auto_topic_creation": False}
            answer = self.ask(3, 12, asked)
            self.cluster_id = answer["cluster_id"]
            self.ids = {t["name"]: t["topic_id"] for t in answer["topics"]}
            parts = [p for t in answer["topics"] for p in t["partitions"]]
            led = [p for p in parts if p["leader_id"] == 0 and not p["error_code"]]
            if len(led) == sum(n for n, _ in TOPICS.values()):
                return
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)

    def await_coordinator(self) -> None:
        """Wait until groups are served, so that no scenario meets a coordinator that loads."""
        deadline = time.monotonic() + 30
        while True:
            found = self.ask(10, 4, {"coordinator_keys": ["warm", "a", "b", "c"]})["coordinators"]
            found += self.ask(10, 4, {"coordinator_keys": ["a"], "key_type": 1})["coordinators"]
            ids = self.ask(22, 4, {"transactional_id": None, "transaction_timeout_ms": 60_000})
            if not ids["error_code"] and not any(c["error_code"] for c in found):
                codes = [self.ask(12, 4, {"group_id": g, "member_id": "m"})["error_code"]
                         for g in ("warm", "a", "b", "c", "d", "e", "f")]  # fmt: skip
                if all(c == 25 for c in codes):  # UNKNOWN_MEMBER_ID
                    return
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    def run(self, step: "Step") -> Outcome:
        self.version = step.version
        if not isinstance(step.what, Scenario):
            return step.what.run(self.client)
        request = step.what.request(self) if callable(step.what.request) else step.what.request
        body = body_of(step.key, step.version, request)
        if step.what.unanswered:
            return self.client.send_unanswered(step.key, step.version, body)
        outcome = self.client.send(step.key, step.version, body)
        if step.what.learn is not None and outcome.fate == "answered":
            step.what.learn(self, outcome.answer)
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
        if key == "host" and value == self.client.host:
            return "its host"
        if key == "port" and value == self.client.port:
            return "its port"
        if key == "cluster_id" and value == self.cluster_id:
            return "its cluster"
        if key == "session_id" and value == self.session and value:
            return "its session"
        if isinstance(value, str):
            address = f"{self.client.host}:{self.client.port}"
            known_names = {self.member: "its member", self.folder: "its folder", address: "its own"}
            for known, name in known_names.items():
                value = value.replace(known, name) if known else value
        return value


@dataclass(frozen=True)
class Step:
    """One request in one version."""

    key: int
    version: int
    name: str
    what: Scenario | Shape | Frame

    @property
    def masks(self) -> tuple[str, ...]:
        own = self.what.masks if isinstance(self.what, Scenario) else ()
        return (*own, *GENERAL.masks_of(self.key, self.version, self.name))

    def __str__(self) -> str:
        api = APIS[self.key].name if self.key in APIS else f"key {self.key}"
        return f"{api} v{self.version}, {self.name}"


def steps(only: int | None = None) -> list[Step]:
    served = sorted(HANDLERS)
    found: list[Step] = []
    for scenario in [*data_path(), *groups(), *transactions(), *administration()]:
        if scenario.key not in served:
            continue
        spec = APIS[scenario.key]
        low, high = max(scenario.low, spec.min_version), min(scenario.high, spec.max_version)
        found += [Step(scenario.key, v, scenario.name, scenario) for v in range(low, high + 1)]
    # Steps that build on one another run version by version.
    found = [s for _, s in sorted(enumerate(found), key=lambda p: order(p[0], p[1]))]
    found += [Step(s.key, s.version, s.name, s) for s in shapes(served)]
    found += [Step(f.key, f.version, f.name, f) for f in frames(served)]
    return [s for s in found if only is None or s.key == only]


def order(position: int, step: Step) -> tuple[int, int, int]:
    assert isinstance(step.what, Scenario)
    return GENERAL.group_of(step.key, step.name), step.version, position


def masked(value: Any, path: list[str]) -> Any:
    """Replace what a path like `results[].port` names."""
    if isinstance(value, list):
        return [masked(v, path) for v in value]
    if not isinstance(value, dict) or path[0] not in value:
        return value
    inner = value[path[0]]
    return {**value, path[0]: "masked" if len(path) == 1 else masked(inner, path[1:])}


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Yield lines that name a field and both its values."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in ours:
            yield from differences(ours[key], theirs.get(key), f"{path}.{key}" if path else key)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(a, b, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: ours {short(ours)} | Kafka's {short(theirs)}"


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 400 else f"{text[:400]}… ({len(text)} characters)"


@dataclass
class Report:
    """What a run has found."""

    equal: int = 0
    masked: int = 0
    differing: list[str] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)

    def judge(
        self, step: Step, sides: tuple[Side, Side], outcomes: tuple[Outcome, Outcome]
    ) -> None:
        ours, theirs = outcomes
        plain = [[o.fate, s.named(o.answer)] for s, o in zip(sides, outcomes, strict=True)]
        if isinstance(step.what, Frame):
            plain = [[o.fate, None if o.answer is None else len(o.answer)] for o in outcomes]
            if step.key == 18:
                plain = [[o.fate, o.answer] for o in outcomes]
        raw = [self._ordered(p) for p in plain]
        if raw[0] == raw[1]:
            self.equal += 1
            return
        for mask in step.masks:
            path, _, reason = mask.partition(": ")
            if path == "*":
                plain = [["masked", "masked"]] * 2
            elif path == "answer":
                plain = [[p[0], "masked"] for p in plain]
            else:
                plain = [[p[0], masked(p[1], path.replace("[]", "").split("."))] for p in plain]
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
        plain = [self._ordered(p) for p in plain]
        if plain[0] == plain[1]:
            self.masked += 1
            return
        lines = (
            []
            if plain[0][0] == plain[1][0]
            else [f"fate: ours {ours.fate} | Kafka's {theirs.fate}"]
        )
        if plain[0][0] == plain[1][0] or ours.answer or theirs.answer:
            lines += differences(plain[0][1], plain[1][1])
        self.differing.append("\n    ".join([str(step), *lines]))

    def _ordered(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: self._ordered(v) for k, v in value.items()}
        if isinstance(value, list):
            items = [self._ordered(v) for v in value]
            if items and all(isinstance(i, dict) for i in items):
                items.sort(key=lambda v: json.dumps(v, sort_keys=True))
            return items
        return value

    def __str__(self) -> str:
        count = len(self.differing)
        total = self.equal + self.masked + count
        return (
            f"{total} requests: {self.equal} equal, {self.masked} equal but for masks with a "
            f"reason, {count} differing"
        )


def run(folder: Path, only: int | None = None, slow: float = 0.0) -> Report:
    """Start both, send everything to both at once, compare."""
    todo = steps(only)
    report = Report()
    with (
        OttlaCluster(folder / "ours", brokers=1, **SETTINGS) as ours,
        Kafka39Cluster(folder / "theirs", brokers=1, heap_mb=384, **SETTINGS) as theirs,
    ):
        sides = (
            Side("ours", MinimalClient(ours.address(0)), str(ours.data(0))),
            Side("Kafka", MinimalClient(theirs.address(0)), str(theirs.data(0))),
        )
        outcomes: dict[str, list[Outcome]] = {side.name: [] for side in sides}
        failures: list[BaseException] = []

        def play(side: Side) -> None:
            try:
                side.prepare()
                for step in todo:
                    began = time.monotonic()
                    outcomes[side.name].append(side.run(step))
                    took = time.monotonic() - began
                    if slow and took > slow:
                        print(f"{side.name} took {took:.1f} s for {step}", flush=True)
            except BaseException as error:  # noqa: BLE001 - raised again below
                failures.append(error)
            finally:
                side.client.close()

        threads = [threading.Thread(target=play, args=(side,), daemon=True) for side in sides]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        if failures:
            raise failures[0]
        for step, a, b in zip(todo, outcomes["ours"], outcomes["Kafka"], strict=True):
            report.judge(step, sides, (a, b))
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--key", type=int, help="only this api key")
    parser.add_argument("--verbose", action="store_true", help="also masks used, slow answers")
    args = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder), args.key, 0.4 if args.verbose else 0.0)
    print("\n".join(report.differing))
    if args.verbose:
        for reason, count in sorted(report.reasons.items(), key=lambda p: -p[1]):
            print(f"{count:6} {reason}")
    print(f"{report} ({time.monotonic() - started:.0f} s)")
    return 1 if report.differing else 0


if __name__ == "__main__":
    sys.exit(main())
