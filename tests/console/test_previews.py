"""Nothing is changed without a preview: each route that changes something, on a whole cluster."""

import re

import pytest
from confluent_kafka import Consumer, TopicPartition
from kazoo.client import KazooClient

from ottla.console.application import POSTS
from ottla.local.cluster_dir import ClusterDir
from support.console import console_on, form_token, of_preview, until_text
from support.console_changes import PLAN, PREVIEWS, filled
from support.waiting import until

pytestmark = pytest.mark.processes

NO_CHANGES = {"/leave"}
"""What changes nothing of a cluster."""


@pytest.fixture(scope="module")
def cluster():
    with filled() as found:
        yield found


@pytest.fixture(scope="module")
def http(cluster):
    with console_on(cluster.bootstrap, ClusterDir(cluster.dir)) as found:
        yield found


def everything(cluster, zookeeper):
    """Return all that a change could touch, as others than the console have it.

    Znodes with their versions, the ends of all logs, and processes with their states.
    """
    found = {}

    def walk(path):
        data, stat = zookeeper.get(path)
        found[path] = data, stat.version
        for child in zookeeper.get_children(path):
            walk(f"{path.rstrip('/')}/{child}")

    walk("/")
    client = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "watching"})
    for topic in client.list_topics(timeout=20).topics.values():
        for partition in topic.partitions:
            place = TopicPartition(topic.topic, partition)
            found[topic.topic, partition] = client.get_watermark_offsets(place, 20)
    client.close()
    for broker in cluster.broker_ids:
        running = cluster.running(broker)
        found["process", broker] = cluster.pid(broker), running, cluster.paused(broker)
    return found


def at_rest(cluster, zookeeper):
    """Return everything once it does not change by itself any more."""

    def twice():
        found = everything(cluster, zookeeper)
        return found if everything(cluster, zookeeper) == found else None

    return until(twice, 40, "the cluster is at rest")


def post(http, path, fields):
    response = http.post(path, data={"form_token": form_token(http), **fields})
    return response.status_code, response.text


def test_nothing_is_changed_without_its_preview(cluster, http):
    """Each route is asked for its change without agreement; nothing of the cluster differs."""
    assert PREVIEWS.keys() | NO_CHANGES == POSTS.keys(), "each route has its line above"
    until_text(lambda path: http.get(path).text, "Moving 1 partition", "/reassign")
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start(30)
    before = at_rest(cluster, zookeeper)
    for path in (p for p in PREVIEWS if p != PLAN):  # there is none while replicas are moved
        ask(cluster, http, zookeeper, path, before)
    action, agreed = of_preview(post(http, "/reassign/cancel", {})[1])
    assert http.post(action, data=agreed).is_success
    after = at_rest(cluster, zookeeper)
    changed = {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
    assert "/brokers/topics/moved" in changed, "what is agreed to is seen"
    ask(cluster, http, zookeeper, PLAN, after)
    zookeeper.stop()
    zookeeper.close()
    cluster.open_one.abort_transaction(30)


def ask(cluster, http, zookeeper, path, before):
    """Ask a route for its changes; there is a preview of each, and everything is as before."""
    for fields in PREVIEWS[path]:
        status, text = post(http, path, fields)
        assert everything(cluster, zookeeper) == before, (path, fields)
        assert not http.console.probe.running
        assert not http.console.chaos.doing
        if path == "/reassign/execute":
            assert status == 400
            assert "preview a plan first" in text
            continue
        assert status == 200, (path, fields, re.findall('role="alert">(.*?)</p>', text))
        assert re.search("This is a preview|Record to produce", text), (path, text)
        assert 'name="do" value="1"' in text, (path, fields)
