"""Log lines: one spelling per key, one text per event.

A line is a short text, then `key=value` pairs, then perhaps `: ` and what an operator should know.
"""

import ast
import re

import pytest

from support.sources import SOURCE, nodes, text_of

# key -> what its value is. A new key is added here, unless one that exists says it.
KEYS = {
    # of the cluster
    "broker": "id of a broker", "brokers": "ids of brokers", "cluster_id": "", "node": "simulated",
    "controller": "id of the broker that is the controller", "leader": "id of the leader",
    "leaders": "a number", "followers": "of a partition, or a number", "replicas": "broker ids",
    "target": "broker ids", "isr": "broker ids", "adding": "broker ids", "removing": "broker ids",
    "removed_by": "id of the broker that removed a registration",
    "new": "brokers or topics", "bounced": "brokers", "dead": "brokers", "deleted": "topics",
    "partition": "topic-0", "partitions": "a number, or a list", "topic": "a name",
    "topics": "a number, or a list", "without_leader": "a number of partitions", "bad": "a number",
    # epochs and offsets
    "leader_epoch": "", "controller_epoch": "", "broker_epoch": "", "producer_epoch": "",
    "coordinator_epoch": "", "partition_epoch": "", "epoch_zk_version": "",
    "ours": "the broker's own value of what a request carried", "theirs": "the request's",
    "topic_id": "22 characters", "found": "what a znode had", "since_ms": "a time",
    "newer": "the newer leader epoch",
    "offset": "", "offsets": "first..last, or a number", "from_offset": "", "to_offset": "",
    "log_start_offset": "", "log_end_offset": "", "high_watermark": "", "epoch_start_offset": "",
    "leader_offsets": "start..end of the leader's log", "unreadable": "first..last",
    # of files
    "life": "name of a broker's life", "last": "the newest life",
    "dir": "a log directory", "from_dir": "", "to_dir": "", "folder": "a name in a log directory",
    "path": "of a file or a znode", "file": "a name in a folder", "position": "in bytes",
    "segment": "its base offset", "later_segments": "a number", "files": "a number",
    "bytes": "before->after",
    # of requests and clients
    "api_key": "", "version": "of an API", "request": "in short", "requests": "a number",
    "principal": "type:name", "resource": "Type:PATTERN:name",
    "peer": "address", "listener": "a name", "listeners": "", "endpoint": "", "endpoints": "",
    "host": "", "port": "", "server": "of ZooKeeper", "session": "id of a ZooKeeper session",
    # coordinators
    "group": "id", "generation": "", "old_generation": "", "member": "id",
    "members": "ids, or a number", "removed": "ids of members",
    "instance": "id of a static member", "current": "id of the member that has it now",
    "protocol": "", "transactional_id": "", "producer_id": "",
    "kind": "of a record's key", "records": "a number", "loaded": "whether it was",
    # settings
    "key": "", "keys": "", "entity": "type/name", "overrides": "", "configs": "", "quota": "",
    "quotas": "", "value": "",
    # how it went
    "error": "an exception or an error code", "errors": "", "reason": "a clause", "reasons": "",
    "state": "", "before": "the state before", "from": "before", "to": "after", "action": "",
    "event": "of the controller", "operation": "", "task": "", "signal": "", "failures": "a number",
    "attempts": "", "retries_left": "", "remaining": "", "unanswered": "a number", "first": "",
    "count": "", "recovered": "a number", "shortages": "a number", "unlogged": "a number",
    "limit": "", "took_s": "", "took_ms": "", "late_s": "", "left_s": "", "retry_s": "",
    "timeout_ms": "",
    # of a ZooKeeper server
    "zxid": "", "znodes": "a number", "sessions": "a number", "address": "host:port",
}  # fmt: skip

LOGGERS = {"log", "_log", "logger", "_logger"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
# A file without any of these has no log call; it is not parsed.
SAYS = re.compile(rf"\b({'|'.join(LOGGERS)})\s*\.\s*({'|'.join(LEVELS)})\s*\(")
KEY = re.compile(r"(?:^|[\s(])([a-zA-Z_][\w.]*)=(?=[%{])")


def literal(node):
    """Return the text of a string or f-string, None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
    return None


def written(path):
    """Yield (line number, text) of each log call."""
    if not SAYS.search(text_of(path)):
        return
    for node in nodes(path):
        if not isinstance(node, ast.Call):
            continue
        made = node.func
        wanted = (
            isinstance(made, ast.Attribute)
            and made.attr in LEVELS
            and ast.unparse(made.value).split(".")[-1] in LOGGERS
        )
        for argument in node.args[:3] if wanted else ():
            text = literal(argument)
            if text is not None:
                yield node.lineno, text
                break


@pytest.fixture(scope="module")
def lines():
    return [
        (path.relative_to(SOURCE).as_posix(), number, text)
        for path in sorted(SOURCE.rglob("*.py"))
        for number, text in written(path)
    ]


def test_log_lines_have_only_keys_of_the_list(lines):
    found = [
        f"{name}:{number}: {key}="
        for name, number, text in lines
        for key in KEY.findall(text)
        if key not in KEYS
    ]
    assert len(lines) > 200
    assert not found, "not in KEYS:\n" + "\n".join(found)


def test_no_key_is_listed_that_no_line_has(lines):
    used = {key for _, _, text in lines for key in KEY.findall(text)}
    assert not set(KEYS) - used


def test_one_event_has_one_text(lines):
    """No two texts differ only in case, spaces or punctuation."""
    spelled: dict[str, set[str]] = {}
    for _, _, text in lines:
        said = re.split(r"\s\S+=[%{]", text)[0].strip()
        spelled.setdefault(re.sub(r"\band\b|[^a-z]", "", said.lower()), set()).add(said)
    assert not [sorted(texts) for texts in spelled.values() if len(texts) > 1]
