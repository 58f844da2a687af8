"""The console on Apache Kafka 3.9: the same pages, without what only our own files tell."""

import re
from html import unescape

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from support.console import console_on, form_token, live_parts, of_preview, until_text
from support.kafka39 import Kafka39Cluster
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    """One broker with records, a transaction and a group."""
    with Kafka39Cluster(tmp_path_factory.mktemp("kafka"), zookeeper_server="own") as found:
        producer = Producer({"bootstrap.servers": found.bootstrap, "transactional.id": "copier"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(5):
            producer.produce("orders", f"value {number}", "key", partition=0)
        producer.commit_transaction(60)
        consumer = Consumer(
            {"bootstrap.servers": found.bootstrap, "group.id": "readers",
             "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )  # fmt: skip
        consumer.subscribe(["orders"])
        assert consumer.poll(60).value() == b"value 0"
        consumer.commit(asynchronous=False)
        consumer.close()
        yield found


@pytest.fixture(scope="module")
def http(kafka):
    with console_on(kafka.bootstrap) as found:
        yield found


@pytest.fixture
def get(http):
    def found(path, status=200):
        response = http.get(path)
        assert response.status_code == status, response.text
        return response.text

    return found


def change(http, path, **fields):
    """Ask for a change, and send the form of its preview; return the preview and the page."""
    preview = http.post(path, data={"form_token": form_token(http), **fields})
    assert preview.status_code == 200, preview.text
    action, agreed = of_preview(preview.text)
    page = http.post(action, data=agreed)
    assert page.status_code == 200, page.text
    return preview.text, page.text


def test_every_page_of_a_real_kafka(get):
    until_text(get, "orders", "/topics", 30)
    assert "controller" in get("/")
    for path in (
        "/topic?name=orders", "/produce?topic=orders", "/broker?id=0", "/transactions",
        "/transaction?id=copier", "/reassign", "/users", "/whatif", "/whatif?broker=0",
        "/settings?kind=broker", "/settings?kind=broker&name=0",
        "/settings?kind=topic&name=orders", "/transactions?hanging=1",
    ):  # fmt: skip
        get(path)
    records = get("/messages?topic=orders&from=beginning&isolation=committed")
    assert re.findall(r">(value \d)</pre>", records) == [f"value {n}" for n in range(5)]
    one = get("/message?topic=orders&partition=0&offset=3")
    assert re.findall(r"<pre[^>]*>(.*?)</pre>", one) == ["key", "value 3"]
    assert "has no record at offset 5" in get("/message?topic=orders&offset=5", 404), "a marker"
    found = get("/messages?topic=orders&from=beginning&q=3")
    assert re.findall(r">(value \d)</pre>", found) == ["value 3"]
    assert "1 record; 5 searched" in found
    assert re.search(r'href="/group\?name=readers">readers</a></th>', get("/groups"))
    lag = get("/group?name=readers")
    # The marker of the transaction has an offset, too.
    assert "<dt>Total lag</dt><dd>5</dd>" in lag
    assert "the brokers have no authorizer" in get("/acls")
    assert "start it with --dir" in get("/why?partition=orders-0", 502)
    assert "start the console with --dir" in unescape(get("/chaos", 502))
    text = until_text(get, "as of", "/doctor", 60)
    assert "few-replicas" in text


def test_pages_are_live(http, get):
    for of, parts in (
        ("overview", {"health", "brokers", "events"}), ("topic&name=orders", {"counts"}),
        ("group&name=readers", {"facts", "partitions"}), ("reassign", {"moves"}),
        ("transactions", {"ids"}), ("transaction&id=copier", {"facts"}),
    ):  # fmt: skip
        live_parts(
            http, f"of={of}", lambda sent, wanted=parts: wanted <= {name for name, _ in sent}
        )
    link = unescape(
        re.search(r'data-live="/live\?([^"]+)"', get("/messages?topic=orders&live=1"))[1]
    )
    ((_, newest),) = live_parts(http, link, bool)
    assert re.findall(r">(value \d)</pre>", newest) == [f"value {n}" for n in (4, 3, 2, 1, 0)]


def test_changes_are_seen_by_another_client(kafka, http):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def partitions(topic):
        found = admin.list_topics(timeout=20).topics.get(topic)
        return 0 if found is None else len(found.partitions)

    fields = {"name": "made", "partitions": "2", "replicas": "1"}
    preview = http.post("/topics/create", data={"form_token": form_token(http), **fields})
    assert "This is a preview" in preview.text
    assert partitions("made") == 0
    change(http, "/topics/create", **fields)
    until(lambda: partitions("made") == 2, 30, "created")

    resource = ConfigResource(ConfigResource.Type.TOPIC, "made")

    def retention():
        return admin.describe_configs([resource])[resource].result(20)["retention.ms"].value

    fields = {"kind": "topic", "name": "made", "key": "retention.ms", "value": "86400000"}
    preview, page = change(http, "/settings/alter", **fields)
    assert "604800000" in preview
    assert "86400000" in page
    until(lambda: retention() == "86400000", 30, "changed")

    data = {"form_token": form_token(http), "topic": "made", "value": "new", "partition": "1"}
    assert "Record to produce" in http.post("/produce", data=data).text
    reading = {"bootstrap.servers": kafka.bootstrap, "group.id": "other"}
    consumer = Consumer(reading)
    assert consumer.get_watermark_offsets(TopicPartition("made", 1), 20) == (0, 0)
    assert ">new</pre>" in http.post("/produce", data={**data, "do": "1"}).text
    consumer.assign([TopicPartition("made", 1, 0)])
    assert consumer.poll(30).value() == b"new"
    consumer.close()

    change(http, "/group/reset", name="readers", to="offset", value="4")
    consumer = Consumer({**reading, "group.id": "readers"})
    (found,) = consumer.committed([TopicPartition("orders", 0)], 20)
    consumer.close()
    assert found.offset == 4

    plan = {"form_token": form_token(http), "topics": "orders"}
    assert "nothing to move" in http.post("/reassign/plan", data=plan).text
    secret = {"name": "alice", "password": "very secret", "again": "very secret"}
    preview, page = change(http, "/users/put", **secret, mechanism="SCRAM-SHA-256")
    assert "very secret" not in preview + page
    users = admin.describe_user_scram_credentials(["alice"])["alice"].result(20)
    assert len(users.scram_credential_infos) == 1


def test_a_kill_is_seen(kafka, get):
    kafka.kill(0)
    until_text(get, "does not respond", "/")
