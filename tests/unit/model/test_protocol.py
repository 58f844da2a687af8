"""The protocol's numbers: those of Kafka 3.9, and nowhere else under a second name."""

import ast
import re
from pathlib import Path

from ottla.model import protocol
from support.sources import SOURCE, text_of, tree

# From RecordBatch, ListOffsetsRequest, IsolationLevel, FetchRequest, AbstractControlRequest,
# LeaderAndIsr and OffsetsForLeaderEpochResponse of Kafka 3.9.
KAFKA = {
    "NO_TIMESTAMP": -1, "NO_PRODUCER_ID": -1, "NO_PRODUCER_EPOCH": -1, "NO_SEQUENCE": -1,
    "MAX_SEQUENCE": 2**31 - 1,
    "UNKNOWN_OFFSET": -1, "LATEST": -1, "EARLIEST": -2, "OF_MAX_TIMESTAMP": -3,
    "EARLIEST_LOCAL": -4, "LATEST_TIERED": -5, "READ_UNCOMMITTED": 0, "READ_COMMITTED": 1,
    "ACKS_ALL": -1, "CONSUMER": -1, "DEBUGGING_CONSUMER": -2, "FUTURE_LOCAL_REPLICA": -3,
    "UNKNOWN_BROKER_EPOCH": -1, "LEADER_DURING_DELETE": -2, "EPOCH_DURING_DELETE": -2,
    "UNDEFINED": -1, "NO_GENERATION": -1,
}  # fmt: skip


def defined(path):
    """Yield the names that a module gives to plain numbers."""
    for node in tree(path).body:
        if isinstance(node, ast.Assign):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            if not any(isinstance(v, ast.Constant) and isinstance(v.value, str) for v in values):
                for target in node.targets:
                    names = target.elts if isinstance(target, ast.Tuple) else [target]
                    yield from (n.id for n in names if isinstance(n, ast.Name))


def test_the_numbers_are_those_of_kafka():
    here = Path(protocol.__file__)
    assert {name: getattr(protocol, name) for name in defined(here)} == KAFKA


def test_no_other_module_gives_a_number_one_of_these_names():
    # Few files have such a line: only these are parsed.
    assigned = re.compile(rf"^[\w, =()]*\b({'|'.join(KAFKA)})\b[\w, =()]*=", re.MULTILINE)
    assert assigned.search("UNDEFINED = -1")
    assert assigned.search("a = 1\n(OTHER, EARLIEST) = -3, -2")
    twice = {
        path.relative_to(SOURCE).as_posix()
        for path in sorted(SOURCE.rglob("*.py"))
        if path != Path(protocol.__file__)
        and assigned.search(text_of(path))
        and set(KAFKA) & set(defined(path))
    }
    assert not twice
