"""The pages of a broker: /metrics as other parsers read it, /readyz as the cluster changes."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.metrics import mbeans
from ottla.broker.metrics.catalogue import beans, help_texts, process_metrics
from ottla.broker.metrics.exposition import wants_open_metrics
from ottla.broker.metrics.listener import Detail, Pages, metrics_address, open_pages
from ottla.broker.metrics.mbeans import Metrics
from ottla.broker.metrics.series import SERIES_OF_A_PARTITION, TOPIC_METRICS
from ottla.broker.quotas.client_quotas import (
    ANY,
    CONSUMER_RATE,
    PRODUCER_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
)
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError
from ottla.net.http_server import HttpRequest
from ottla.pipelines.lake.metrics import HELP
from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.zookeeper.session import SessionState

pytestmark = pytest.mark.timeout(60)

PAGE_OF_METRICS = Path(__file__).resolve().parents[3] / "docs" / "METRICS.md"
LEFT_OUT = "ottla_server_metrics_seriesleftout", ()


@pytest.fixture
def pair(scene):
    """Two brokers and a topic of two partitions on both, led by the first."""
    scene.up(1)
    scene.up(2, replica_lag_time_max_ms="3000")
    r = CreateTopicsRequest
    assignments = [
        r.CreatableReplicaAssignment(partition_index=index, broker_ids=[1, 2]) for index in (0, 1)
    ]
    topic = r.CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    scene.ask(1, r(topics=[topic], timeout_ms=10_000), 7)
    scene.wait(lambda: all(len(b.logs.logs()) == 2 for b in scene.brokers.values()))
    return scene


def pages_of(broker, level="broker", most=10_000):
    return Pages(broker.services, Metrics(broker), Detail(level, most))


def get(scene, name, pages, path="/metrics", accept=""):
    request = HttpRequest("GET", path, {"accept": accept})
    return scene.simulation.node(name).call(pages.respond(request))


def text_of(response):
    assert response.status == 200
    return b"".join(response.body).decode()


def samples(text, parse=text_string_to_metric_families):
    """Return values by name and labels, as prometheus_client reads the text."""
    found = {}
    for family in parse(text):
        for s in family.samples:
            key = s.name, tuple(sorted(s.labels.items()))
            assert key not in found, f"twice: {key}"
            found[key] = s.value
    return found


def kinds_on_the_page_of_metrics():
    """Return the kind of each metric that docs/METRICS.md lists."""
    found = {}
    place = None
    for line in PAGE_OF_METRICS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if cells[0] == "metric":
            place = cells.index("kind")
        elif place is not None and line.startswith("| `"):
            names = [name.strip("`") for name in cells[0].split("<br>")]
            kinds = cells[place].split("<br>")
            found |= zip(names, kinds * len(names) if len(kinds) == 1 else kinds, strict=True)
    return found


def test_both_formats_are_read_by_prometheus_s_own_parsers_and_say_the_same(pair):
    pages = pages_of(pair.brokers["b1"], "partition")
    pair.produce("t", 3)
    plain = get(pair, "b1", pages)
    assert plain.content_type.startswith("text/plain; version=0.0.4")
    modern = get(pair, "b1", pages, accept="application/openmetrics-text; version=1.0.0")
    assert modern.content_type.startswith("application/openmetrics-text; version=1.0.0")
    text, other = text_of(plain), text_of(modern)
    assert other.endswith("# EOF\n")
    read = samples(text)
    assert read.keys() == samples(other, open_metrics.text_string_to_metric_families).keys()
    assert read["kafka_server_brokertopicmetrics_messagesin_total", ()] == 3
    assert read["kafka_server_brokertopicmetrics_messagesin_total", (("topic", "t"),)] == 3
    first = (("partition", "0"), ("topic", "t"))
    log = pair.brokers["b1"].logs.logs()[0]
    assert read["kafka_log_log_logendoffset", first] == 3
    assert read["kafka_log_log_size", first] == log.size > 0
    assert read["kafka_cluster_partition_insyncreplicascount", first] == 2
    assert read["kafka_cluster_partition_underreplicated", first] == 0
    assert (
        read["ottla_eventloop_lateness_seconds_bucket", (("le", "+Inf"),)]
        == (read["ottla_eventloop_lateness_seconds_count", ()])
    )
    follower = samples(text_of(get(pair, "b2", pages_of(pair.brokers["b2"], "partition"))))
    assert follower["kafka_cluster_partition_insyncreplicascount", first] == 0, "not led there"
    (lag,) = [
        value
        for (name, labels), value in follower.items()
        if name == "kafka_server_fetcherlagmetrics_consumerlag" and ("partition", "0") in labels
    ]
    assert lag == 0
    assert follower["kafka_server_brokertopicmetrics_messagesin_total", ()] == 0
    assert (
        follower["kafka_server_brokertopicmetrics_replicationbytesin_total", ()]
        == read["kafka_server_brokertopicmetrics_replicationbytesout_total", ()]
        == read["kafka_server_brokertopicmetrics_bytesin_total", ()]
        > 0
    )


def test_series_of_topics_and_partitions_are_asked_for_and_bounded(pair):
    broker = pair.brokers["b1"]
    named = [
        {labels for name, labels in samples(text_of(get(pair, "b1", pages_of(broker, level))))
         if "topic" in dict(labels)}
        for level in ("broker", "topic", "partition")
    ]  # fmt: skip
    assert [len(found) for found in named] == [0, 1, 3]
    room = len(TOPIC_METRICS) + SERIES_OF_A_PARTITION + 3
    read = samples(text_of(get(pair, "b1", pages_of(broker, "partition", room))))
    assert read[LEFT_OUT] == SERIES_OF_A_PARTITION
    shown = {dict(labels).get("partition") for name, labels in read if name == "kafka_log_log_size"}
    assert shown == {"0"}
    read = samples(text_of(get(pair, "b1", pages_of(broker, "partition", 0))))
    assert read[LEFT_OUT] == len(TOPIC_METRICS) + 2 * SERIES_OF_A_PARTITION


def test_the_catalogue_has_all_that_is_shown_and_nothing_else(pair):
    pair.ask(1, MetadataRequest(topics=[]), 9)
    broker = pair.brokers["b1"]
    broker.services.controller.crash_times.note(0.1)
    broker.logs.flush_times.note(0.1)
    quotas = broker.services.quotas
    quotas.set((None, "c"), {PRODUCER_RATE: 1.0, CONSUMER_RATE: 1.0, REQUEST_PERCENTAGE: 1.0})
    for bound in (PRODUCER_RATE, CONSUMER_RATE, REQUEST_PERCENTAGE):
        quotas.record(bound, "u", "c", 1.0, 0.0)
    pages = pages_of(broker, "partition")
    families = {f.name for f in text_string_to_metric_families(text_of(get(pair, "b1", pages)))}
    families = {name.removesuffix("_total") for name in families}
    described = {family for one in beans() for family in one.families}
    described |= {one.bean for one in process_metrics()}
    assert families == {name.removesuffix("_total") for name in described}
    described_beans = {one.name: set(one.tags) - {""} for one in beans()}
    for name in Metrics(broker).figures():
        domain, _, rest = name.partition(":")
        parts = rest.split(",")
        kept = parts[:2] if len(parts) > 1 and parts[1].startswith("name=") else parts[:1]
        bean = f"{domain}:{','.join(kept)}"
        assert bean in described_beans, name
        tags = {part.partition("=")[0] for part in parts[len(kept) :]}
        assert tags in (described_beans[bean], described_beans[bean] - {"topic"}), name
    assert not [t for t in help_texts().values() if "\n" in t or "`" in t or "](" in t]
    modern = text_of(get(pair, "b1", pages, accept="application/openmetrics-text"))
    shown = dict(line.split()[2:] for line in modern.splitlines() if line.startswith("# TYPE "))
    listed = {
        name.removesuffix("_total") if kind == "counter" else name: kind
        for name, kind in kinds_on_the_page_of_metrics().items()
    }
    of_the_lake = {
        f"ottla_lake_{name.removesuffix('_total')}": kind for name, (kind, _) in HELP.items()
    }
    assert listed == shown | of_the_lake


def test_who_has_a_quota_is_shown_with_what_is_used_of_it(pair, monkeypatch):
    broker = pair.brokers["b1"]
    quotas = ClientQuotas(samples=11, window_ms=1000.0)
    broker.services.quotas = quotas
    now_ms = broker.world.clock.monotonic() * 1000
    quotas.set((None, 'a,"=\n'), {PRODUCER_RATE: 1000.0})
    quotas.set(("u", ANY), {CONSUMER_RATE: 1e9})
    wait_ms = quotas.record(PRODUCER_RATE, "u", 'a,"=\n', 50_000, now_ms)
    quotas.record(CONSUMER_RATE, "u", "c", 20_000, now_ms)
    read = samples(text_of(get(pair, "b1", pages_of(broker))))
    shown = {key: value for key, value in read.items() if "client_id" in dict(key[1])}
    produces = frozenset({("user", ""), ("client_id", "a%2C%22%3D%0A")})
    fetches = frozenset({("user", "u"), ("client_id", "c")})
    assert {(name, frozenset(labels)): value for (name, labels), value in shown.items()} == {
        ("kafka_server_produce_byte_rate", produces): 5000.0,
        ("kafka_server_produce_throttle_time", produces): wait_ms,
        ("kafka_server_fetch_byte_rate", fetches): 2000.0,
        ("kafka_server_fetch_throttle_time", fetches): 0.0,
    }
    assert wait_ms == 40_000, "five times the bound over ten windows"
    for number in range(5):
        quotas.record(CONSUMER_RATE, "u", f"c{number}", 1000.0 * number, now_ms)
    used, left_out = quotas.used(now_ms, 3)
    assert [one.shared[1] for one in used] == ['a,"=\n', "c", "c4", "c3"], "of each kind of bound"
    assert left_out == 2, "c1 and c2; c0 used nothing"
    monkeypatch.setattr(mbeans, "MOST_CLIENTS", 3)
    read = samples(text_of(get(pair, "b1", pages_of(broker))))
    names = 2  # each by its kind and as a quota
    assert read[LEFT_OUT] == 2 * names * len(("byte-rate", "throttle-time"))
    read = samples(text_of(get(pair, "b1", pages_of(broker, "topic", 0))))
    assert read[LEFT_OUT] == 8 + len(TOPIC_METRICS), "with the topics"
    used, left_out = quotas.used(now_ms + 60_000, 1)
    assert (used[0].per_s, used[0].held_back_ms, left_out) == (0.0, 0.0, 0)


def session_states(scene, broker):
    """Return what a new page says of the session of the first broker with ZooKeeper."""
    read = samples(text_of(get(scene, "b1", pages_of(broker))))
    name = "ottla_server_zookeepersession_state"
    return {dict(labels)["state"]: value for (n, labels), value in read.items() if n == name}


def test_ready_is_who_is_registered_and_in_sync(pair):
    broker = pair.brokers["b1"]
    pages = pages_of(broker)
    assert text_of(get(pair, "b1", pages, "/readyz")) == "ok\n"
    assert text_of(get(pair, "b1", pages, "/healthz")) == "ok\n"
    assert get(pair, "b1", pages, "/etc/passwd").status == 404
    pair.simulation.node("b2").crash()
    under = broker.services.replicas
    pair.wait(lambda: all(p.state.isr.committed == (1,) for p in under.partitions.values()))
    assert get(pair, "b1", pages, "/readyz").status == 200, "it is in sync itself"
    assert session_states(pair, broker) == {"connected": 1, "suspended": 0, "dead": 0}
    pair.simulation.node("zk").crash()
    pair.wait(lambda: broker.membership.session_state is SessionState.SUSPENDED)
    assert session_states(pair, broker) == {"connected": 0, "suspended": 1, "dead": 0}
    assert get(pair, "b1", pages, "/readyz").status == 200, "the session may go on"
    pair.wait(lambda: not broker.services.replicas.may_propose)
    response = get(pair, "b1", pages, "/readyz")
    assert response.status == 503
    assert b"fenced" in response.body[0]
    assert text_of(get(pair, "b1", pages, "/healthz")) == "ok\n", "it lives"
    assert session_states(pair, broker) == {"connected": 0, "suspended": 0, "dead": 1}
    broker.services.replicas.unfence()
    assert b"not registered" in get(pair, "b1", pages, "/readyz").body[0]


def test_a_replica_that_is_not_in_sync_is_a_reason(pair):
    behind = pair.brokers["b2"]
    pages = pages_of(behind)
    pair.wait(lambda: "t" in behind.services.metadata.snapshot.topics)
    assert get(pair, "b2", pages, "/readyz").status == 200
    known = behind.services.metadata.snapshot.topics["t"].partitions
    known[0] = type(known[0])(0, 1, 1, (1,), (1, 2), (), 1, 1)
    response = get(pair, "b2", pages, "/readyz")
    assert response.body == (b"not ready: 1 replica is not in sync: t-0\n",)


def test_replicas_that_are_offline_are_a_reason(pair):
    replicas = pair.brokers["b1"].services.replicas
    first, second = sorted(replicas.partitions)
    pages = pages_of(pair.brokers["b1"])

    async def give_up(tp):
        replicas.give_up(tp)
        return await pages.respond(HttpRequest("GET", "/readyz", {}))

    node = pair.simulation.node("b1")
    response = node.call(give_up(second))
    assert response.status == 503
    assert response.body == (b"not ready: 1 replica is offline: t-1\n",)
    response = node.call(give_up(first))
    assert response.body == (b"not ready: 2 replicas are offline: t-1, t-0\n",)


def test_a_broker_that_has_not_started_yet_lives_and_is_not_ready(scene):
    name = scene.boot(1, zookeeper_connect="zk:9999", zookeeper_connection_timeout_ms="60000")
    scene.wait(lambda: name in scene.brokers)
    pages = pages_of(scene.brokers[name], "partition")
    assert text_of(get(scene, name, pages, "/healthz")) == "ok\n"
    assert get(scene, name, pages, "/readyz").status == 503
    read = samples(text_of(get(scene, name, pages)))
    assert read["kafka_server_kafkaserver_brokerstate", ()] == 1
    assert read["kafka_server_replicamanager_partitioncount", ()] == 0


def test_a_page_is_made_once_for_all_who_ask_at_once(pair):
    broker = pair.brokers["b1"]
    metrics, made = Metrics(broker), []
    plain = metrics.figures
    metrics.figures = lambda: made.append(1) or plain()
    pages = Pages(broker.services, metrics, Detail("broker", 0))

    async def ask():
        return await asyncio.gather(*(pages.metrics(open_metrics=False) for _ in range(5)))

    node = pair.simulation.node("b1")
    first, *others = node.call(ask())
    assert all(other is first for other in others)
    assert len(made) == 1
    pair.simulation.run_for(2)
    assert pages._made == {}, "forgotten: it may be large"
    node.call(ask())
    assert len(made) == 2


@pytest.mark.parametrize(
    ("accept", "modern"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3", True),
        ("text/plain;q=0.9, application/openmetrics-text;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x", False),
        (";;,q=,,", False),
    ],
)
def test_the_format_is_negotiated(accept, modern):
    assert wants_open_metrics(accept) is modern


def config(listener):
    return BrokerConfig({"broker.id": "1", "zookeeper.connect": "z:1", **listener})


def test_the_setting_is_an_address_or_nothing():
    assert metrics_address(config({})) is None
    key = "ottla.metrics.listener"
    assert metrics_address(config({key: "127.0.0.1:9404"})) == ("127.0.0.1", 9404)
    assert metrics_address(config({key: "[::1]:9404"})) == ("::1", 9404)
    assert metrics_address(config({key: ":9404"})) == ("", 9404)
    for wrong in ("9404", "http://127.0.0.1:9404", "host:port", "host:70000"):
        with pytest.raises(ConfigError, match="write host:port"):
            metrics_address(config({key: wrong}))


def test_an_address_that_is_taken_costs_the_pages_not_the_broker(pair, caplog):
    broker = pair.brokers["b1"]
    metrics = Metrics(broker)

    async def both():
        key = {"ottla.metrics.listener": "b1:9404"}
        first = await open_pages(config(key), broker.services, metrics)
        second = await open_pages(config(key), broker.services, metrics)
        return first, second

    first, second = pair.simulation.node("b1").call(both())
    assert first is not None
    assert second is None
    assert "metrics listener not opened endpoint=b1:9404" in caplog.text
    first.close()
