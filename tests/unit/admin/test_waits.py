"""Every command that waits says for what: against a broker that is silent in one way or another."""

import contextlib
import json
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from ottla.admin.commands import reassign
from ottla.cli import grammar as cli
from ottla.cli import output
from ottla.client import consumer
from ottla.local import brokers, processes
from ottla.local import cluster as local_cluster
from ottla.local.cluster_dir import ClusterDir, LocalBroker, LocalCluster, LocalZooKeeper
from ottla.model import waits
from ottla.model.errors import ErrorCode, OttlaError, StartupError
from ottla.wire.apis import APIS
from ottla.wire.codec import encode_response
from ottla.wire.headers import decode_request_header, response_header
from ottla.wire.messages.cluster import ApiVersionsResponse, MetadataResponse
from ottla.wire.messages.configs import DescribeConfigsResponse
from ottla.wire.messages.groups import FindCoordinatorResponse
from ottla.wire.messages.records import ProduceResponse
from ottla.wire.messages.transactions import InitProducerIdResponse
from support.commands import asks_cluster, every_command
from support.waiting import until

pytestmark = pytest.mark.timeout(60)


PRODUCE, METADATA, FIND_COORDINATOR, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 10, 18, 22
DESCRIBE_CONFIGS = 32
PLAN = '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}'


@pytest.fixture(autouse=True)
def no_reports():
    """Without a command no wait is reported."""
    yield
    waits.silence()


ASKING = {
    "status": "",
    "broker drain": "1",
    "broker stop": "1 --leaders-only",
    "topics create": "new",
    "topics list": "",
    "topics describe": "t",
    "topics alter": "t --partitions 4",
    "topics delete": "t --yes",
    "topics offsets": "t",
    "topics delete-records": "t --before 1 --yes",
    "produce": "t --key k --tombstone",
    "consume": "t",
    "configs describe": "--topic t",
    "configs alter": "--topic t --set retention.ms=1",
    "groups list": "",
    "groups describe": "g",
    "groups lag": "g",
    "groups delete": "g --yes",
    "groups delete-offsets": "g --topic t --yes",
    "groups reset-offsets": "g --to earliest --topic t --execute",
    "groups watch": "g",
    "txn list": "",
    "txn describe": "x",
    "txn producers": "t 0",
    "txn hanging": "",
    "txn abort": "t 0 --start-offset 5 --yes",
    "acls list": "",
    "acls add": "User:a --topic t --operation read",
    "acls remove": "--topic t --yes",
    "acls check": "User:a read --topic t",
    "reassign plan": "--topics t",
    "reassign execute": "--file {plan} --rollback-file {back}",
    "reassign verify": "--file {plan}",
    "reassign cancel": "--file {plan}",
    "reassign list": "",
    "reassign throttles": "",
    "elect": "preferred --all",
    "top": "--output json",
    "doctor": "--for 0s",
    "verify-replicas": "t",
    "users list": "",
    "users add": "a --password-file {password}",
    "users remove": "a --yes",
    "cluster snapshot": "",
    "cluster diff": "{snapshot}",
    "cluster apply": "{snapshot} --yes",
    "log-dirs": "",
    "whatif kill": "1",
    "whatif shutdown": "1",
    "whatif rolling-restart": "",
    "whatif drain": "1",
    "whatif add-brokers": "7",
    "whatif reassign": "{plan}",
    "whatif unclean": "t-0",
    "whatif config": "min.insync.replicas=2 t",
}
"""Command -> what is typed after it."""

ONLY_METADATA = {
    "status", "topics list", "reassign plan", "whatif kill", "whatif shutdown",
    "whatif rolling-restart", "whatif drain", "whatif add-brokers", "whatif reassign",
    "whatif unclean", "whatif config",
}  # fmt: skip
"""Need no other answer, or explain why they cannot have it."""

AT_A_COORDINATOR = [
    "groups describe g", "groups lag g", "groups delete g --yes",
    "groups delete-offsets g --topic t --yes",
    "groups reset-offsets g --to earliest --topic t --execute",
    "txn describe x", "consume t --group g",
]  # fmt: skip

AT_A_CONTROLLER = [
    "topics create new", "topics alter t --partitions 4", "elect preferred --all",
    "reassign list", "broker stop 1 --leaders-only",
]  # fmt: skip


class Broker(socketserver.ThreadingTCPServer):
    """Answers what `answers` names, and leaves all else unanswered; `controller`, `leader`: -1."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, answers=(), *, controller=1, leader=1):
        super().__init__(("127.0.0.1", 0), _Connection)
        self.answers = answers
        self.controller, self.leader, self.isr = controller, leader, [1, 2]
        self.asked = Counter()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def port(self):
        return self.server_address[1]

    def answer(self, key):
        self.asked[key] += 1
        if key not in self.answers:
            return None
        if key == FIND_COORDINATOR:
            return FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if key == API_VERSIONS:
            one = ApiVersionsResponse.ApiVersion
            listed = [
                one(api_key=a.key, min_version=a.min_version, max_version=a.max_version)
                for a in APIS.values()
            ]
            return ApiVersionsResponse(api_keys=listed)
        if key == INIT_PRODUCER_ID:
            return InitProducerIdResponse(producer_id=7)
        if key == PRODUCE:
            partition = ProduceResponse.PartitionProduceResponse
            refused = partition(error_code=ErrorCode.NOT_ENOUGH_REPLICAS)
            return ProduceResponse(
                responses=[
                    ProduceResponse.TopicProduceResponse(name="t", partition_responses=[refused])
                ]
            )
        if key == DESCRIBE_CONFIGS:
            result = DescribeConfigsResponse.DescribeConfigsResult
            setting = DescribeConfigsResponse.DescribeConfigsResourceResult
            found = [setting(name="min.insync.replicas", value="2", config_source=5)]
            return DescribeConfigsResponse(
                results=[result(resource_type=2, resource_name="t", configs=found)]
            )
        topic = MetadataResponse.MetadataResponseTopic
        partition = MetadataResponse.MetadataResponsePartition
        return MetadataResponse(
            controller_id=self.controller,
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=n, host="127.0.0.1", port=self.port
                )
                for n in (1, 2)
            ],
            topics=[
                topic(
                    name="t",
                    topic_id=bytes(15) + b"t",
                    partitions=[
                        partition(
                            partition_index=n, leader_id=self.leader, replica_nodes=[1, 2],
                            isr_nodes=self.isr,
                        )
                        for n in range(2)
                    ],
                )
            ],
        )  # fmt: skip


class _Connection(socketserver.StreamRequestHandler):
    def handle(self):
        while length := self.rfile.read(4):
            frame = self.rfile.read(int.from_bytes(length, "big"))
            header, _ = decode_request_header(memoryview(frame))
            answer = self.server.answer(header.api_key)
            if answer is None:
                continue
            head = response_header(header.api_key, header.api_version, header.correlation_id)
            parts = [bytes(p) for p in (head, *encode_response(answer, header.api_version))]
            body = b"".join(parts)
            self.wfile.write(len(body).to_bytes(4, "big") + body)


@pytest.fixture
def serve():
    servers = []

    def start(*answers, **how):
        servers.append(Broker(answers, **how))
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def told(monkeypatch, tmp_path):
    """Return a function that runs a command until it says what it waits for."""
    monkeypatch.setattr(waits, "LONG_S", 0.1)
    monkeypatch.setattr(consumer, "IDLE_S", 0.1)
    monkeypatch.setattr(reassign, "LONGEST_FAREWELL_S", 0.2)
    monkeypatch.setattr(waits, "LOOK_EVERY_S", 0.02)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "plan").write_text(PLAN)
    (tmp_path / "password").write_text("secret")
    topic = {"replicas": [[1, 2], [1, 2]], "settings": {}}
    snapshot = {"cluster_id": "x", "brokers": {}, "topics": {"t": topic}, "quotas": [],
                "groups": {}, "version": 1}  # fmt: skip
    (tmp_path / "snapshot").write_text(json.dumps(snapshot))
    names = {name: str(tmp_path / name) for name in ("plan", "password", "snapshot", "back")}

    def run(server, typed, wanted=""):
        lines, running = [], threading.Event()
        main = threading.get_ident()

        def complain(text):
            lines.append(text)
            if text.startswith("waiting: ") and wanted in text and running.is_set():
                running.clear()
                signal.pthread_kill(main, signal.SIGINT)

        monkeypatch.setattr(output, "complain", complain)
        words = typed.format(**names).split()
        if server is not None:
            words += ["--bootstrap-server", f"127.0.0.1:{server.port}"]
        running.set()
        try:
            cli.main(words)
        except KeyboardInterrupt:  # a moment late
            pass
        finally:
            running.clear()
        return [
            line.removeprefix("waiting: ") for line in lines if line.startswith("waiting: ")
        ], lines

    return run


def test_the_table_has_every_command_that_asks_a_cluster():
    asking = {name for name, command in every_command().items() if asks_cluster(command)}
    # A console and a registry serve pages, and say on them what does not answer.
    assert set(ASKING) == asking - {"console", "schema-registry"}


@pytest.mark.parametrize("command", ASKING)
def test_a_broker_that_accepts_and_is_silent_is_named(serve, told, command):
    server = serve()
    waited, lines = told(server, f"{command} {ASKING[command]}")
    assert waited == [f"127.0.0.1:{server.port} has not answered"], lines


@pytest.mark.parametrize("command", sorted(ASKING.keys() - ONLY_METADATA))
def test_a_request_that_is_not_answered_is_named(serve, told, command):
    server = serve(API_VERSIONS, METADATA)
    waited, lines = told(server, f"{command} {ASKING[command]}", "has not answered")
    assert any(f"127.0.0.1:{server.port} has not answered " in line for line in waited), lines


@pytest.mark.parametrize("typed", AT_A_COORDINATOR)
def test_a_coordinator_that_is_not_there_is_named(serve, told, typed):
    reason = "no broker is the coordinator now (COORDINATOR_NOT_AVAILABLE)"
    waited, lines = told(serve(API_VERSIONS, METADATA, FIND_COORDINATOR), typed, reason)
    assert any(reason in line for line in waited), lines


@pytest.mark.parametrize("typed", AT_A_CONTROLLER)
def test_a_controller_that_is_not_there_is_named(serve, told, typed):
    waited, lines = told(serve(API_VERSIONS, METADATA, controller=-1), typed, "controller")
    assert "the cluster has no controller now" in waited, lines


def test_a_leader_that_is_not_there_is_named(serve, told):
    server = serve(API_VERSIONS, METADATA, INIT_PRODUCER_ID, leader=-1)
    waited, _ = told(server, "produce t --key k --tombstone", "leader")
    assert any(line.endswith("has no leader") for line in waited)
    waited, _ = told(server, "consume t", "leader")
    assert "t-0 has no leader" in waited


def test_produce_names_the_replicas_that_are_not_in_sync(serve, told):
    """And says at its end what is known to be written, and what is not."""
    server = serve(API_VERSIONS, METADATA, INIT_PRODUCER_ID, PRODUCE, DESCRIBE_CONFIGS)
    server.isr = [1]
    typed = "produce t --partition 0 --key k --tombstone"
    _, lines = told(server, typed, "in-sync")
    missing = "t-0 has 1 of 2 in-sync replicas that min.insync.replicas asks for; not in sync: "
    assert f"waiting: {missing}broker 2" in lines
    assert lines[-2:] == [
        f"0 records acknowledged, 1 not written; waited for: {missing}broker 2",
        "ottla: interrupted",
    ]
    _, lines = told(server, f"{typed} --timeout-ms 300", "nothing of the kind")
    assert lines[-2] == "0 records acknowledged, 1 not written"
    assert lines[-1].startswith("ottla: 1 record for t-0 not acknowledged within 0.3 s: ")
    assert lines[-1].endswith(f"{missing}broker 2")


def test_produce_says_what_may_have_been_written(serve, told):
    server = serve(API_VERSIONS, METADATA, INIT_PRODUCER_ID)
    _, lines = told(server, "produce t --partition 0 --key k --tombstone", "not answered Produce")
    assert lines[-2].startswith(
        "0 records acknowledged, 1 unknown (sent, and may have been written); waited for: "
    )


def test_of_many_waits_a_few_are_said(monkeypatch):
    lines = []
    monkeypatch.setattr(output, "complain", lines.append)
    waits.report_to(output.print_waits)
    monkeypatch.setattr(waits, "LONG_S", 0.0)
    with contextlib.ExitStack() as stack:
        for number in range(10):
            stack.enter_context(waits.waiting(f"t-{number}"))
        until(lambda: lines, 10, "said")
    assert lines == [f"waiting: t-{n}" for n in range(3)] + ["waiting: and for 7 more of the kind"]


def test_a_wait_is_said_again_when_its_text_changes_and_only_then(monkeypatch):
    lines = []
    monkeypatch.setattr(output, "complain", lines.append)
    waits.report_to(output.print_waits)
    monkeypatch.setattr(waits, "LONG_S", 0.05)
    monkeypatch.setattr(waits, "LOOK_EVERY_S", 0.01)
    for _ in range(2):  # the second is a repetition of the same request
        with waits.waiting("a") as wait:
            until(lambda: wait.said == "a", 10, "said")
            time.sleep(0.1)
    assert lines == ["waiting: a"]
    with waits.waiting("b") as wait:
        until(lambda: wait.said == "b", 10, "said")
        wait.text = "a"
        until(lambda: wait.said == "a", 10, "said again, for this one changed")
    assert lines == ["waiting: a", "waiting: b", "waiting: a"]


# --- waits of a cluster on this machine -----------------------------------------------------------


@pytest.fixture
def lines(monkeypatch):
    """Return the lines that are said, as while a command runs."""
    found = []
    monkeypatch.setattr(output, "complain", found.append)
    waits.report_to(output.print_waits)
    monkeypatch.setattr(waits, "LONG_S", 0.1)
    monkeypatch.setattr(waits, "LOOK_EVERY_S", 0.02)
    return found


class Folder(ClusterDir):
    """What of a cluster's folder is asked for; its brokers are at one address."""

    def __init__(self, port):
        super().__init__(Path("/none"))
        self.port = port

    def bootstrap(self):
        return f"127.0.0.1:{self.port}"

    def security(self):
        return None

    def load(self):
        return None

    def existing(self):
        return LocalCluster(LocalZooKeeper("127.0.0.1:1"), [LocalBroker(1, self.port)])

    def last_words(self, _broker):
        return "nothing"


def test_replicas_that_a_restart_waits_for_are_named(serve, lines, monkeypatch):
    server = serve(API_VERSIONS, METADATA)
    monkeypatch.setattr(LocalBroker, "running", True)
    server.isr = [1]
    with pytest.raises(OttlaError, match="not in sync after"):
        brokers._wait_for_one(Folder(server.port), [], [2], 0.6)
    missing = "2 partitions (such as t-0) lack replicas in sync: broker 2 (2)"
    assert f"waiting: {missing}" in lines


def test_a_broker_that_does_not_join_is_named(serve, lines):
    server = serve(API_VERSIONS, METADATA)
    local = [LocalBroker(n, server.port) for n in (1, 3)]
    cluster = LocalCluster(LocalZooKeeper("127.0.0.1:1"), local)
    with pytest.raises(StartupError, match="broker 3 did not join"):
        local_cluster.wait_until_serving(Folder(server.port), cluster, {}, print, 0.6)
    assert "waiting: broker 3 to join the cluster" in lines


def test_a_broker_that_does_not_listen_is_named(lines):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        (port,) = held.getsockname()[1:]
        cluster = LocalCluster(LocalZooKeeper("127.0.0.1:1"), [LocalBroker(7, port)])
        with pytest.raises(OttlaError):
            local_cluster.wait_until_serving(Folder(port), cluster, {}, print, 0.4)
    assert lines[0] == "waiting: broker 7 to listen"


def test_a_process_that_does_not_exit_is_named(lines):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = processes.identify(process.pid)
        assert processes.wait_gone([found], 0.4) == [found]
        process.kill()
    assert lines == [f"waiting: process {process.pid} to exit, for 0.4 s at most"]


def test_a_zookeeper_that_is_silent_is_named(serve, told):
    server = serve()
    waited, _ = told(None, f"znode ls / --zookeeper 127.0.0.1:{server.port} --dir {{plan}}x")
    assert waited == [f"ZooKeeper at 127.0.0.1:{server.port} has not answered"]


def test_a_wait_is_said_within_two_seconds_once_and_not_when_quiet(serve):
    server = serve()
    command = [
        sys.executable, "-m", "ottla", "topics", "list", "--output", "json",
        "--bootstrap-server", f"127.0.0.1:{server.port}",
    ]  # fmt: skip
    both = [
        subprocess.Popen(
            [*command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for more in ([], ["--quiet"])
    ]
    until(lambda: server.asked[API_VERSIONS], 30, "one asks")
    began = time.monotonic()
    said = both[0].stderr.readline()
    seconds = time.monotonic() - began
    until(lambda: server.asked[API_VERSIONS] == 2, 30, "both ask")
    time.sleep(2.2)
    for process in both:
        process.send_signal(signal.SIGINT)
    rest, quiet = (process.communicate(timeout=30) for process in both)
    assert said == f"waiting: 127.0.0.1:{server.port} has not answered\n"
    assert rest == quiet == ("", "ottla: interrupted\n"), "once, and not when quiet"
    assert seconds < 2 + 2.5, "two seconds, and a busy machine"
