"""Brokers started by the arguments of deploy/, as processes of this machine, and their checks."""

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.clients import create_topics
from support.cluster import free_ports
from support.own_zookeeper import OwnZooKeeper
from support.waiting import until

DEPLOY = Path(__file__).parents[2] / "deploy"
pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


def ottla(words, replaced, **options):
    """Start ottla with these words of deploy/, each of `replaced` by its value."""
    for old, new in replaced.items():
        words = [word.replace(old, str(new)) for word in words]
    return subprocess.Popen([sys.executable, "-m", "ottla", *words], **options)


def healthy(check, replaced):
    process = ottla(check, replaced, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.communicate(timeout=60)
    return process.returncode == 0


def ended(*processes):
    """Send SIGTERM to all, and return their exit codes."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    return [process.wait(60) for process in processes]


def partitions_of(admin, topic):
    return list(admin.list_topics(topic, timeout=10).topics[topic].partitions.values())


def test_the_brokers_of_the_compose_file(tmp_path):
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    names = [name for name in services if name.startswith("broker-")]
    ports = free_ports(2 * len(names))
    processes = []
    with OwnZooKeeper(tmp_path / "zookeeper") as zookeeper:
        try:
            replaced = {}
            for name, outer, inner in zip(names, ports[::2], ports[1::2], strict=True):
                published = services[name]["ports"][0].split(":")[1]
                replaced[name] = {
                    "/etc/ottla": DEPLOY,
                    "zookeeper:2181": zookeeper.connect_string,
                    "0.0.0.0:9092": f"127.0.0.1:{outer}",
                    f"127.0.0.1:{published}": f"127.0.0.1:{outer}",
                    "0.0.0.0:19092": f"127.0.0.1:{inner}",
                    f"{name}:19092": f"127.0.0.1:{inner}",
                    "127.0.0.1:19092": f"127.0.0.1:{inner}",
                }
                words = [*services[name]["command"], f"--override=log.dirs={tmp_path / name}"]
                log = (tmp_path / f"{name}.log").open("wb")
                processes.append(ottla(words, replaced[name], stderr=log, stdout=log))
            for name in names:
                check = services[name]["healthcheck"]["test"][2:]
                until(lambda n=name, c=check: healthy(c, replaced[n]), 60, f"{name} healthy")
            clients = ",".join(f"127.0.0.1:{port}" for port in ports[::2])
            admin = AdminClient({"bootstrap.servers": clients})
            until(lambda: len(admin.list_topics(timeout=10).brokers) == 3, 30, "all registered")
            create_topics(admin, NewTopic("orders", 3))
            # Whichever broker is asked may hear of the topic last.
            partitions = until(lambda: partitions_of(admin, "orders"), 30, "the topic is known")
            assert [len(p.replicas) for p in partitions] == [3, 3, 3]
            producer = Producer({"bootstrap.servers": clients, "acks": "all"})
            producer.produce("orders", b"two coffees")
            assert producer.flush(40) == 0
        finally:
            codes = ended(*processes)
    assert codes == [0] * len(names)


def test_the_broker_of_the_unit(tmp_path):
    lines = (DEPLOY / "ottla-broker.service").read_text().splitlines()
    (command,) = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=")]
    (port,) = free_ports(1)
    with OwnZooKeeper(tmp_path / "zookeeper") as zookeeper:
        for folder in ("log", "run"):
            (tmp_path / folder).mkdir()
        replaced = {
            "/etc/ottla": DEPLOY,
            "/var/log/ottla": tmp_path / "log",
            "/run/ottla": tmp_path / "run",
        }
        words = shlex.split(command)[1:]
        words += ["--override", f"listeners=PLAINTEXT://127.0.0.1:{port}"]
        words += ["--override", f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}"]
        words += ["--override", f"zookeeper.connect={zookeeper.connect_string}/ottla"]
        words += ["--override", f"log.dirs={tmp_path / 'data'}"]
        process = ottla(words, replaced)
        try:
            check = ["topics", "list", "--bootstrap-server", f"127.0.0.1:{port}"]
            until(lambda: healthy(check, {}), 60, "healthy")
            assert (tmp_path / "run" / "metrics.sock").is_socket()
        finally:
            assert ended(process) == [0]
    assert (tmp_path / "log" / "state-change.log").exists()
