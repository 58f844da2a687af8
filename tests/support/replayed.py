"""Running replay and mirror for tests, and comparing both topics as a stranger does.

The reader is librdkafka's consumer with read_committed; it knows nothing of the job but the name of
the header. What is expected of the target is made of what it reads in the source, record by record.
"""

import io
import json
import sys
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
from ottla.cli.grammar import read
from ottla.pipelines import job, replay
from ottla.pipelines.result_schemas import RESULTS
from support.clients import fresh, named  # tests are no package
from support.killing import killed_when
from support.schemas import problems

HEADER = "ottla.source"


class Seen(NamedTuple):
    """A record as librdkafka shows it; `timestamp` is (type, ms)."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple
    timestamp: tuple

    @property
    def content(self):
        return self.key, self.value, self.headers, self.timestamp[1]


def read_all(bootstrap, topic, timeout_s=60):
    """Return all committed records of a topic, partition by partition."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {
        "group_id": fresh("reader"),
        "isolation_level": "read_committed",
        "enable_partition_eof": True,
        "enable_auto_commit": False,
        "check_crcs": True,
    }
    consumer = Consumer(named(bootstrap, settings))
    deadline = time.monotonic() + timeout_s
    try:
        count = len(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in range(count)])
        found, ended = [], set()
        while len(ended) < count:
            assert time.monotonic() < deadline, f"no end of {topic} within {timeout_s} s"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
                continue
            found.append(
                Seen(
                    message.partition(), message.offset(), message.key(), message.value(),
                    tuple(message.headers() or ()), message.timestamp(),
                )
            )  # fmt: skip
        return sorted(found, key=lambda r: (r.partition, r.offset))
    finally:
        consumer.close()


def origin(record):
    """Return (partition, offset) of where a record of the target came from, None without one."""
    values = [value for name, value in record.headers if name == HEADER]
    if not values:
        return None
    *_, partition, offset = values[-1].decode().split(";")
    return int(partition), int(offset)


def differences(source, target, *, placed=lambda r: r.partition, wanted=lambda _r: True, first=0):
    """Compare what was read of both topics; return what is wrong, in words.

    `placed` says the target's partition of a record, `wanted` which ones are copied.
    """
    expected = {(r.partition, r.offset): r for r in source if wanted(r) and r.offset >= first}
    found = [r for r in target if origin(r) is not None]
    times = Counter(origin(r) for r in found)
    wrong = [f"{place} is missing" for place in expected if not times[place]]
    wrong += [f"{place} stands {n} times" for place, n in times.items() if n > 1]
    wrong += [f"{place} should not be there" for place in times if place not in expected]
    order = {}
    for record in found:
        one = expected.get(origin(record))
        if one is None:
            continue
        assert record.headers[-1][0] == HEADER
        if record._replace(headers=record.headers[:-1]).content != one.content:
            wrong.append(f"{one} became {record}")
        if record.partition != placed(one):
            wrong.append(f"{one} is in partition {record.partition}")
        lane = (one.partition, record.partition)
        if order.get(lane, -1) >= one.offset:
            wrong.append(f"{lane}: {one.offset} stands behind {order[lane]}")
        order[lane] = one.offset
    return wrong


def settings_of(source, target, topic, to, **more):
    """Return the job's settings as lines of --set; `more` are keys of [replay]."""
    found = {"source.bootstrap_servers": source, "target.bootstrap_servers": target}
    found |= {f"replay.{key}": value for key, value in {"topic": topic, "to": to, **more}.items()}
    return [f"{key}={_toml(value)}" for key, value in found.items() if value is not None]


def _toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}" = {_toml(v)}' for k, v in value.items()) + "}"
    return json.dumps(value)


OPTIONS = {replay.REPLAY: replay.Options, replay.MIRROR: replay.MirrorOptions}


@dataclass
class Outcome:
    """How a run ended."""

    code: int
    result: dict
    told: str


def run_here(spark, sets, *flags, name=replay.REPLAY):
    """Run the job in this process, with a session that stays."""
    arguments = [*flags, *(x for s in sets for x in ("--set", s))]
    options = read(OPTIONS[name], arguments)
    out, told = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(told):
        code = job.run(name, lambda: replay.run(options, spark, name))
    text = out.getvalue()
    result = json.loads(text) if text else {}
    assert problems(result, RESULTS[name]) == [] or not text
    return Outcome(code, result, told.getvalue())


def command(sets, *flags, name=replay.REPLAY):
    arguments = [*flags, *(x for s in sets for x in ("--set", s))]
    return [sys.executable, "-m", "ottla", "pipeline", name, "--master", "local[2]", *arguments]


def kill_when(sets, moment, *flags, name=replay.REPLAY, timeout_s=240):
    """Kill the job at a moment; return whether it was still running (`killing.killed_when`)."""
    return killed_when(command(sets, *flags, name=name), moment, timeout_s)


def descendants(pid, words):
    """Return the processes below one whose command line has these words, parents first."""
    parents, lines = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            stat = (folder / "stat").read_text()
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
            lines[int(folder.name)] = (folder / "cmdline").read_bytes()
    found, todo = [], [pid]
    while todo:
        below = sorted(child for child, parent in parents.items() if parent in todo)
        found += [child for child in below if words in lines.get(child, b"")]
        todo = below
    return found
