"""A real Prometheus scrapes brokers under load: what the boards ask for is there, no alert fires.

Needs `prometheus` and `promtool` on the PATH (Debian's package `prometheus`); run by hand.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml

from ottla.wire.messages.configs import AlterClientQuotasRequest
from support.clients import admin_client, create_topic, fresh, named, produce
from support.cluster import FEW, OttlaCluster, free_ports
from support.published_boards import RENAMED, SHOWN, judged, sources
from support.seen import Znodes, ask
from support.waiting import until

pytestmark = [
    pytest.mark.alone,
    pytest.mark.processes,
    pytest.mark.timeout(240),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus on the PATH"),
]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SCRAPE_S, LOAD_S = 1, 45
EMPTY = {"lake_": "no lake job runs"}
"""Beginnings of metrics of which an expression may have no series, and why."""


class Scraped(OttlaCluster):
    """Brokers with all of their metrics over HTTP."""

    def properties(self, broker):
        self.pages = getattr(self, "pages", {})
        if broker not in self.pages:
            (self.pages[broker],) = free_ports(1)
        page = {"ottla.metrics.listener": f"127.0.0.1:{self.pages[broker]}",
                "ottla.metrics.detail": "partition"}  # fmt: skip
        return super().properties(broker) | page


@contextlib.contextmanager
def prometheus(folder, targets):
    """Run one that scrapes these addresses, with our rules; yield its address."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    other = yaml.safe_load((DEPLOY / "prometheus" / "other_names.yml").read_text())
    jobs = [{"job_name": "kafka"}, *other["scrape_configs"]]
    for job in jobs:
        job["static_configs"] = [{"targets": targets}]
    document = {
        "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
        "rule_files": [str(DEPLOY / "prometheus" / "rules.yml")],
        "scrape_configs": jobs,
    }
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(document))
    command = [
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={address}", "--log.level=warn",
    ]  # fmt: skip
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until(lambda: get(address, "/-/ready"), 30, "Prometheus is ready", despite=(OSError,))
        yield address
    finally:
        process.terminate()
        process.wait(20)


def get(address, path, **parameters):
    url = f"http://{address}{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read()


def query(address, expression):
    """Return the series of an expression now, as (labels, value)."""
    found = json.loads(get(address, "/api/v1/query", query=expression))
    assert found["status"] == "success", found
    result = found["data"]["result"]
    if found["data"]["resultType"] == "scalar":
        return [({}, result[1])]
    return [(series["metric"], series["value"][1]) for series in result]


def panels():
    """Yield (board, panel, expression), the variables of the board filled in."""
    for path in sorted((DEPLOY / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                expression = target["expr"].replace("$__rate_interval", "20s")
                expression = expression.replace("$__range", "60s").replace("$job", "kafka")
                yield path.stem, panel["title"], re.sub(r"\$(instance|topic)", ".+", expression)


@contextlib.contextmanager
def load(cluster):
    """Produce and consume in a group, in another process, until the end of the block."""
    topic = create_topic(admin_client(cluster.bootstrap), 6, 3)
    produce(cluster.bootstrap, topic, [b"x" * 100] * 600, 6)
    tests = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    process = subprocess.Popen(
        [sys.executable, __file__, cluster.bootstrap, topic],
        env={**os.environ, "PYTHONPATH": tests},
    )
    try:
        yield topic
    finally:
        process.kill()
        process.wait(10)


def write_and_read(bootstrap, topic):
    """Write 200 records a second, a transaction of them at times, and read them in a group."""
    from confluent_kafka import Consumer, Producer

    producer = Producer(named(bootstrap, {"transactional_id": fresh("writer")}))
    producer.init_transactions(30)
    consumer = Consumer(
        named(bootstrap, {"group_id": fresh("readers"), "auto_offset_reset": "earliest",
                          "auto_commit_interval_ms": 500})
    )  # fmt: skip
    consumer.subscribe([topic])
    give_up_s = time.monotonic() + 200
    while time.monotonic() < give_up_s:
        producer.begin_transaction()
        for _ in range(100):
            producer.produce(topic, os.urandom(100))
        producer.commit_transaction(30)
        for _ in range(100):
            if consumer.poll(0.01) is None:
                break


def operate(cluster, topic):
    """Do what moves the figures of a controller: a crash, a shutdown, a move, a deletion."""
    asked = AlterClientQuotasRequest
    any_client = asked.EntityData(entity_type="client-id", entity_name=None)
    bounds = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
    ops = [asked.OpData(key=key, value=1e6, remove=False) for key in bounds]
    request = asked(entries=[asked.EntryData(entity=[any_client], ops=ops)])
    assert [e.error_code for e in ask(cluster.address(0), request, 1).entries] == [0]
    admin = admin_client(cluster.bootstrap)
    gone = create_topic(admin, 1, 1)
    admin.delete_topics([gone])[gone].result(30)
    with Znodes(cluster.zookeeper) as znodes:
        victim = next(b for b in cluster.ids if b != znodes.controller())
        cluster.kill(victim)
        until(lambda: all(victim not in s.isr for s in znodes.states(topic).values()), 30, "out")
        cluster.start_broker(victim)
        until(lambda: znodes.full(topic), 60, "all in sync")
        assert cluster.terminate(victim) == 0
        cluster.start_broker(victim)
        until(lambda: znodes.full(topic), 60, "all in sync")
        znodes.ask_to_reassign(topic, {0: znodes.assignment(topic)[0][::-1]})
        until(lambda: not znodes.names("/admin/reassign_partitions"), 30, "reassigned")


def test_the_boards_fill_and_no_alert_fires(tmp_path):
    with Scraped(tmp_path / "cluster", brokers=3, min_insync_replicas="2", **FEW) as cluster:
        targets = [f"127.0.0.1:{port}" for port in cluster.pages.values()]
        with prometheus(tmp_path, targets) as address, load(cluster) as topic:
            until(lambda: query(address, "sum(up) == 6"), 30, "all are scraped")
            operate(cluster, topic)
            time.sleep(LOAD_S)
            empty = [
                (board, title, expression)
                for board, title, expression in panels()
                if not query(address, expression) and not any(name in expression for name in EMPTY)
            ]
            assert empty == []
            found = query(address, '{__name__=~"(kafka|process)_.+"}')
            names = {labels["__name__"] for labels, _ in found}
            for source, asked in sources().items():
                shown = [n for n, labels in asked.items() if judged(n, labels) in (SHOWN, RENAMED)]
                assert shown, source
                assert not set(shown) - names, source
            alerts = json.loads(get(address, "/api/v1/alerts"))["data"]["alerts"]
            assert [a for a in alerts if a["state"] == "firing"] == []


if __name__ == "__main__":
    write_and_read(*sys.argv[1:])
