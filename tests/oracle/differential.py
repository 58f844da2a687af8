"""The same requests to Apache Kafka 3.9 and to us, by the same minimal client; the same answers.

    python tests/oracle/differential.py              one broker of each kind: about a minute
    python tests/oracle/differential.py --brokers 3  three of each, with leaders, followers, deaths
    python tests/oracle/differential.py --key 1      of one request or some; --verbose prints masks
Ours on our own ZooKeeper server, Kafka's on a real one, unless the environment says otherwise
(`support/cluster.py`).

The same topics and records, then every row of the tables in every version, then the flows, step by
step. With three brokers each row is asked of each. Both answers are compared field by field, with
what became of the connection. Ids, addresses and folders are replaced by what they stand for; what
else may differ is a mask with its reason beside its row. The order of what Kafka keeps in hash maps
is not compared: lists of structures are sorted.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from differential_admin import administration
from differential_cluster import moves, placed
from differential_groups import groups
from differential_masks import GENERAL
from differential_shapes import Frame, Shape, frames, shapes
from differential_side import REFUSED, Side
from differential_tables import Flow, Scenario, data_path
from differential_transactions import transaction_flows, transactions
from differential_users import security
from minimal_client import Outcome

from ottla.broker.requests.routes import ROUTES
from ottla.wire.apis import APIS
from support.cluster import OttlaCluster  # tests are no package
from support.kafka39 import Kafka39Cluster

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


OF_SEVERAL = {
    "broker_rack": "rack-{broker}",
    "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "auto_create_topics_enable": "false",
    "offsets_topic_replication_factor": "3",
    "transaction_state_log_replication_factor": "3",
}


@dataclass(frozen=True)
class Step:
    """One request in one version."""

    key: int
    version: int
    name: str
    what: Scenario | Shape | Frame
    round: int = 0

    @property
    def masks(self) -> tuple[str, ...]:
        own = self.what.masks if isinstance(self.what, Scenario) else ()
        return (*own, *GENERAL.masks_of(self.key, self.version, self.name))

    def __str__(self) -> str:
        api = APIS[self.key].name if self.key in APIS else f"key {self.key}"
        return f"{api} v{self.version}, {self.name}"


def steps(
    brokers: int = 1, only: Collection[int] = (), named: str = "", *, short: bool = False
) -> list[Step]:
    """Return all steps in order; if `short`, of each flow the first round and the last."""
    if brokers > 1:
        found = [*in_versions(placed()), *in_rounds(moves(), short=short)]
    else:
        single = [*data_path(), *groups(), *transactions(), *administration(), *security()]
        served = sorted(ROUTES.keys() - REFUSED)
        found = in_versions(single)
        found += [Step(s.key, s.version, s.name, s) for s in shapes(served)]
        found += [Step(f.key, f.version, f.name, f) for f in frames(served)]
        found += in_rounds(transaction_flows(), short=short)
    return [s for s in found if named in s.name and (not only or s.key in only)]


def in_versions(scenarios: Iterable[Scenario]) -> list[Step]:
    """Return a step for each version of each scenario; what builds on another, by version."""
    found = [
        Step(one.key, version, one.name, one)
        for one in scenarios
        if one.key in ROUTES
        for version in versions(one)
    ]
    return [s for _, s in sorted(enumerate(found), key=lambda p: order(p[0], p[1]))]


def versions(one: Scenario) -> range:
    spec = APIS[one.key]
    return range(max(one.low, spec.min_version), min(one.high, spec.max_version) + 1)


def in_rounds(flows: Iterable[Flow], *, short: bool) -> Iterator[Step]:
    """Yield the steps of flows one after the other, each time in the next version."""
    for flow in flows:
        every = max(1, flow.rounds - 1) if short else 1
        for number in range(0, flow.rounds, every):
            for one in flow.steps:
                name = f"{flow.name} {number}: {one.name}"
                served = versions(one)
                # One round alone is of the newest version, several are of all in turn.
                version = served[min(number, len(served) - 1)] if flow.rounds > 1 else served[-1]
                yield Step(one.key, version, name, one, number)


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
        plain = [[o.result, s.named(o.answer)] for s, o in zip(sides, outcomes, strict=True)]
        if isinstance(step.what, Frame):
            plain = [[o.result, None if o.answer is None else len(o.answer)] for o in outcomes]
            if step.key == 18:
                plain = [[o.result, o.answer] for o in outcomes]
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
            else [f"result: ours {ours.result} | Kafka's {theirs.result}"]
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


class FirstOttla(OttlaCluster):
    """Brokers of ours of which the first becomes the controller, because it is alone at first."""

    def start_broker(self, broker: int, *, wait: bool = True) -> None:
        super().start_broker(broker, wait=wait or broker == self.ids[0])


class FirstKafka(Kafka39Cluster):
    """Kafka's likewise."""

    def start_broker(self, broker: int, *, wait: bool = True) -> None:
        super().start_broker(broker, wait=wait or broker == self.ids[0])


def run(
    folder: Path,
    brokers: int = 1,
    *,
    only: Collection[int] = (),
    named: str = "",
    slow: float = 0.0,
    short: bool = False,
) -> Report:
    """Start both, send everything to both at once, compare."""
    todo = steps(brokers, only, named, short=short)
    report = Report()
    of = {**SETTINGS, **(OF_SEVERAL if brokers > 1 else {})}
    with (
        FirstOttla(folder / "ours", brokers, **of) as ours,
        FirstKafka(folder / "theirs", brokers, heap_mb=384, **of) as theirs,
    ):
        sides = (
            Side("ours", ours),
            Side("Kafka", theirs),
        )
        outcomes: dict[str, list[Outcome]] = {side.name: [] for side in sides}
        failures: list[BaseException] = []

        def play(side: Side) -> None:
            try:
                side.prepare()
                for step in todo:
                    began = time.monotonic()
                    side.round = step.round
                    outcomes[side.name].append(side.run(step.key, step.version, step.what))
                    took = time.monotonic() - began
                    if slow and took > slow:
                        print(f"{side.name} took {took:.1f} s for {step}", flush=True)
            except BaseException as error:  # noqa: BLE001 - raised again below
                failures.append(error)
            finally:
                side.close()

        threads = [threading.Thread(target=play, args=(side,), daemon=True) for side in sides]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(900)
        if failures:
            raise failures[0]
        assert not any(thread.is_alive() for thread in threads), "not done in time"
        for step, a, b in zip(todo, outcomes["ours"], outcomes["Kafka"], strict=True):
            report.judge(step, sides, (a, b))
    return report


def told(look, more=lambda _report: (), most=None) -> int:
    """Run `look` in a folder of its own, print what differs and what is more; return the exit code.

    `most`: so many differences are printed.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = look(Path(folder))
    print("\n".join(report.differing[:most]))
    for line in more(report):
        print(line)
    print(f"{report} ({time.monotonic() - started:.0f} s)")
    return 1 if report.differing else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--key", type=int, nargs="+", help="only these api keys")
    parser.add_argument("--named", default="", help="only what has this text in its name")
    parser.add_argument("--verbose", action="store_true", help="also masks used, slow answers")
    args = parser.parse_args()
    slow = 0.4 if args.verbose else 0.0

    def more(report):
        counts = sorted(report.reasons.items(), key=lambda p: -p[1]) if args.verbose else ()
        return [f"{count:6} {reason}" for reason, count in counts]

    return told(
        lambda folder: run(folder, args.brokers, only=args.key or (), named=args.named, slow=slow),
        more,
    )


if __name__ == "__main__":
    sys.exit(main())
