"""Invalid reassignments (F42): by the command line, by request and by znode.

Each is refused with its reason, and nothing of it is applied: every znode of topics, settings and
admin requests is the same before and after, its version, too. On brokers of ours and of Kafka 3.9,
whose own tool is given the same files.
"""

import asyncio
import contextlib
import functools
import io
import json
import os
import subprocess
import sys
import time

import pytest
from kazoo.exceptions import KazooException

from ottla.admin.session import world
from ottla.cli.grammar import main
from ottla.client.client import CONTROLLER, Client
from ottla.model.errors import OttlaError
from ottla.wire.messages.topics import AlterPartitionReassignmentsRequest
from support import kafka_tools
from support.cluster import OttlaCluster
from support.command_line import call, found, ok
from support.kafka39 import Kafka39Cluster
from support.seen import REASSIGN_ZNODE, Znodes
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(240)]

TEN_MB = 10_000_000
IN_TIME_S = 60
"""Bounds what has no end; a start of the interpreter on a busy machine takes seconds."""
MORE_MEMORY = 48 << 20
"""Beside a small file: the bytes read, some of them decoded."""


@pytest.fixture(scope="module", params=["ours", "kafka"])
def cluster(request, tmp_path_factory, kafka_tools):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "ours":
        made = OttlaCluster(folder, brokers=2, session_timeout_ms=18_000)
    else:
        made = Kafka39Cluster(folder, brokers=2, heap_mb=256, session_timeout_ms=18_000)
    with made as cluster:
        # Not in order, and exit code 1, while no controller is known.
        until(
            lambda: len(found(cluster, "status")["brokers"]) == 2,
            60,
            "both brokers are known",
            despite=(AssertionError,),
        )
        ok(cluster, "topics", "create", "bad", "--assignment", "0:1,1:0")
        for broker in (0, 1):  # Kafka answers before all brokers know of it
            describe = functools.partial(call, cluster, "topics", "describe", "bad", broker=broker)
            until(
                lambda ask=describe: ask().returncode == 0, 60, f"broker {broker} knows the topic"
            )
        yield cluster


@pytest.fixture(scope="module")
def znodes(cluster):
    with Znodes(cluster.zookeeper) as found:
        yield found


def tree(znodes, *roots):
    """Return every znode below these, with its data and the number of its last change."""
    left, seen = list(roots or ("/brokers/topics", "/config", "/admin")), {}
    while left:
        path = left.pop()
        data, stat = znodes.client.get(path)
        seen[path] = (data, stat.version, stat.mzxid)
        left += [f"{path}/{name}" for name in znodes.names(path)]
    return seen


# --- the command line -------------------------------------------------------------------------


def entry(topic="bad", partition=0, replicas=(1,), **more):
    return {"topic": topic, "partition": partition, "replicas": list(replicas), **more}


def plan(*entries, version=1):
    return json.dumps({"version": version, "partitions": entries})


GOOD = entry(partition=1, replicas=[0])
MANY = [entry(partition=p, replicas=[0, 1]) for p in range(TEN_MB // 60)]
FILES = {  # what is wrong: (file, what our line says)
    "partition twice": (plan(entry(), entry(replicas=[0])), "bad-0 is listed twice"),
    "replica twice": (plan(entry(replicas=[1, 1])), "broker 1 twice"),
    "negative replica": (plan(entry(replicas=[-1])), "broker -1"),
    "negative partition": (plan(entry(partition=-1)), "partition -1"),
    "dead broker": (plan(entry(replicas=[0, 9])), "broker 9 is not alive"),
    "dead brokers": (plan(entry(replicas=[8, 9])), "broker 8 is not alive"),
    "no replicas": (plan(entry(replicas=[])), "no replicas"),
    "no partitions": (plan(), "no partition is listed"),
    "unknown topic": (plan(entry("nosuch")), "topic nosuch does not exist"),
    "unknown partition": (plan(entry(partition=7)), "bad-7 does not exist"),
    "illegal topic": (plan(entry("a/b")), "'a/b'"),
    "one bad among good": (plan(GOOD, entry(replicas=[9])), "broker 9 is not alive"),
    "empty": ("", "empty"),
    "blank": (" \n ", "empty"),
    "null": ("null", "expected"),
    "a list": ("[]", "expected"),
    "a text": ('"partitions"', "expected"),
    "no list of partitions": ('{"version":1}', "partitions"),
    "partitions are an object": ('{"version":1,"partitions":{}}', "partitions"),
    "not JSON": ("move it, please", "malformed"),
    "cut off": (plan(entry())[:-3], "truncated"),
    "more after it": (plan(entry()) + "x", "malformed"),
    "not UTF-8": (plan(entry("BAD")).encode().replace(b"BAD", b"b\xffd"), "utf-8"),
    "NaN": (plan(entry(replicas=[float("nan")])), "malformed"),
    "infinite": (plan(entry(replicas=[float("inf")])), "malformed"),
    "replica 1.5": (plan(entry(replicas=[1.5])), "replicas"),
    "replica 1e400": (plan(entry(replicas=[7])).replace("7", "1e400"), "replicas"),
    "replica 2^31": (plan(entry(replicas=[2**31])), "replicas"),
    "replica 2^64": (plan(entry(replicas=[2**64])), "replicas"),
    "replica is a text": (plan(entry(replicas=["1"])), "replicas"),
    "replica is true": (plan(entry(replicas=[True])), "replicas"),
    "replicas are null": (plan(entry()).replace("[1]", "null"), "replicas"),
    "replicas are a number": (plan(entry()).replace("[1]", "1"), "replicas"),
    "partition is a text": (plan(entry(partition="0")), "partition"),
    "topic is a number": (plan(entry(7)), "topic"),
    "no topic": ('{"version":1,"partitions":[{"partition":0,"replicas":[1]}]}', "topic"),
    "version 2": (plan(entry(), version=2), "version 2"),
    "version is a text": (plan(entry(), version="1"), "version"),
    "too few log dirs": (plan(entry(replicas=[1, 0], log_dirs=["any"])), "2 replicas but 1"),
    "nested deeply": ("[" * 100_000, ""),
    "10 MB of partitions": (plan(*MANY), "larger than 8 MiB"),
    "10 MB in one list": (plan(entry(replicas=[1] * (TEN_MB // 3))), "larger than 8 MiB"),
    "10 MB of a text": (plan(entry("b" * TEN_MB)), "larger than 8 MiB"),
    "10 MB of brackets": ("[" * TEN_MB, "larger than 8 MiB"),
    "7 MB of partitions": (plan(*MANY[: len(MANY) * 7 // 10]), "bad-2 does not exist"),
    "7 MB of brackets": ("[" * 7_000_000, ""),
}  # fmt: skip


def execute(cluster, file):
    """Run `reassign execute` in this process; return exit code, stdout and the lines on stderr."""
    words = ["reassign", "execute", "--file", str(file), "-b", cluster.bootstrap]
    streams = [io.TextIOWrapper(io.BytesIO()) for _ in range(2)]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        code = main(words)
    for stream in streams:
        stream.flush()
    out, err = (stream.buffer.getvalue().decode() for stream in streams)
    return code, out, err.splitlines()


def measured(cluster, file):
    """Run it in a process of its own; return exit code, seconds and the most memory it had."""
    words = [sys.executable, "-m", "ottla", "reassign", "execute", "--file", str(file)]
    with subprocess.Popen(
        [*words, "-b", cluster.bootstrap], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        began = time.monotonic()
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            if time.monotonic() - began > IN_TIME_S:
                process.kill()
            time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(ended[1])
    return process.returncode, time.monotonic() - began, ended[2].ru_maxrss * 1024


def written(file, content):
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def test_f42_files_that_are_no_plan(cluster, znodes, tmp_path):
    before = tree(znodes)
    wrong = []
    for case, (content, says) in FILES.items():
        file = written(tmp_path / "plan.json", content)
        code, printed, lines = execute(cluster, file)
        said = lines[0] if lines else ""
        if (code, printed, len(lines)) != (1, "", 1):
            wrong.append(f"{case}: exit {code}, {printed!r}, {lines}")
        elif not said.startswith(f"ottla: {file}: ") or says.lower() not in said.lower():
            wrong.append(f"{case}: {said}")
        elif len(said) > 600:
            wrong.append(f"{case}: a line of {len(said)} characters")
    assert not wrong, "\n".join(wrong)
    assert tree(znodes) == before


def test_f42_large_files_take_bounded_time_and_memory(cluster, znodes, tmp_path):
    before = tree(znodes)
    used = {
        case: measured(cluster, written(tmp_path / "plan.json", FILES[case][0]))
        for case in FILES
        if case == "empty" or "MB" in case
    }
    assert {code for code, _, _ in used.values()} == {1}
    least = used["empty"][2]
    more = {case: (memory - least) >> 20 for case, (_, _, memory) in used.items()}
    assert max(more.values()) <= MORE_MEMORY >> 20, more
    assert len(used) == 7
    assert tree(znodes) == before


CARRIED_OUT = "more after it"
"""By Kafka's tool, which reads one value and looks no further."""


def test_f42_kafkas_tool_refuses_the_same_files(cluster, znodes, tmp_path):
    before = tree(znodes)
    file = tmp_path / "plan.json"
    codes = {}
    # Of the large ones it makes minutes of work.
    small = [case for case in FILES if "MB" not in case and case != CARRIED_OUT]
    with kafka_tools.OneJvm() as jvm:
        of = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(file))
        for case in small:
            written(file, FILES[case][0])
            codes[case], _ = jvm.call(kafka_tools.REASSIGN, *of, "--execute")
    assert codes == dict.fromkeys(small, 1)
    assert tree(znodes) == before


# --- requests ---------------------------------------------------------------------------------

INVALID, UNKNOWN, NOT_MOVING = 39, 3, 85
REQUESTS = {
    ("bad", 0, ()): INVALID,
    ("bad", 0, (1, 1)): INVALID,
    ("bad", 0, (-1,)): INVALID,
    ("bad", 0, (0, -(2**31))): INVALID,
    ("bad", 0, (0, 9)): INVALID,
    ("bad", 0, (8, 9)): INVALID,
    ("bad", 1, (2**31 - 1,)): INVALID,
    ("bad", 7, (0,)): UNKNOWN,
    ("bad", -1, (0,)): UNKNOWN,
    ("nosuch", 0, (0,)): UNKNOWN,
    ("nosuch", 0, (9,)): INVALID,
    ("", 0, (0,)): UNKNOWN,
    ("a/b", 0, (0,)): UNKNOWN,
    ("x" * 300, 0, (0,)): UNKNOWN,
    ("bad", 0, None): NOT_MOVING,
    ("nosuch", 0, None): NOT_MOVING,
}
MANY_UNKNOWN = {("bad", 2 + n, (0, 1)): UNKNOWN for n in range(9_000)}


def asked(cluster, wanted, timeout_s=60):
    """Send these in one request each topic; return the error code of each one."""
    r = AlterPartitionReassignmentsRequest

    async def ask():
        client = Client(world(), cluster.bootstrap, "test", timeout_s=timeout_s)
        topics = {}
        for topic, partition, replicas in wanted:
            listed = r.ReassignablePartition(
                partition_index=partition, replicas=None if replicas is None else list(replicas)
            )
            topics.setdefault(topic, []).append(listed)
        request = r(topics=[r.ReassignableTopic(name=t, partitions=p) for t, p in topics.items()])
        try:
            response = await client.call(request, CONTROLLER, timeout_s=timeout_s)
            assert response.error_code == 0
            return {
                (t.name, p.partition_index): (p.error_code, p.error_message)
                for t in response.responses
                for p in t.partitions
            }
        finally:
            await client.close()

    return asyncio.run(ask())


def test_f42_requests_are_refused_by_partition(cluster, znodes):
    before = tree(znodes)
    for one, code in REQUESTS.items():
        topic, partition, _ = one
        (answered,) = asked(cluster, [one]).items()
        assert answered[0] == (topic, partition)
        assert answered[1][0] == code, one
    together = {(t, p): (t, p, r) for t, p, r in REQUESTS}  # of each partition the last one
    answers = asked(cluster, together.values())
    assert {tp: code for tp, (code, _) in answers.items()} == {
        tp: REQUESTS[one] for tp, one in together.items()
    }
    answers = asked(cluster, MANY_UNKNOWN)
    assert {code for code, _ in answers.values()} == {UNKNOWN}
    assert len(answers) == len(MANY_UNKNOWN)
    assert tree(znodes) == before


def resident(cluster):
    """Return the most memory each broker has had, in bytes."""
    texts = [open(f"/proc/{cluster.pid(b)}/status").read() for b in cluster.ids]  # noqa: SIM115, PTH123
    return [int(t.split("VmHWM:")[1].split()[0]) * 1024 for t in texts]


@pytest.mark.parametrize("shape", ["partitions", "replicas"])
def test_f42_a_request_of_10_mb_is_bounded(cluster, znodes, shape):
    """Ours refuses what has more elements than a request may have; Kafka has no such bound."""
    if isinstance(cluster, Kafka39Cluster):
        pytest.skip("Kafka decodes all of it")
    before, memory = tree(znodes), resident(cluster)
    if shape == "partitions":
        wanted = [("bad", 2 + n, (0, 1)) for n in range(TEN_MB // 14)]
    else:
        wanted = [("bad", 0, [0] * (TEN_MB // 4))]
    began = time.monotonic()
    with pytest.raises(OttlaError):
        asked(cluster, wanted, timeout_s=3)
    assert time.monotonic() - began < IN_TIME_S
    assert found(cluster, "status")["controller"] is not None
    assert tree(znodes) == before
    grown = max(now - then for now, then in zip(resident(cluster), memory, strict=True))
    assert grown < 64 << 20, f"{grown >> 20} MiB"


# --- znodes -----------------------------------------------------------------------------------

IN_ZNODE = (
    "partition twice and a topic that is not there", "replica twice", "negative replica",
    "negative partition", "no replicas", "no partitions", "unknown topic", "unknown partition",
    "illegal topic", "empty", "null", "a list", "no list of partitions", "not JSON", "cut off",
    "not UTF-8", "NaN", "replica 1.5", "replica 2^31", "replica is a text", "replicas are null",
    "partition is a text", "topic is a number", "nested deeply", "900 KB of blanks",
)  # fmt: skip
ZNODES = {case: FILES[case][0] for case in IN_ZNODE if case in FILES} | {
    "partition twice and a topic that is not there": plan(entry("nosuch"), entry("nosuch")),
    "900 KB of blanks": " " * 900_000,
}


def test_f42_znodes_are_taken_off_and_nothing_moves(cluster, znodes):
    """Kafka carries some of them out (docs/COMPATIBILITY.md): an empty list deletes a topic."""
    if isinstance(cluster, Kafka39Cluster):
        pytest.skip("Kafka does not check what znodes ask for")
    before = tree(znodes)
    for case in IN_ZNODE:
        content = ZNODES[case]
        data = content if isinstance(content, bytes) else content.encode()
        znodes.client.create(REASSIGN_ZNODE, data)
        until(lambda: znodes.client.exists(REASSIGN_ZNODE) is None, 20, f"{case}: it is taken off")
        assert tree(znodes) == before, case
    assert call(cluster, "reassign", "list").stderr.strip().endswith("is in progress")


def test_f42_a_znode_of_10_mb_is_zookeepers_to_refuse(cluster, znodes):
    before = tree(znodes)
    with pytest.raises(KazooException):
        znodes.client.create(REASSIGN_ZNODE, FILES["10 MB of partitions"][0].encode())
    assert until(lambda: tree(znodes) == before, 20, "the same", despite=(KazooException,))
