"""Changes on pages: shown first, made as they were shown, seen by another client afterwards."""

import re
import threading
from contextlib import contextmanager
from html import escape, unescape

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource
from msgspec.structs import asdict

from ottla.admin.operations import acl_text
from ottla.admin.session import connected
from ottla.client import acls, configs, reassignments, scram_users
from ottla.console.rendering import size
from ottla.security.acls import AclFilter
from ottla.testing.sync_cluster import SyncCluster
from support.clients import stable_end
from support.console import console_on, form_token, live_parts, of_preview, until_text
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
    action, data = of_preview(preview)
    response = http.post(action, data=data)
    assert response.status_code == 200, response.text
    return response.text


def topics_of(cluster):
    """Return the partitions and replication factor topic, as librdkafka has them."""
    found = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=20).topics
    return {t: (len(d.partitions), len(d.partitions[0].replicas)) for t, d in found.items()}


def test_a_new_topic(secured, http):
    preview = post(http, "/topics/create", name="fresh", partitions="4", replicas="2")
    assert "New topic" in preview
    assert "fresh" not in topics_of(secured), "a preview creates nothing"
    assert "<h1>Topic" in agree(http, preview)
    until(lambda: topics_of(secured).get("fresh") == (4, 2), 40, "created as it was shown")
    preview = post(http, "/topics/create", name="usual")
    for told in ("1 (the brokers&#39; default)", "3 (the brokers&#39; default)"):
        assert f"<td>{told}</td>" in preview or f">{told}<" in preview, preview
    agree(http, preview)
    until(lambda: topics_of(secured).get("usual") == (1, 3), 40, "as brokers have it by default")
    assert "exists" in post(http, "/topics/create", 502, name="fresh")
    assert "topic name" in post(http, "/topics/create", 502, name="a b <script>")
    post(http, "/topics/create", 502, name="wide", replicas="4")
    post(http, "/topics/create", 400, name="wide", partitions="0")
    post(http, "/topics/create", 400, name=" ")
    assert topics_of(secured).keys() & {"wide", "a b <script>"} == set()


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


def broker_setting(cluster, broker, key):
    """Return a broker's setting and where it comes from, as librdkafka has it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    found = admin.describe_configs([resource])[resource].result(20)[key]
    return found.value, ConfigSource(found.source)


@pytest.mark.parametrize(
    ("name", "brokers", "source"),
    [("2", [2], ConfigSource.DYNAMIC_BROKER_CONFIG),
     ("", [1, 2, 3], ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)],
    ids=["one broker", "all brokers"],
)  # fmt: skip
def test_a_setting_of_brokers(secured, http, name, brokers, source):
    key = "log.cleaner.threads"
    page = get(http, "/settings", kind="broker", name=name or "1", q=key)
    assert f'<th scope="row">{key}</th>\n<td class="value">1</td><td>default</td>' in page
    before = {b: broker_setting(secured, b, key) for b in (1, 2, 3)}
    assert {value for value, _ in before.values()} == {"1"}
    fields = {"kind": "broker", "name": name, "key": key, "operation": "set", "value": "2"}
    preview = post(http, "/settings/alter", **fields)
    assert {b: broker_setting(secured, b, key) for b in (1, 2, 3)} == before
    agree(http, preview)
    row = f'{key}</th>\n<td class="value">2</td>'
    until(lambda: row in get(http, "/settings", kind="broker", name=name, q=key), 40, "shown")
    wanted = {b: ("2", source) if b in brokers else before[b] for b in (1, 2, 3)}
    until(lambda: {b: broker_setting(secured, b, key) for b in (1, 2, 3)} == wanted, 40, "in force")
    agree(http, post(http, "/settings/alter", **{**fields, "operation": "delete", "value": ""}))
    until(
        lambda: {b: broker_setting(secured, b, key) for b in (1, 2, 3)} == before, 40, "as before"
    )


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
    assert "Reset offsets" in get(http, "/group", name=GROUP)


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
    until_text(lambda path: get(http, path), "left behind", "/reassign")
    preview = post(http, "/reassign/throttles")
    assert "leader.replication.throttled.rate=1000" in preview
    agree(http, preview.replace("rate=1000", "rate=999"))
    found = connected(secured.bootstrap, lambda c: configs.own(c, configs.BROKER, "1"))
    assert found.keys() & rate.keys(), "what the preview did not show stays"
    agree(http, preview)
    until(lambda: "left behind" not in get(http, "/reassign"), 40, "removed")
    found = connected(secured.bootstrap, lambda c: configs.own(c, configs.BROKER, "1"))
    assert not found.keys() & rate.keys()


def test_replicas_are_moved_by_a_plan(secured, http):
    before = [secured.replicas_of(f"orders-{p}") for p in range(3)]
    preview = post(http, "/reassign/plan", topics="orders", factor="3", throttle="100000000")
    assert "3 replicas to copy" in preview
    assert "this takes" in preview
    assert "Plan to roll back with" in preview
    assert [secured.replicas_of(f"orders-{p}") for p in range(3)] == before
    agree(http, preview)
    until(lambda: all(len(secured.isr_of(f"orders-{p}")) == 3 for p in range(3)), 60, "moved")
    until_text(lambda path: get(http, path), "No reassignment in progress", "/reassign")
    refused = post(http, "/reassign/plan", 502, drain="1")
    assert "add a broker first" in refused, "none is left for the third replica"
    post(http, "/reassign/plan", 400, topics="orders", factor="3")
    post(http, "/reassign/plan", 404, topics="missing")
    post(http, "/reassign/plan", 400, topics="orders", brokers="x")
    post(http, "/reassign/plan", 502, topics="orders", brokers="9")
    post(http, "/reassign/execute", 502, do="1", plan="{}")
    post(http, "/reassign/execute", 502, do="1", plan='{"version":1,"partitions":[]}')
    post(http, "/reassign/cancel", 400)
    post(http, "/reassign/throttles", 400)


@contextmanager
def followed(http, query, until):
    """Read a live stream beside what the block does; yield its parts: id and HTML."""
    parts, failed = [], []

    def seen(so_far):
        parts[:] = so_far
        return until(so_far)

    def read():
        try:
            live_parts(http, query, seen)
        except Exception as error:  # noqa: BLE001 - the test raises it
            failed.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield parts
        thread.join(70)
    finally:
        thread.join(70)
    assert not thread.is_alive()
    assert failed == [], parts


def in_bytes(text):
    number, unit = text.split()
    return float(number.replace(",", "")) * 1024 ** ("B", "KiB", "MiB").index(unit)


def newest(parts, element):
    return next((html for name, html in reversed(parts) if name == element), "")


def test_moves_are_live_with_bytes_and_eta_and_are_cancelled(secured, http):
    """A slow throttle keeps the moves going until they are cancelled."""
    secured.create_topic("slow", partitions=2, replicas=1)
    producer = Producer({"bootstrap.servers": secured.bootstrap})
    for number in range(40):
        producer.produce("slow", b"y" * 100_000, partition=number % 2)
    assert producer.flush(30) == 0

    def on_disk(broker, number):  # the truth beside what the page says
        logs = secured.dir.glob(f"broker-{broker}/data/slow-{number}/*.log")
        return sum(log.stat().st_size for log in logs)

    leaders = [secured.leader_of(f"slow-{p}") for p in range(2)]
    whole = [on_disk(leader, p) for p, leader in enumerate(leaders)]

    def over(parts):
        shown = newest(parts, "moves")
        return "No reassignment in progress" in shown and any("left." in html for _, html in parts)

    with followed(http, "of=reassign", over) as parts:
        until(
            lambda: "No reassignment in progress" in newest(parts, "moves"), 40, "the stream began"
        )
        agree(http, post(http, "/reassign/plan", topics="slow", factor="2", throttle="1000"))
        moves = connected(secured.bootstrap, reassignments.in_progress)
        assert len(moves) == 2
        until(lambda: "Moving 2 partitions" in newest(parts, "moves"), 40, "they are shown")
        until(lambda: re.search("about [0-9,]+ s left", newest(parts, "moves")), 40, "an ETA")

        def expected(copied_on):
            """Return bytes as the page is to show them."""
            copied = of = 0
            for tp, move in moves.items():
                for broker in move.adding:
                    copied += copied_on(broker, tp.partition)
                    of += whole[tp.partition]
            return f": {size(copied)} of {size(of)}"

        # By the throttle, of what the page says is left: most of it, or all, is one broker's.
        shown = next(html for name, html in parts if name == "moves" and "s left" in html)
        left_s = int(re.search("about ([0-9,]+) s left", shown)[1].replace(",", ""))
        copied, of = (in_bytes(text) for text in re.findall("[0-9.,]+ [KM]?i?B", shown)[:2])
        assert of == pytest.approx(sum(whole), rel=0.02)
        assert (of - copied) / 2 * 0.95 <= left_s * 1000 <= (of - copied) * 1.05, shown
        none = expected(lambda *_: 0)

        def as_on_disk():
            wanted = expected(on_disk)
            return wanted != none and wanted in newest(parts, "moves")

        until(as_on_disk, 60, lambda: newest(parts, "moves"))
        cancel = newest(parts, "cancel")
        assert f'name="form_token" value="{form_token(http)}"' in cancel, "its button works"
        assert "Moving 2 partitions" in get(http, "/reassign")
        agree(http, post(http, "/reassign/cancel"))
    assert connected(secured.bootstrap, reassignments.in_progress) == {}
    assert "Cancel" not in newest(parts, "cancel")
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
    assert asdict(acl_text.described(rule)) == {k: v for k, v in fields.items() if k != "deed"}
    agree(http, post(http, "/acls/change", **{**fields, "deed": "remove"}))
    until_rules(secured, 0)
    for wrong in (
        {"principal": "alice"}, {"operation": "Fly"}, {"resource": "Moon"}, {"name": ""},
        {"operation": "IdempotentWrite"}, {"name": "*"}, {"permission": "Perhaps"},
    ):  # fmt: skip
        post(http, "/acls/change", 400, **{**fields, **wrong})


def users(cluster):
    found = connected(cluster.bootstrap, scram_users.describe)
    return [(user.name, list(user.credentials)) for user in found]


def test_users_and_their_passwords(secured, http):
    secret = "very secret <x>"
    fields = {"name": "alice", "password": secret, "again": secret, "mechanism": "SCRAM-SHA-256"}
    preview = post(http, "/users/put", **fields)
    assert secret not in unescape(preview), "a password is on no page"
    assert users(secured) == [], "a preview changes nothing"
    text = agree(http, preview)
    assert "alice" in text
    assert secret not in unescape(text)
    assert users(secured) == [("alice", ["SCRAM-SHA-256"])]
    again = http.post(**as_form(preview))
    assert again.status_code == 400, "it is kept for one use"
    assert "enter it again" in again.text
    other = post(http, "/users/put", **{**fields, "mechanism": "SCRAM-SHA-512"})
    post(http, "/users/put", 400, do="1", kept="guessed")
    assert users(secured) == [("alice", ["SCRAM-SHA-256"])]
    http.console.passwords._by_token.clear()  # as when its time is over
    assert http.post(**as_form(other)).status_code == 400
    post(http, "/users/put", 400, **{**fields, "again": "other"})
    post(http, "/users/put", 502, **{**fields, "password": "", "again": ""})
    post(http, "/users/put", 400, **{**fields, "mechanism": "PLAIN"})
    post(http, "/users/remove", 400, name="alice", do="1", mechanisms="PLAIN")
    agree(http, post(http, "/users/remove", name="alice"))
    assert users(secured) == []


def as_form(preview):
    action, data = of_preview(preview)
    return {"url": action, "data": data}


def writing(cluster, name):
    """Begin a transaction with one record in orders-0; return its producer and where it began."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    offsets = []
    producer.produce("orders", b"open", partition=0, on_delivery=lambda _, m: offsets.append(m))
    producer.flush(20)
    return producer, offsets[0].offset()


def test_transactions_are_live(secured, http):
    with followed(http, "of=transactions", lambda p: "CompleteCommit" in newest(p, "ids")) as ids:
        producer, offset = writing(secured, "<tx>")
        until(lambda: "Ongoing" in newest(ids, "ids"), 40, "it is on the page")
        assert "&lt;tx&gt;" in newest(ids, "ids")
        one = get(http, "/transaction", id="<tx>")
        assert "Ongoing" in one
        assert "<li>orders-0</li>" in one
        assert "No hanging transactions" in get(http, "/transactions", hanging="1", older="0")
        post(http, "/transactions/abort", 502, topic="orders", partition="0", offset="0")
        preview = post(http, "/transactions/abort", topic="orders", partition="0", offset=offset)
        assert "This is a preview" in preview
        link = unescape(re.search(r'data-live="/live\?([^"]+)"', one)[1])
        with followed(http, link, lambda p: "CompleteCommit" in newest(p, "facts")) as facts:
            until(lambda: "Ongoing" in newest(facts, "facts"), 40, "it is on its page")
            producer.commit_transaction(30)
    get(http, "/transaction", 502, id="missing")


def test_a_transaction_is_ended_by_its_button(secured, http):
    _producer, offset = writing(secured, "hangs")
    assert stable_end(secured.bootstrap, "orders", 0) == offset, "readers wait for its end"
    preview = post(http, "/transactions/abort", topic="orders", partition="0", offset=offset)
    assert stable_end(secured.bootstrap, "orders", 0) == offset, "a preview ends nothing"
    agree(http, preview)
    until(
        lambda: stable_end(secured.bootstrap, "orders", 0) == offset + 2,
        40,
        "its record and a marker are passed",
    )
    consumer = Consumer(
        {"bootstrap.servers": secured.bootstrap, "group.id": "aborted",
         "isolation.level": "read_committed", "enable.partition.eof": True}
    )  # fmt: skip
    consumer.assign([TopicPartition("orders", 0, offset)])
    message = consumer.poll(30)
    consumer.close()
    assert message.error() is not None, "the aborted record is given to no one"


def test_the_newest_records_are_live(secured, http):
    page = get(http, "/messages", topic="orders", live="1")
    link = unescape(re.search(r'data-live="/live\?([^"]+)"', page)[1])
    value = "just <b>written</b>"
    with followed(http, link, lambda p: escape(value) in newest(p, "records")) as parts:
        until(lambda: newest(parts, "records"), 40, "the stream began")
        assert escape(value) not in newest(parts, "records")
        producer = Producer({"bootstrap.servers": secured.bootstrap})
        producer.produce("orders", value, partition=2)
        assert producer.flush(30) == 0
    texts = re.findall(r"<pre[^>]*>(.+?)</pre>", newest(parts, "records"))
    assert texts[0] == escape(value), "the newest is the first"
    assert len(texts) <= 30


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
