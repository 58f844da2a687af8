"""`ottla reassign` beside Kafka's own tool, on three brokers of ours and of Kafka 3.9.

What Kafka's tool prints is what --kafka-output prints; a plan in progress takes another throttle
and nothing else; Ctrl-C leaves no throttle, kill -9 none on our brokers, and what stays is said;
what is copied is what lies on the disks; the way back is in a file.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from ottla.model.throttle_settings import RATES
from support import command_line, kafka_tools
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.reassigning import ShortLeases
from support.schemas import partition_name
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(240)]

MIB = 1 << 20


@pytest.fixture(scope="module", params=["ours", "kafka"])
def cluster(request, tmp_path_factory, kafka_tools):
    folder = tmp_path_factory.mktemp(request.param)
    settings = {"auto_leader_rebalance_enable": "false", "default_replication_factor": "1"}
    if request.param == "ours":
        made = ShortLeases(folder, brokers=3, session_timeout_ms=18_000, **settings)
    else:
        settings["log_cleaner_dedupe_buffer_size"] = "16777216"
        made = Kafka39Cluster(folder, brokers=3, heap_mb=256, session_timeout_ms=18_000, **settings)
    with made as cluster:
        until(lambda: len(asked(cluster, "status")["brokers"]) == 3, 60, "all brokers are known")
        yield cluster


def words(cluster, *arguments):
    at = ["--bootstrap-server", cluster.bootstrap]
    return [sys.executable, "-m", "ottla", *map(str, arguments), *at]


def call(cluster, *arguments, stdin=""):
    return command_line.call(cluster, *arguments, stdin=stdin)


def ok(cluster, *arguments, **options):
    done = call(cluster, *arguments, **options)
    assert done.returncode == 0, done.stderr
    return done


def asked(cluster, *arguments):
    return json.loads(ok(cluster, *arguments, "--output", "json").stdout)


def plan_of(topic, assignment):
    listed = [{"topic": topic, "partition": p, "replicas": r} for p, r in assignment.items()]
    return json.dumps({"version": 1, "partitions": listed})


def create(cluster, topic, assignment):
    text = ",".join(":".join(map(str, ids)) for ids in assignment)
    ok(cluster, "topics", "create", topic, "--assignment", text)


def fill(cluster, topic, mebibytes):
    """Produce so much to a topic of one partition."""
    line = "x" * (MIB // 16 - 1) + "\n"
    done = subprocess.run(
        words(cluster, "produce", topic),
        input=line * 16 * mebibytes, text=True, capture_output=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def throttles(cluster, topic):
    """Throttled settings there are: (where, key, value)."""
    return [
        (name, found["key"], found["value"])
        for kind, name in (*(("--broker", b) for b in cluster.ids), ("--topic", topic))
        for found in asked(cluster, "configs", "describe", kind, name)["settings"]
        if "throttled" in found["key"]
    ]


def moved(cluster, topic, wanted):
    """Wait until every broker has heard where a topic's replicas are now."""

    def told(broker):
        at = ("--bootstrap-server", cluster.address(broker))
        done = call_at(at, "topics", "describe", topic, "--output", "json")
        if done.returncode:
            return None
        (found,) = json.loads(done.stdout)
        return {p["partition"]: p["replicas"] for p in found["partitions"]}

    until(lambda: all(told(b) == wanted for b in cluster.ids), 90, f"{topic} is on {wanted}")


def unthrottled(cluster, topic):
    """Wait until brokers have heard that no throttle is left: sooner than any lease ends."""
    until(lambda: throttles(cluster, topic) == [], 8, f"no throttle of {topic}")


def hurry(cluster):
    """Raise the throttle of the two brokers between which tests move something."""
    for broker in (0, 1):
        rates = (f"--set={rate}=50000000" for rate in RATES[:2])
        ok(cluster, "configs", "alter", "--broker", broker, *rates)


def test_prints_what_kafkas_tool_prints(cluster, tmp_path):
    there = {0: [0, 1], 1: [1, 2], 2: [2, 0]}
    wanted = {0: [1, 2], 1: [1, 2], 2: [0, 1]}
    create(cluster, "same", there.values())
    forth, back, stopped = (tmp_path / f"{name}.json" for name in ("forth", "back", "stopped"))
    forth.write_text(plan_of("same", wanted))
    back.write_text(plan_of("same", there))
    of = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file")
    with kafka_tools.OneJvm() as jvm:

        def kafkas(*arguments):
            code, out = jvm.call(kafka_tools.REASSIGN, *map(str, arguments))
            assert code == 0, out
            return out

        def ours(*arguments, code=0):
            done = call(cluster, "reassign", *arguments, "--kafka-output")
            assert done.returncode == code, done.stderr
            return done.stdout

        at = ("--bootstrap-server", cluster.bootstrap)
        kafkas(*at, "--list")  # log4j complains once of having no settings
        assert ours("list") == kafkas(*at, "--list")
        theirs = kafkas(*of, forth, "--execute", "--throttle", 5_000_000)
        moved(cluster, "same", wanted)
        assert kafkas(*of, forth, "--verify") == ours("verify", "--reassignment-json-file", forth)
        unthrottled(cluster, "same")
        ok(cluster, "reassign", "execute", "--file", back, "--wait", 30)
        moved(cluster, "same", there)
        assert ours("execute", "--file", forth, "--throttle", 5_000_000) == theirs
        moved(cluster, "same", wanted)
        assert ours("verify", "--file", forth) == kafkas(*of, forth, "--verify")
        unthrottled(cluster, "same")
        assert ours("verify", "--file", back, code=1) == kafkas(*of, back, "--verify")
        theirs = kafkas(*of, back, "--cancel").replace(
            ".Clearing", ".\nClearing"
        )  # println forgotten
        assert ours("cancel", "--file", back) == theirs
        # With a broker that is stopped for the moment the move stays in progress.
        stopped.write_text(plan_of("same", {0: [1, 2, 0]}))
        victim = cluster.processes[0]
        controller = asked(cluster, "status")["controller"]
        if controller == 0:
            return
        os.kill(victim.pid, signal.SIGSTOP)
        try:
            elsewhere = ("--bootstrap-server", cluster.address(1))
            first = call_at(elsewhere, "reassign", "execute", "--file", stopped)
            assert first.returncode == 0, first.stderr
            listed = call_at(elsewhere, "reassign", "list", "--kafka-output").stdout
            assert listed == kafkas(*elsewhere, "--list")
            assert "same-0: replicas: 1,2,0. adding: 0." in listed
            plan = ("--reassignment-json-file", str(stopped))
            found = call_at(
                elsewhere, "reassign", "verify", "--preserve-throttles", *plan, "--kafka-output"
            ).stdout
            assert found == kafkas(*elsewhere, *plan, "--verify", "--preserve-throttles")
            done = call_at(elsewhere, "reassign", "cancel", *plan, "--preserve-throttles",
                           "--kafka-output").stdout  # fmt: skip
            assert done.startswith("Successfully cancelled partition reassignment for: same-0\n")
        finally:
            os.kill(victim.pid, signal.SIGCONT)


def call_at(at, *arguments):
    return command_line.ottla(*arguments, *at)


def test_plans_for_a_file_of_topics_all_of_them_and_a_broker(cluster, tmp_path):
    create(cluster, "one", [[0], [0], [0]])
    create(cluster, "two", [[0, 1], [0, 2]])
    (tmp_path / "topics.json").write_text('{"topics":[{"topic":"one"}],"version":1}')
    done = ok(
        cluster, "reassign", "plan", "--topics-to-move-json-file", tmp_path / "topics.json",
        "--broker-list", "1,2", "--kafka-output",
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[0] == "Current partition replica assignment"
    assert [p["replicas"] for p in json.loads(lines[1])["partitions"]] == [[0]] * 3
    assert lines[2:4] == ["", "Proposed partition reassignment configuration"]
    proposed = [p["replicas"][0] for p in json.loads(lines[4])["partitions"]]
    assert sorted(proposed) in ([1, 1, 2], [1, 2, 2])
    assert "3 replicas to copy" in done.stderr
    assert "no spread as even copies fewer than 3" in done.stderr
    every = json.loads(ok(cluster, "reassign", "plan", "--all").stdout)["partitions"]
    assert {p["topic"] for p in every} >= {"one", "two"}
    done = ok(cluster, "reassign", "plan", "--drain", 0)
    drained = json.loads(done.stdout)["partitions"]
    assert {(p["topic"], p["partition"]) for p in drained} >= {
        ("one", 0), ("one", 1), ("one", 2), ("two", 0), ("two", 1),
    }  # fmt: skip
    assert all(0 not in p["replicas"] for p in drained)
    for some in ((), ("--all", "--topics", "one"), ("--drain", 0, "--all")):
        assert call(cluster, "reassign", "plan", *some).returncode == 2


def test_a_plan_in_progress_takes_another_throttle(cluster, tmp_path):
    create(cluster, "slow", [[0]])
    fill(cluster, "slow", 40)
    plan = plan_of("slow", {0: [1]})
    back = tmp_path / "back.json"
    done = ok(
        cluster, "reassign", "execute", "--file", "-", "--throttle", 1000,
        "--rollback-file", back, stdin=plan,
    )  # fmt: skip
    assert f"the way back is in {back}" in done.stderr
    assert json.loads(back.read_text()) == json.loads(done.stdout)
    assert [p["replicas"] for p in json.loads(back.read_text())["partitions"]] == [[0]]
    refused = call(cluster, "reassign", "execute", "--file", "-", stdin=plan)
    assert refused.returncode == 1
    assert "it is in progress already (slow-0)" in refused.stderr
    assert "another --throttle" in refused.stderr
    another = call(cluster, "reassign", "execute", "--partition", "slow-0=2", "--throttle", 9)
    assert another.returncode == 1
    assert "slow-0 is being reassigned already" in another.stderr
    assert "9" not in {value for *_, value in throttles(cluster, "slow")}
    done = ok(
        cluster, "reassign", "execute", "--file", "-", "--throttle", 50_000_000, "--wait", 60,
        stdin=plan,
    )  # fmt: skip
    assert "its throttle is 50,000,000 bytes/s now" in done.stderr
    moved(cluster, "slow", {0: [1]})
    unthrottled(cluster, "slow")


def test_ctrl_c_takes_throttles_off_and_says_what_goes_on(cluster):
    create(cluster, "stay", [[0]])
    fill(cluster, "stay", 60)
    command = words(
        cluster, "reassign", "execute", "--partition", "stay-0=2", "--throttle", 500,
        "--wait", 60,
    )  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = ""
        while "of 1 partition" not in line:
            line = process.stderr.readline()
            assert line, "it ended"
        assert {key for _, key, _ in throttles(cluster, "stay")} == {
            "leader.replication.throttled.rate", "follower.replication.throttled.rate",
            "leader.replication.throttled.replicas", "follower.replication.throttled.replicas",
        }  # fmt: skip
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait(10)
    assert process.returncode == 130
    assert "throttles removed" in said
    assert re.search(
        r"interrupted; the reassignment of 1 partition continues, without a throttle", said
    )
    unthrottled(cluster, "stay")
    moved(cluster, "stay", {0: [2]})


def test_kill_9_of_the_tool_leaves_a_throttle_only_where_no_lease_is_known(cluster):
    create(cluster, "left", [[0]])
    fill(cluster, "left", 40)
    command = words(
        cluster, "reassign", "execute", "--partition", "left-0=1", "--throttle", 1000,
        "--wait", 60,
    )  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        line = ""
        while "of 1 partition" not in line:
            line = process.stderr.readline()
            assert line, "it ended"
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
        process.stderr.close()
    left = throttles(cluster, "left")
    assert len(left) == 6, left
    assert [partition_name(m) for m in asked(cluster, "reassign", "list")] == ["left-0"], (
        "it goes on"
    )
    hurry(cluster)
    moved(cluster, "left", {0: [1]})
    if isinstance(cluster, OttlaCluster):
        until(lambda: throttles(cluster, "left") == [], 60, "the lease has ended")
        return
    found = call(cluster, "reassign", "throttles", "--output", "json")
    assert found.returncode == 1
    forgotten = json.loads(found.stdout)
    assert [(f["kind"], f["name"]) for f in forgotten] == [
        ("broker", "0"), ("broker", "1"), ("topic", "left"),
    ]  # fmt: skip
    assert forgotten[0]["settings"] == dict.fromkeys(RATES[:2], "50000000")
    done = subprocess.run(
        [sys.executable, "-m", *forgotten[0]["fix"].split(), "-b", cluster.bootstrap],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ok(cluster, "reassign", "throttles", "--remove")
    unthrottled(cluster, "left")
    assert "no throttle is left over" in ok(cluster, "reassign", "throttles").stderr


def segments(cluster, broker, topic):
    """Return the bytes of a replica's segments, on that broker's disk."""
    folder = cluster.data(broker) / f"{topic}-0"
    return sum(f.stat().st_size for f in folder.glob("*.log")) if folder.exists() else 0


def test_list_shows_what_is_copied_what_is_left_and_how_fast(cluster):
    """Beside the sizes of the segments, before and after."""
    create(cluster, "shown", [[0]])
    fill(cluster, "shown", 40)
    ok(cluster, "reassign", "execute", "--partition", "shown-0=1", "--throttle", 500_000)
    whole = segments(cluster, 0, "shown")
    until(lambda: segments(cluster, 1, "shown") > 0, 30, "it has begun")
    before, began = segments(cluster, 1, "shown"), time.monotonic()
    (one,) = asked(cluster, "reassign", "list", "--interval", 4)
    took, after = time.monotonic() - began, segments(cluster, 1, "shown")
    assert one["size"] == whole
    assert before <= one["copied"] <= after < whole
    assert one["left"] == whole - one["copied"]
    assert 0 <= one["copied_per_s"] * 4 <= after - before + MIB
    assert took > 4
    (one,) = asked(cluster, "reassign", "list", "--interval", 0)
    assert one["copied_per_s"] is None
    done = ok(cluster, "reassign", "list")
    head, row = done.stdout.splitlines()
    assert head.split("\t") == [
        "partition", "replicas", "adding", "removing", "copied", "left", "per second",
    ]  # fmt: skip
    copied, left = (int(text.replace(",", "")) for text in row.split("\t")[4:6])
    assert copied + left == whole
    # Kafka's brokers do not tell their throttles: then it shows once something came meanwhile.
    shown = r"1 partition in progress: \d+\.\d of 4[0-9]\.\d MB, .* left"
    until(lambda: re.search(shown, ok(cluster, "reassign", "list").stderr), 30, "the end is seen")
    done = ok(cluster, "reassign", "cancel", "--all")
    assert "shown-0 goes back to 0" in done.stderr
    unthrottled(cluster, "shown")
    assert asked(cluster, "reassign", "list") == []


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.alone)]
)
def test_who_only_watched_leaves_the_throttle_and_is_told_of_it(cluster, number):
    """The move goes on, throttled: by a lease on ours; on Kafka's the way to remove it is said."""
    topic = f"watched-{number.name.lower()}"
    create(cluster, topic, [[0]])
    fill(cluster, topic, 40)
    move = ("--partition", f"{topic}-0=1")
    done = call(cluster, "reassign", "execute", *move, "--throttle", 1000, "--wait", 1)
    assert done.returncode == 1
    assert "after 1 s 1 partition still moving" in done.stderr
    where = f"the throttle of broker 0, broker 1, topic {topic}"
    stays = f"the brokers remove {where} soon after the end"
    if not isinstance(cluster, OttlaCluster):
        stays = f"{where} stays until it is removed: once it has ended, `ottla reassign verify`"
    assert stays in done.stderr
    command = words(cluster, "reassign", "verify", *move, "--wait", 60)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = ""
        while "of 1 partition" not in line:
            line = process.stderr.readline()
            assert line, "it ended"
        process.send_signal(number)
        printed, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait(10)
    assert (process.returncode, printed) == (130, "")
    assert "interrupted; the reassignment of 1 partition continues: `ottla reassign list`" in said
    assert stays in said
    assert len(throttles(cluster, topic)) == 6, "it is still throttled"
    assert [partition_name(m) for m in asked(cluster, "reassign", "list")] == [f"{topic}-0"]
    hurry(cluster)
    moved(cluster, topic, {0: [1]})
    if isinstance(cluster, OttlaCluster):
        until(lambda: throttles(cluster, topic) == [], 60, "the leases have ended")
    else:
        ok(cluster, "reassign", "throttles", "--remove")
    unthrottled(cluster, topic)
