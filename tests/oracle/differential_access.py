"""Every API beside every state of permissions: what Kafka 3.9 answers, and what we answer (F38).

    python tests/oracle/differential_access.py           every API: about two minutes
    python tests/oracle/differential_access.py --key 0 1 of some

One broker of each kind, both with AclAuthorizer and the same ACLs, in ZooKeeper before the brokers
start. No client authenticates: who it is, is told by the address that it comes from. The
states of an API follow from its `Access` (nothing, all needs, each alone, all but each, all and one
denied, what implies it, by prefix, wildcard and All); each has an address of its own. The broker
itself and the operator who makes the topics come from 127.0.0.1 and may do everything; at the end
the operator creates, describes and deletes ACLs (`acl_rows`).

The matrix is made of our table, so a need that the table lacks shows as an answer that differs when
"all needs" are given, and one too many when one of them is taken away.
"""

import argparse
import sys
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
import acl_rows
from access_requests import requests
from differential import SETTINGS, differences, masked, told
from differential_side import REFUSED, Side
from minimal_client import MinimalClient, Outcome, body_of

from ottla.broker.requests.routes import ROUTES
from ottla.security.acls import (
    ALL,
    ALLOW,
    CLUSTER,
    CLUSTER_NAME,
    DELEGATION_TOKEN,
    DENY,
    GROUP,
    IMPLIED_BY,
    LITERAL,
    OPERATIONS,
    PERMISSIONS,
    PREFIXED,
    RESOURCE_TYPES,
    SUPPORTED,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WILDCARD,
)
from ottla.wire.apis import APIS
from ottla.zookeeper.acls import AclEntry, acl_path, encode_acls
from support.guarded import (
    ACCESS,
    ANONYMOUS,
    OPERATORS_HOST,
    GuardedKafka,
    GuardedOttla,
    operators_entries,
)

NAMES = {
    TOPIC: ("read", "gone", "new", "b d"),
    GROUP: ("g",),
    TRANSACTIONAL_ID: ("t",),
    CLUSTER: (CLUSTER_NAME,),
    USER: ("User:app",),
    DELEGATION_TOKEN: ("token",),
}
"""What permissions are given for, by type; nobody has one for anything else."""
PREFIXES = {
    TOPIC: ("rea", "gon", "new", "b"),
    GROUP: ("g",),
    TRANSACTIONAL_ID: ("t",),
    CLUSTER: ("kafka",),
    USER: ("User:a",),
    DELEGATION_TOKEN: ("tok",),
}
PATIENCE_S = 60
DELETE_TOPICS = 20
ACL_APIS = {29, 30, 31}

Rule = tuple[int, str, int, int, int]
"""resource type, name, pattern type, operation, permission"""


class State(NamedTuple):
    """What a client may do."""

    name: str
    rules: tuple[Rule, ...]


OPERATOR = State("the operator", ())


def _rules(needs: Collection[tuple[int, int]], permission: int = ALLOW) -> tuple[Rule, ...]:
    return tuple(
        (kind, name, LITERAL, operation, permission)
        for operation, kind in needs
        for name in NAMES[kind]
    )


def states(key: int) -> Iterator[State]:
    """Yield the states of an API, made of what its entry says that it needs."""
    needs = list(dict.fromkeys((n.operation, n.resource_type) for _, n in ROUTES[key].access.needs))
    every = _rules(needs)
    yield State("nothing", ())
    yield State("all needs", every)
    for need in needs:
        operation, kind = need
        title = f"{OPERATIONS[operation]} {RESOURCE_TYPES[kind]}"
        others = [n for n in needs if n != need]
        if others:
            yield State(f"only {title}", _rules([need]))
            yield State(f"all but {title}", _rules(others))
        yield State(f"all, and denied {title}", every + _rules([need], DENY))
        for other in SUPPORTED[kind]:
            if other not in IMPLIED_BY.get(operation, ()) and (other, kind) not in needs:
                yield State(f"{OPERATIONS[other]} for {title}", _rules([*others, (other, kind)]))
        for implying in IMPLIED_BY.get(operation, ()):
            if implying != operation and implying in SUPPORTED[kind]:
                rules = _rules([*others, (implying, kind)])
                yield State(f"{title} by {OPERATIONS[implying]}", rules)
                denied = _rules([(implying, kind)], DENY)
                yield State(f"all, and denied {OPERATIONS[implying]}", every + denied)
    kinds = dict.fromkeys(kind for _, kind in needs)
    prefixed = tuple((k, p, PREFIXED, ALL, ALLOW) for k in kinds for p in PREFIXES[k])
    yield State("All by prefix", prefixed)
    yield State("All by wildcard", tuple((k, WILDCARD, LITERAL, ALL, ALLOW) for k in kinds))
    yield State(
        "All by wildcard, all denied by prefix",
        tuple((k, WILDCARD, LITERAL, ALL, ALLOW) for k in kinds)
        + tuple((k, p, PREFIXED, ALL, DENY) for k in kinds for p in PREFIXES[k]),
    )


@dataclass(frozen=True)
class Step:
    """One request of a client in one state."""

    key: int
    version: int
    name: str
    state: State
    host: str
    request: dict[str, Any] | None = None
    """None: the API's own, by its name"""

    def __str__(self) -> str:
        return f"{APIS[self.key].name} v{self.version} {self.name}, {self.state.name}"


MASKS: dict[int, dict[str, str]] = {
    29: {"error_message": "Kafka prints the request"},
    45: {"error_message": "Kafka prints the request"},
    46: {"error_message": "Kafka prints the request"},
    57: {"error_message": "Kafka says it twice"},
    30: {"results[].error_message": "Kafka prints the request"},
    31: {"filter_results[].error_message": "Kafka prints the request"},
    22: {"producer_id": "each cluster hands out its own"},
    35: {"results[].total_bytes": "the disk's", "results[].usable_bytes": "the disk's",
         "results[].log_dir": "each has its folder"},
    1: {"session_id": "drawn by chance"},
}  # fmt: skip
OLD: dict[int, tuple[int, int, str]] = {
    42: (0, 0, "Kafka keeps an empty group of refused offsets of a transaction for a while"),
    1: (0, 3, "record formats 0 and 1 are not served: docs/COMPATIBILITY.md"),
    9: (1, 1, "ours tells version 1, too, that it may not see the group"),
}  # fmt: skip
"""By API: what may differ, and why; and between which versions answers as a whole may."""


@dataclass
class AccessReport:
    """What a run has found."""

    equal: int = 0
    allowed: int = 0
    denied: int = 0
    masked: int = 0
    differing: list[str] = field(default_factory=list)

    def judge(self, step: Step, sides: tuple[Side, Side], answers: tuple[Outcome, Outcome]) -> None:
        plain = [[o.result, s.named(o.answer)] for s, o in zip(sides, answers, strict=True)]
        for path in MASKS.get(step.key, {}):
            plain = [[r, masked(a, path.replace("[]", "").split("."))] for r, a in plain]
        if plain[0] == plain[1]:
            self.equal += 1
            text = str(answers[0].answer)
            refused = any(f"error_code': {c}" in text for c in (29, 30, 31, 53))
            self.denied += refused
            self.allowed += not refused
            return
        low, high, _ = OLD.get(step.key, (99, 0, ""))
        if low <= step.version <= high:
            self.masked += 1
            return
        lines = [f"result: ours {plain[0][0]} | Kafka's {plain[1][0]}"]
        lines += differences(plain[0][1], plain[1][1])
        self.differing.append("\n    ".join([str(step), *lines]))

    def __str__(self) -> str:
        return (
            f"{self.equal + self.masked + len(self.differing)} requests: {self.equal} equal "
            f"({self.allowed} without and {self.denied} with a denial in it), {self.masked} masked "
            f"with a reason, {len(self.differing)} differing"
        )


def steps(only: Collection[int] = ()) -> list[Step]:
    """Return all steps; each state of an API has its address."""
    found = []
    number = 0
    ids = {"read": bytes(16), "other": bytes(16)}
    for key in sorted(ROUTES.keys() - REFUSED):
        if only and key not in only:
            continue
        for state in states(key):
            if key == DELETE_TOPICS and "wildcard" in state.name:
                continue  # it would delete a topic that all others ask for
            number += 1
            host = f"127.{1 + number // 60_000}.{number // 250}.{1 + number % 250}"
            for version in range(APIS[key].min_version, APIS[key].max_version + 1):
                names = [name for name, _ in requests(key, version, ids)]
                found += [Step(key, version, name, state, host) for name in names]
    for version in range(4):
        for key, name, request in acl_rows.rows(version):
            if not only or key in only or ACL_APIS & set(only):
                found.append(Step(key, version, name, OPERATOR, OPERATORS_HOST, request))
    return found


def znodes(todo: Collection[Step]) -> dict[str, bytes]:
    """Return the ACLs of all states, by the paths of their znodes."""
    entries: dict[tuple[int, str, int], list[AclEntry]] = {}
    for (kind, name), operator in operators_entries().items():
        entries[kind, name, LITERAL] = [operator]
    for host, state in {step.host: step.state for step in todo}.items():
        for kind, name, pattern, operation, permission in state.rules:
            entry = AclEntry(ANONYMOUS, PERMISSIONS[permission], OPERATIONS[operation], host)
            entries.setdefault((kind, name, pattern), []).append(entry)
    return {
        acl_path(RESOURCE_TYPES[kind], name, prefixed=pattern == PREFIXED): encode_acls(rules)
        for (kind, name, pattern), rules in entries.items()
    }


def run(folder: Path, only: Collection[int] = ()) -> AccessReport:
    """Start both, send everything to both, compare."""
    todo = steps(only)
    acls = znodes(todo)
    settings = {**SETTINGS, **ACCESS}
    ours = GuardedOttla(folder / "ours", 1, **settings)
    theirs = GuardedKafka(folder / "theirs", 1, heap_mb=384, **settings)
    ours.acls, theirs.acls = acls, acls
    report = AccessReport()
    with ours, theirs:
        sides = (Side("ours", ours), Side("Kafka", theirs))
        outcomes: dict[str, list[Outcome]] = {side.name: [] for side in sides}
        failures: list[BaseException] = []

        def play(side: Side) -> None:
            try:
                side.prepare()
                outcomes[side.name] = list(ask_all(side, todo))
            except BaseException as error:  # noqa: BLE001 - raised again below
                failures.append(error)
            finally:
                side.close()

        threads = [threading.Thread(target=play, args=(side,), daemon=True) for side in sides]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(700)
        if failures:
            raise failures[0]
        assert not any(thread.is_alive() for thread in threads), "not done in time"
        for step, a, b in zip(todo, outcomes["ours"], outcomes["Kafka"], strict=True):
            report.judge(step, sides, (a, b))
    return report


def ask_all(side: Side, todo: Collection[Step]) -> Iterator[Outcome]:
    """Send each step's request from its address."""
    address = side.cluster.address(0)
    client, host = None, ""
    for step in todo:
        if client is None or step.host != host:
            if client is not None:
                client.close()
            client, host = MinimalClient(address, step.host), step.host
        request = step.request
        if request is None:
            request = dict(requests(step.key, step.version, side.ids))[step.name]
        body = body_of(step.key, step.version, request)
        yield client.send(step.key, step.version, body, timeout_s=PATIENCE_S)
    if client is not None:
        client.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--key", type=int, nargs="+", help="only these api keys")
    args = parser.parse_args()
    return told(lambda folder: run(folder, args.key or ()), most=200)


if __name__ == "__main__":
    sys.exit(main())
