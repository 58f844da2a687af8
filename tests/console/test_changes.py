"""Changes on pages: shown first, made as they were shown, seen by another client afterwards."""

import re
from html import unescape

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from ottla.admin.operations import acls, configs, reassign, scram_users
from ottla.admin.session import connected
from ottla.security.acls import AclFilter
from ottla.testing.sync_cluster import SyncCluster
from support.console import console_on, form_token, until_text
from support.waiting import until

GROUP = "a group <b>"


@pytest.fixture(scope="module")
def secured():
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with SyncCluster(3, in_process=True, settings=settings) as cluster:
        cluster.create_topic("orders", partitions=3, replicas=2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(30):
            producer.produce("orders", b"x" * 100, partition=number % 3)
        assert producer.flush(30) == 0
        yield cluster


@pytest.fixture(scope="module")
def http(secured):
    with console_on(secured.bootstrap) as found:
        yield found


def get(http, path, status=200, **fields):
    response = http.get(path, params=fields or None)
    assert response.status_code == status, response.text
    return response.text


def post(http, path, status=200, **fields):
    response = http.post(path, data={"form_token": form_token(http), **fields})
    assert response.status_code == status, response.text
    return response.text


def agree(http, preview):
    """Send the form of a preview, as it is; return the page after it."""
    assert "This is a preview: nothing is changed yet" in preview
    pattern = r'<form method="post" action="([^"]+)" class="row">\n(.*?)</form>'
    form = re.search(pattern, preview, re.DOTALL)
    fields = re.findall(r'name="(\w+)" value="([^"]*)"', form[2])
    data = {name: unescape(value) for name, value in fields}
    assert data["do"] == "1"
    response = http.post(form[1], data=data)
    assert response.status_code == 200, response.text
    return response.text


def setting_of(cluster, key):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    return admin.describe_configs([resource])[resource].result(20)[key].value


def test_a_setting_of_a_topic(secured, http):
    fields = {"kind": "topic", "name": "orders", "key": "retention.ms", "value": "3600000"}
    preview = post(http, "/settings/alter", **fields, operation="set")
    assert "604800000" in preview, "what it is now"
    assert setting_of(secured, "retention.ms") == "604800000"
    assert "3600000" in agree(http, preview)
    assert setting_of(secured, "retention.ms") == "3600000"
    preview = post(http, "/settings/alter", **{**fields, "value": ""}, operation="delete")
    agree(http, preview)
    assert setting_of(secured, "retention.ms") == "604800000"


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (502, {"key": "retention.ms", "value": "soon"}),
        (502, {"key": "no.such.setting", "value": "1"}),
        (400, {"key": "retention.ms", "value": "1", "operation": "burn"}),
        (400, {"key": "retention.ms", "value": "1", "operation": "delete"}),
        (400, {"key": "", "value": "1"}),
        (400, {"key": "retention.ms", "value": "1", "name": ""}),
    ],
)
def test_what_the_brokers_refuse_has_no_preview(http, status, fields):
    text = post(http, "/settings/alter", status, **{"kind": "topic", "name": "orders", **fields})
    assert "This is a preview" not in text


def committed(cluster):
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP})
    found = consumer.committed([TopicPartition("orders", p) for p in range(3)], 20)
    consumer.close()
    return [tp.offset for tp in found]


def test_offsets_of_a_group(secured, http):
    preview = post(http, "/group/reset", name=GROUP, to="offset", value="4", topic="orders")
    assert "Offsets of group a group &lt;b&gt;" in preview
    assert committed(secured) == [-1001] * 3, "a preview commits nothing"
    agree(http, preview)
    assert committed(secured) == [4, 4, 4]
    agree(http, post(http, "/group/reset", name=GROUP, to="shift", value="-1"))
    assert committed(secured) == [3, 3, 3]
    agree(http, post(http, "/group/reset", name=GROUP, to="earliest"))
    assert committed(secured) == [0, 0, 0]
    agree(http, post(http, "/group/reset", name=GROUP, to="latest"))
    assert committed(secured) == [10, 10, 10]
    agree(http, post(http, "/group/reset", name=GROUP, to="time", value="@1"))
    assert committed(secured) == [0, 0, 0]
    assert "Move its offsets" in get(http, "/group", name=GROUP)


def test_offsets_that_cannot_be_meant(http):
    post(http, "/group/reset", 400, name="new", to="latest")
    post(http, "/group/reset", 400, name=GROUP, to="offset", value="x")
    post(http, "/group/reset", 400, name=GROUP, to="time", value="soon")
    post(http, "/group/reset", 404, name=GROUP, to="latest", topic="missing")
    post(http, "/group/reset", 502, name=GROUP, do="1", plan="orders,0,x")
    post(http, "/group/reset", 502, name=GROUP, do="1", plan="orders,99,1")


def test_a_throttle_that_is_left_over_is_removed(secured, http):
    rate = {"leader.replication.throttled.rate": "1000"}

    async def throttle(client):
        await configs.alter(client, configs.BROKER, "1", rate)
        await configs.wait_in_force(client, 1, rate)

    connected(secured.bootstrap, throttle)
    until_text(lambda path: get(http, path), "left over", "/reassign")
    preview = post(http, "/reassign/throttles")
    assert "leader.replication.throttled.rate=1000" in preview
    agree(http, preview)
    until(lambda: "left over" not in get(http, "/reassign"), 40, "removed")
    found = connected(secured.bootstrap, lambda c: configs.own(c, configs.BROKER, "1"))
    assert not found.keys() & rate.keys()


def test_replicas_are_moved_by_a_plan(secured, http):
    before = [secured.replicas_of(f"orders-{p}") for p in range(3)]
    preview = post(http, "/reassign/plan", topics="orders", factor="3", throttle="100000000")
    assert "3 replicas to copy" in preview
    assert "it takes" in preview
    assert "The way back" in preview
    assert [secured.replicas_of(f"orders-{p}") for p in range(3)] == before
    agree(http, preview)
    until(lambda: all(len(secured.isr_of(f"orders-{p}")) == 3 for p in range(3)), 60, "moved")
    until_text(lambda path: get(http, path), "Nothing is being moved", "/reassign")
    refused = post(http, "/reassign/plan", 502, drain="1")
    assert "add a broker first" in refused, "none is left for the third replica"
    post(http, "/reassign/plan", 400, topics="orders", factor="3")
    post(http, "/reassign/plan", 404, topics="missing")
    post(http, "/reassign/plan", 400, topics="orders", brokers="x")
    post(http, "/reassign/plan", 502, topics="orders", brokers="9")
    post(http, "/reassign/execute", 502, plan="{}")
    post(http, "/reassign/execute", 502, plan='{"version":1,"partitions":[]}')
    post(http, "/reassign/cancel", 400)
    post(http, "/reassign/throttles", 400)


def test_moves_are_cancelled(secured, http):
    """A slow throttle keeps the moves going until they are cancelled."""
    secured.create_topic("slow", partitions=2, replicas=1)
    producer = Producer({"bootstrap.servers": secured.bootstrap})
    for number in range(40):
        producer.produce("slow", b"y" * 100_000, partition=number % 2)
    assert producer.flush(30) == 0
    agree(http, post(http, "/reassign/plan", topics="slow", factor="2", throttle="1000"))
    assert connected(secured.bootstrap, reassign.in_progress)
    text = get(http, "/reassign")
    assert "2 partitions being moved" in text
    agree(http, post(http, "/reassign/cancel"))
    assert connected(secured.bootstrap, reassign.in_progress) == {}
    # The controller has taken the moves back; brokers hear of it a moment later.
    until(
        lambda: all(len(secured.replicas_of(f"slow-{p}")) == 1 for p in range(2)), 40, "as before"
    )


def rules(cluster):
    return connected(cluster.bootstrap, lambda c: acls.find(c, AclFilter()))


def until_rules(cluster, count):
    """Wait for so many rules: any broker is asked, and the one that changed them heard first."""
    found = until(lambda: len(found := rules(cluster)) == count and [found], 40, f"{count} rules")
    return found[0]


def test_access_rules(secured, http):
    fields = {
        "deed": "add", "principal": "User:<alice>", "permission": "Deny", "operation": "Read",
        "host": "*", "resource": "Topic", "name": "orders", "pattern": "prefixed",
    }  # fmt: skip
    preview = post(http, "/acls/change", **fields)
    assert "ottla acls add" in preview
    assert "<alice>" not in preview
    assert rules(secured) == []
    assert "User:&lt;alice&gt;" in agree(http, preview)
    (rule,) = until_rules(secured, 1)
    assert acls.described(rule) | {} == {k: v for k, v in fields.items() if k != "deed"}
    agree(http, post(http, "/acls/change", **{**fields, "deed": "remove"}))
    until_rules(secured, 0)
    for wrong in (
        {"principal": "alice"}, {"operation": "Fly"}, {"resource": "Moon"}, {"name": ""},
        {"operation": "IdempotentWrite"}, {"name": "*"}, {"permission": "Perhaps"},
    ):  # fmt: skip
        post(http, "/acls/change", 400, **{**fields, **wrong})


def test_users_and_their_passwords(secured, http):
    secret = "very secret <x>"
    fields = {"name": "alice", "password": secret, "again": secret, "mechanism": "SCRAM-SHA-256"}
    text = post(http, "/users/put", **fields)
    assert "alice" in text
    assert secret not in unescape(text)
    found = connected(secured.bootstrap, scram_users.describe)
    assert [(u.name, list(u.credentials)) for u in found] == [("alice", ["SCRAM-SHA-256"])]
    post(http, "/users/put", 400, **{**fields, "again": "other"})
    post(http, "/users/put", 502, **{**fields, "password": "", "again": ""})
    post(http, "/users/put", 400, **{**fields, "mechanism": "PLAIN"})
    agree(http, post(http, "/users/remove", name="alice"))
    assert connected(secured.bootstrap, scram_users.describe) == []


def test_transactions(secured, http):
    producer = Producer({"bootstrap.servers": secured.bootstrap, "transactional.id": "<tx>"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    producer.flush(20)
    text = get(http, "/transactions")
    assert "&lt;tx&gt;" in text
    one = get(http, "/transaction", id="<tx>")
    assert "Ongoing" in one
    assert "<li>orders-0</li>" in one
    assert "Nothing hangs" in get(http, "/transactions", hanging="1", older="0")
    post(http, "/transactions/abort", 502, topic="orders", partition="0", offset="0")
    preview = post(http, "/transactions/abort", topic="orders", partition="0", offset="10")
    assert "This is a preview" in preview
    producer.commit_transaction(30)
    get(http, "/transaction", 502, id="missing")


def test_a_console_that_reads_only_changes_nothing(secured):
    with console_on(secured.bootstrap, read_only=True) as http:
        token = "x"
        for path in ("/settings/alter", "/group/reset", "/users/put", "/acls/change", "/produce"):
            assert http.post(path, data={"form_token": token}).status_code == 403, path
        pages = (
            "/", "/topics", "/topic?name=orders", "/settings?kind=topic&name=orders",
            f"/group?name={GROUP}", "/acls", "/users", "/transactions", "/reassign",
        )  # fmt: skip
        for path in pages:
            text = http.get(path).text
            assert "read only" in text
            assert '<form method="post"' not in text, path
