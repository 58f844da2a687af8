"""Metrics beside those of Apache Kafka 3.9.1: names, units and, under the same load, values.

Two brokers of each; the same clients do the same to both (`metrics_load`), and the same broker goes
away and comes back. Kafka's MBeans are read as JMX shows them, ours over HTTP, in Prometheus's
format, by its own parser. What Kafka has and we have not is named in `NOT_HERE`, and what stays 0
under this load in `MAY_BE_ZERO`, each with its reason: both lists are whole, or a test fails.
"""

import functools
import http.client
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from exporter_names import EXPORTER_NAMES, shape_text
from metrics_load import HELD, LAG_MS, SESSION_MS, SETTINGS, SINGLE, Load
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.metrics.catalogue import ATTRIBUTES, beans
from ottla.broker.metrics.exposition import label_text, parse_bean, samples_of
from support import kafka_tools
from support.cluster import BrokerProcesses, OttlaCluster, free_ports
from support.kafka_mbeans import KafkaWithMBeans
from support.sasl_clusters import PREFIX, plain_jaas

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.timeout(170),
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]

WITHIN_S = 20

# Kafka's MBeans that have no counterpart here, with the reason.
NOT_HERE = {
    r"kafka:type=kafka\.Log4jController.*": "loggers of Java",
    r"kafka\.server:type=app-info.*": "version of Java's build",
    r".*type=kafka-metrics-count.*|.*name=yammer-metrics-count": "a count of Java's metrics",
    r"kafka\.server:type=KafkaServer,name=ClusterId": "a text",
    r"kafka\.server:type=SessionExpireListener,name=SessionState": (
        "a text; ottla_server_zookeepersession_state"
    ),
    r"kafka\.server:type=SessionExpireListener,name=ZooKeeper(ReadOnlyConnects|"
    r"SaslAuthentications)PerSec": "no read-only servers; not counted",
    r"kafka\.network:type=(Acceptor|Processor),.*": "there are no such threads",
    r"kafka\.network:type=SocketServer,name=(ControlPlane.*|ExpiredConnectionsKilledCount)": (
        "one loop for all listeners"
    ),
    r"kafka\.network:type=RequestChannel,name=ControlPlane.*": "the same",
    r"kafka\.network:type=RequestMetrics,name=("
    r"ThrottleTimeMs|RequestBytes|TemporaryMemoryBytes|"
    r"MessageConversionsTimeMs),.*": "not measured",
    r"kafka\.server:type=BrokerTopicMetrics,name=(Remote.*|BuildRemoteLogAuxState.*)": (
        "no tiered storage"
    ),
    r"kafka\.server:type=BrokerTopicMetrics,name=(Invalid.*|NoKeyCompacted.*|Reassignment.*)": (
        "not counted"
    ),
    r"kafka\.server:type=(DelayedFetchMetrics|DelayedRemoteFetchMetrics|FetcherStats),.*": (
        "not counted"
    ),
    r"kafka\.server:type=Replica(Fetcher|AlterLogDirs)Manager,name=(DeadThreadCount|MinFetchRate|"
    r"MaxLag|FailedPartitionsCount),.*": "a fetcher is a task; moves: not shown",
    r"kafka\.server:type=ReplicaManager,name=(ProducerIdCount|PartitionsWithLateTrans.*)": (
        "not shown"
    ),
    r"kafka\.server:type=(AddPartitionsToTxnManager|DelayedOperation|TransferQueue|"
    r"ZkMigration.*|BrokerFeatures|MetadataLoader|raft.*|node-metrics).*": "inside of Kafka's",
    r"kafka\.server:type=[a-zA-Z-]+-metrics.*": "of Kafka's own clients",
    r"kafka\.server:type=(ControllerMutation|LeaderReplication|"
    r"FollowerReplication|AlterLogDirsReplication|group-.*|txn-.*|Throttle.*|replica-.*)(,.*)?": (
        "quotas: not shown"
    ),
    r"kafka\.controller:type=ControllerChannelManager,name=RequestRateAndQueueTimeMs,.*": (
        "not measured"
    ),
    r"kafka\.controller:type=ControllerEventManager,name=EventQueueTimeMs": "not measured",
    r"kafka\.controller:type=KafkaController,name=(ControllerState|FencedBrokerCount|"
    r"ReplicasToDeleteCount|(Replicas|Topics)IneligibleToDeleteCount|.*Migration.*|"
    r"ActiveBrokerCount)": "not shown",
    r"kafka\.controller:type=ControllerStats,name=(ControllerShutdown|UncleanLeaderElectionEnable|"
    r"UpdateFeatures|.*)RateAndTimeMs": "tests/oracle/test_controller_metrics.py has the reasons",
    r"kafka\.coordinator\.(group|transaction):type=.*": "not shown",
    r"kafka\.log:type=LogCleaner,name=(DeadThreadCount|max-compaction-delay-secs)": "not shown",
    r"kafka\.log:type=LogManager,name=remaining.*": "not shown",
    r"kafka\.log\.remote:.*|org\.apache.*": "no tiered storage",
    r"kafka\.utils:.*": "threads of Java's pools",
}


class ForUsers(BrokerProcesses):
    """Besides the listener of brokers there is one with SASL, for users alone."""

    def properties(self, broker):
        self.sasl_ports = getattr(self, "sasl_ports", {})
        (self.sasl_ports[broker],) = free_ports(1)
        found = super().properties(broker)
        return found | {
            "listeners": f"{found['listeners']},SASL_PLAINTEXT://{self.sasl_address(broker)}",
            "sasl.enabled.mechanisms": "PLAIN",
            f"{PREFIX}.plain.sasl.jaas.config": plain_jaas(),
        }

    def sasl_address(self, broker):
        return f"{self.host(broker)}:{self.sasl_ports[broker]}"


class FirstKafka(ForUsers, KafkaWithMBeans):
    """Brokers of which the first becomes the controller, because it is alone at first."""

    def start_broker(self, broker, *, wait=True):
        super().start_broker(broker, wait=wait or broker == self.ids[0])


class FirstOttla(ForUsers, OttlaCluster):
    """Ours likewise, with all of their metrics over HTTP."""

    def start_broker(self, broker, *, wait=True):
        super().start_broker(broker, wait=wait or broker == self.ids[0])

    def properties(self, broker):
        self.pages = getattr(self, "pages", {})
        (self.pages[broker],) = free_ports(1)
        metrics = {"ottla.metrics.listener": f"127.0.0.1:{self.pages[broker]}",
                   "ottla.metrics.detail": "partition"}  # fmt: skip
        return super().properties(broker) | metrics

    def page(self, broker):
        """Return the values of a broker's page by name and labels."""
        client = http.client.HTTPConnection("127.0.0.1", self.pages[broker], timeout=WITHIN_S)
        client.request("GET", "/metrics")
        text = client.getresponse().read().decode()
        client.close()
        return {
            series(s.name, s.labels.items()): s.value
            for family in text_string_to_metric_families(text)
            for s in family.samples
        }


def series(name, labels):
    """Return a series in one form: labels in order, those without a value left out."""
    return f"{name}{label_text(tuple(sorted(pair for pair in labels if pair[1])))}"


@functools.cache
def exporter_names():
    """Return what the exporter's published rules make of MBeans, by shape and attribute."""
    found = {}
    for line in EXPORTER_NAMES.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            bean, attribute, name, *labels = line.split(" ")
            pairs = (text.partition("=")[::2] for text in labels)
            found[bean, attribute] = name, tuple(pairs)
    return found


def translated(mbeans):
    """Return Kafka's values by the names that the exporter's rules give, in the same form.

    Names that other rules give come from our own translation: `samples_of` says which these are.
    """
    found = {}
    for bean, attributes in mbeans.items():
        parsed = parse_bean(bean)
        tags = dict(parsed.tags)
        for attribute, text in attributes.items():
            try:
                value = float(text)
            except ValueError:
                continue
            known = exporter_names().get((shape_text(bean), attribute))
            if known is not None:
                labels = [(k, tags[v[1:-1]] if v[:1] == "{" else v) for k, v in known[1]]
                found[series(known[0], labels)] = value
            for s in samples_of(parsed, attribute):
                one = series(f"{s.family}{s.suffix}", s.labels)
                if is_of_other_rules(parsed, s):
                    found[one] = value
    return found


def is_of_other_rules(parsed, sample):
    """Return whether a name is one of those that `exposition` adds to the exporter's."""
    by_kind = not parsed.name and "_quota_" not in sample.family
    return by_kind or ("Percent" in parsed.name and sample.family.endswith("_percent"))


@dataclass
class Look:
    """What both brokers of one id said at one time."""

    when: str
    kafka: dict[str, float]
    ours: dict[str, float]
    mbeans: dict[str, dict[str, str]]


class Pair:
    """Two clusters under the same load, and what was seen of them: looks by time and broker."""

    def __init__(self, kafka: FirstKafka, ottla: FirstOttla) -> None:
        self.kafka = kafka
        self.ottla = ottla
        self.loads = Load("Kafka", kafka), Load("ours", ottla)
        self.seen: dict[str, dict[int, Look]] = {}

    def both(self, work: Callable[[Load], object]) -> None:
        """Do something with both clusters at once."""
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, self.loads))

    def look(self, when: str, broker: int) -> Look:
        mbeans = self.kafka.mbeans(broker)
        return Look(when, translated(mbeans), self.ottla.page(broker), mbeans)

    def note(self, when: str, since: str = "", brokers=(0, 1)) -> None:
        """Look at brokers until both say the same, or until it is too late for that.

        A page is made once a second, and Kafka counts a request after it has answered it.
        """
        before = self.seen.get(since)
        give_up_s = time.monotonic() + WITHIN_S
        self.seen[when] = {}
        for broker in brokers:
            while True:
                look = self.seen[when][broker] = self.look(when, broker)
                if before is None or time.monotonic() > give_up_s:
                    break
                if not differing(counted(before[broker], look, broker)) and not differing(
                    gauges(look)
                ):
                    break
                time.sleep(1.1)

    def beans(self) -> dict[str, dict[str, str]]:
        """Return all MBeans that a broker of Kafka's ever had."""
        looks = [look for looks in self.seen.values() for look in looks.values()]
        return {name: found for look in looks for name, found in look.mbeans.items()}

    def await_parked(self) -> None:
        """Wait until each broker 0 says that a produce request waits, then look."""
        parked = series(PARKED, [("delayedOperation", "Produce")])
        give_up_s = time.monotonic() + LAG_MS / 1000
        kafka, ours = self.kafka.mbeans(0), self.ottla.page(0)
        while time.monotonic() < give_up_s:
            if not translated(kafka).get(parked, 1):  # 1: while the table is being made
                kafka = self.kafka.mbeans(0)
            elif not ours[parked]:
                time.sleep(0.3)
                ours = self.ottla.page(0)
            else:
                break
        self.seen["parked"] = {0: Look("parked", translated(kafka), ours, kafka)}


PARKED = "kafka_server_delayedoperationpurgatory_numdelayedoperations"


@contextmanager
def under_load(folder):
    """Yield both clusters after all of the load, with what was seen of them at each time."""
    few = {**SETTINGS, "session_timeout_ms": SESSION_MS}
    clusters = (
        FirstKafka(folder / "kafka", 2, heap_mb=384, **few),
        FirstOttla(folder / "ours", 2, **few),
    )
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        pair = Pair(*pool.map(stack.enter_context, clusters))
        for load in pair.loads:
            stack.callback(load.close)
        pair.both(Load.prepare)
        pair.note("before")
        pair.both(Load.fill)
        pair.note("loaded", since="before")
        pair.both(Load.ask_for_topics)
        pair.note("asked", since="loaded", brokers=(0,))
        pair.both(Load.pause_other)
        pair.await_parked()
        pair.both(Load.leave_isr)
        pair.note("queued", brokers=(0,))
        pair.both(Load.lose_other)
        pair.note("alone", since="asked", brokers=(0,))
        pair.both(Load.regain_other)
        pair.note("together")
        yield pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Both clusters after all of the load."""
    with under_load(tmp_path_factory.mktemp("metrics")) as pair:
        yield pair


def test_names_are_those_that_the_exporter_s_published_rules_give(pair):
    """Each attribute that we show: its name and labels beside the table of tests/vectors."""
    shown = {one.name for one in beans()}
    wrong, checked = [], 0
    for bean, attributes in pair.beans().items():
        parsed = parse_bean(bean)
        if not {bean.partition(",")[0], ",".join(bean.split(",")[:2])} & shown:
            continue
        if not (parsed.name or parsed.tags):
            continue  # of all clients together: not shown
        for attribute in attributes:
            ours = {
                (f"{s.family}{s.suffix}", tuple(key for key, _ in s.labels))
                for s in samples_of(parsed, attribute)
                if not is_of_other_rules(parsed, s)
            }
            known = exporter_names().get((shape_text(bean), attribute))
            theirs = set() if known is None else {(known[0], tuple(key for key, _ in known[1]))}
            checked += bool(theirs)
            if ours != theirs and attribute != "MeanRate":  # ours is of the last minute
                wrong.append(f"{bean} {attribute}: {ours or 'nothing'}, exporter {theirs}")
    assert not wrong, "\n".join(sorted(wrong))
    assert checked > 300


# Attributes of `socket-server-metrics` that have no counterpart here, with the reason.
ATTRIBUTES_NOT_HERE = {
    r".*-rate": "rates: of the totals",
    r"(ip-)?connection-accept-throttle-time": "not measured",
    r"(io|network-io|select)-.*|iotime-total": "one loop: NetworkProcessorAvgIdlePercent",
    r"(request|response)-.*|(incoming|outgoing)-byte-total": "not counted by listener",
    r"reauthentication-latency-.*": "not measured",
    r"expired-connections-killed-count": "not counted",
    r"successful-authentication-no-reauth-total": "not told apart by the age of clients",
}


def test_attributes_of_listeners_are_here_or_listed_as_missing(pair):
    listener = "kafka.server:type=socket-server-metrics"
    theirs = {
        attribute
        for bean, attributes in pair.beans().items()
        if bean.startswith(f"{listener},listener=") and "clientSoftware" not in bean
        for attribute in attributes
    }
    ours = set(ATTRIBUTES[listener])
    assert ours <= theirs
    missing = theirs - ours
    assert not [a for a in missing if not any(re.fullmatch(r, a) for r in ATTRIBUTES_NOT_HERE)]
    assert not [r for r in ATTRIBUTES_NOT_HERE if not any(re.fullmatch(r, a) for a in missing)]


def shape(bean):
    """Return an MBean's domain, type, name and the names of its tags."""
    parsed = parse_bean(bean)
    tags = frozenset(key for key, _ in parsed.tags)
    return parsed.domain, parsed.type, parsed.name, tags


def test_what_kafka_has_is_here_by_the_same_name_or_is_listed_as_missing(pair):
    mbeans = pair.beans()
    ours = {
        (parse_bean(one.name).domain, parse_bean(one.name).type, parse_bean(one.name).name)
        for one in beans()
    }
    kafkas = {shape(bean)[:3] for bean in mbeans}
    invented = {bean for bean in ours if bean[0].startswith("kafka")} - kafkas
    assert not invented
    missing = {
        bean
        for bean in mbeans
        if shape(bean)[:3] not in ours
        and not any(re.fullmatch(pattern, bean) for pattern in NOT_HERE)
    }
    assert not missing, "\n".join(sorted(missing))


def test_attributes_and_units_are_kafka_s(pair):
    """A meter's `EventType` and a timer's `LatencyUnit` say what Kafka counts."""
    mbeans = pair.beans()
    by_name = {}
    for bean, attributes in mbeans.items():
        by_name.setdefault(shape(bean)[:3], attributes)
    wanted = {"gauge": {"Value"}, "meter": {"Count", "OneMinuteRate"}, "share": set(),
              "times": {"Count", "99thPercentile"}, "timer": {"Count", "99thPercentile"},
              "attributes": set()}  # fmt: skip
    checked = 0
    for one in beans():
        parsed = parse_bean(one.name)
        theirs = by_name.get((parsed.domain, parsed.type, parsed.name))
        if theirs is None:
            continue
        assert wanted[one.kind] <= theirs.keys(), one
        if one.kind == "meter":
            assert (one.unit == "bytes") == (theirs["EventType"] == "bytes"), one
            assert theirs["RateUnit"] == "SECONDS", one
        if one.kind == "timer":
            assert (one.unit, theirs["LatencyUnit"]) == ("ms", "MILLISECONDS"), one
        checked += 1
    assert checked > 50


# Counters whose value depends on other things than the load, with the reason.
OTHER_COUNTS = {
    "kafka_controller_": "how many events the same work is, is each controller's own affair",
    "kafka_server_sessionexpirelistener_zookeepersyncconnects": "Kafka's client connects once more",
    "kafka_server_socket_server_metrics_": "the brokers' connections to each other",
    "kafka_server_kafkarequesthandlerpool_": "time",
    "kafka_log_logflushstats_": "each flushes when it will",
    "kafka_server_zookeeperclientmetrics_": "each asks ZooKeeper in its own way",
    "kafka_server_brokertopicmetrics_totalfetchrequests_": "followers ask whenever they will",
    "kafka_server_replicamanager_failedisrupdates": "whether a request met another one",
}
SENT = {
    "AddPartitionsToTxn": "3", "AlterClientQuotas": "", "AlterPartitionReassignments": "",
    "ApiVersions": "2", "CreateTopics": "", "DeleteTopics": "", "EndTxn": "", "FetchConsumer": "",
    "IncrementalAlterConfigs": "", "JoinGroup": "", "Metadata": "8", "OffsetCommit": "",
    "Produce": "", "SyncGroup": "",
}  # fmt: skip
"""Requests of which the load sends a fixed number; in which version, if brokers send it too."""
REPLICATED = "kafka_server_brokertopicmetrics_replicationbytes"
FETCHES_OF_ONE = series(
    "kafka_server_brokertopicmetrics_totalfetchrequests_total", [("topic", SINGLE)]
)


def is_comparable(one):
    if "requestmetrics" in one:
        request = re.search(r'request="(\w+)"', one)[1]
        version = SENT.get(request)
        return version == "" or (version is not None and f'version="{version}"' in one)
    if one.startswith(REPLICATED) and "topic=" in one:
        return False  # Kafka counts them of all topics together only
    return one == FETCHES_OF_ONE or not one.startswith(tuple(OTHER_COUNTS))


def counted(before, after, broker):
    """Return by how much each counter grew, of Kafka's and of ours."""
    compared = {}
    for one, value in after.ours.items():
        name = one.partition("{")[0]
        if not name.endswith(("_total", "_count")) or not name.startswith("kafka"):
            continue
        if is_comparable(one):
            grew = after.kafka.get(one, 0.0) - before.kafka.get(one, 0.0)
            compared[one] = grew, value - before.ours.get(one, 0.0)
    for one, value in after.kafka.items():  # an error that we do not count: no series of ours
        if "requestmetrics_errors_total" in one and is_comparable(one):
            compared.setdefault(one, (value - before.kafka.get(one, 0.0), 0.0))
    if broker == 0 and before.when == "before":
        return {one: (theirs + held(one), ours) for one, (theirs, ours) in compared.items()}
    return compared


def held(one):
    """Return how many requests of a series are not answered yet."""
    request = re.search(r'request="(\w+)"', one)
    return HELD.get(request[1], 0) if request and "_errors_" not in one else 0


def differing(compared):
    return {one: pair for one, pair in compared.items() if pair[0] != pair[1]}


def told(different):
    return "Kafka's, ours:\n" + "\n".join(f"{one} {pair}" for one, pair in different.items())


STEPS = [("before", "loaded", 0), ("before", "loaded", 1), ("loaded", "asked", 0),
         ("asked", "alone", 0)]  # fmt: skip


@pytest.mark.parametrize(("since", "when", "broker"), STEPS)
def test_counters_say_the_same_after_the_same_requests(pair, since, when, broker):
    compared = counted(pair.seen[since][broker], pair.seen[when][broker], broker)
    different = differing(compared)
    assert not different, told(different)


# Gauges that are each server's own affair, with the reason.
OTHER_GAUGES = {
    "kafka_log_logcleanermanager_time_since": "time",
    "kafka_network_socketserver_memorypool": "Kafka has no bound by default",
    "kafka_log_logmanager_logdirectoryoffline": "each has folders of its own",
    "kafka_log_logcleanermanager_uncleanable": "likewise",
    "kafka_log_logcleaner_max_buffer": "each has a map of its own; a key takes more of ours",
    "kafka_server_socket_server_metrics_connection_count": "the brokers' connections to each other",
    "kafka_server_delayedoperationpurgatory_purgatorysize": "Kafka sweeps now and then",
    "kafka_controller_controllerchannelmanager_": "what is on its way at the moment",
    "kafka_network_socketserver_networkprocessor": "time",
    "kafka_server_kafkarequesthandlerpool_": "time",
    "kafka_server_kafkaserver_linux_disk_": "each has a log of its own form, and its own files",
    "kafka_server_quota_": "rates: see the test of quotas",
    "kafka_server_produce_": "the same",
    "kafka_server_fetch_": "the same",
    "kafka_server_request_": "the same",
}


def gauges(look):
    """Return the values of gauges that have to be the same: Kafka's, ours."""
    return {
        one: (look.kafka[one], value)
        for one, value in look.ours.items()
        if one in look.kafka and "quantile" not in one
        and not one.partition("{")[0].endswith(("_total", "_count"))
        and not one.startswith(tuple(OTHER_GAUGES))
    }  # fmt: skip


@pytest.mark.parametrize(("when", "broker"), [("loaded", 0), ("loaded", 1), ("alone", 0)])
def test_gauges_say_the_same_of_the_same_cluster(pair, when, broker):
    compared = gauges(pair.seen[when][broker])
    different = differing(compared)
    assert not different, told(different)
    assert len(compared) > 60


def test_errors_in_metadata_are_counted_by_topic_and_partition(pair):
    looks = pair.seen["loaded"][0], pair.seen["asked"][0]
    grew = []
    for earlier, now in ((looks[0].kafka, looks[1].kafka), (looks[0].ours, looks[1].ours)):
        errors = {
            one: value - earlier.get(one, 0.0)
            for one, value in now.items()
            if "requestmetrics_errors_total" in one and 'request="Metadata"' in one
        }
        grew.append({one: count for one, count in errors.items() if count})
    assert grew[0] == grew[1]
    assert len(grew[0]) == 3, "NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION"


def test_what_clients_use_of_their_quotas_is_the_same_in_the_same_unit(pair):
    look = pair.seen["loaded"][0]
    of = {"produce": "greedy-producer", "fetch": "greedy-consumer", "request": "greedy-asker"}
    for kind, client in of.items():
        for attribute in ("request_time" if kind == "request" else "byte_rate", "throttle_time"):
            one = series(f"kafka_server_{kind}_{attribute}", [("client_id", client)])
            by_kind = [("resource", kind.capitalize()), ("clientId", client)]
            theirs, ours = look.kafka[one], look.ours[one]
            assert ours == look.ours[series(f"kafka_server_quota_{attribute}", by_kind)]
            assert theirs > 0, one
            assert ours > 0, one
            if kind != "request":  # the time that a request takes is each broker's own affair
                assert 0.5 < ours / theirs < 2, (one, theirs, ours)


def test_connections_are_counted_by_listener(pair):
    """Kafka counts those of each of its network threads, we have one."""
    look = pair.seen["loaded"][0]
    counted = ("connection_creation", "connection_close", "successful_authentication",
               "failed_authentication")  # fmt: skip
    told = [
        [
            sum(
                value
                for one, value in values.items()
                if one.startswith(f"kafka_server_socket_server_metrics_{name}_total")
                and 'listener="SASL_PLAINTEXT"' in one
            )
            for name in counted
        ]
        for values in (look.kafka, look.ours)
    ]
    assert told == [[2, 2, 1, 1]] * 2


# What stays 0 on one side or on both under this load, by the beginning of its name.
MAY_BE_ZERO: dict[str, str] = {
    "kafka_network_requestchannel_re": "queues, empty between requests",
    "kafka_controller_controllereventmanager_eventqueuesize": "likewise",
    "kafka_controller_controllerchannelmanager_": "likewise",
    "kafka_server_kafkaserver_linux_disk_read_bytes": "all that is read is in memory yet",
    "kafka_server_socket_server_metrics_connection_close": "which thread of Kafka's is chance",
    "kafka_server_socket_server_metrics_failed_": "on the listener of brokers nobody says a name",
    "kafka_server_socket_server_metrics_successful_": "the same",
    "kafka_network_socketserver_memorypoolused": "of frames over 64 KiB, while they come",
    "kafka_server_brokertopicmetrics_failedfetchrequests": "needs a log that cannot be read",
    "kafka_server_brokertopicmetrics_producemessageconversions": "no client has old formats",
    "kafka_server_brokertopicmetrics_fetchmessageconversions": "the same",
    "kafka_server_sessionexpirelistener_zookeeperauthfailures": "nobody is refused",
    "kafka_coordinator_group_groupmetadatamanager_numgroupsdead": "gone in a moment",
    "kafka_server_replicafetchermanager_failedpartitionscount": "the same",
    "kafka_server_replicamanager_offlinereplicacount": "needs a log dir that fails",
    "kafka_log_logmanager_offlinelogdirectorycount": "the same",
    "kafka_controller_controllerstats_logdirchange": "the same",
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictions": (
        "Kafka has 8 caches and draws one: which is full is chance"
    ),
    "kafka_log_logcleaner_max_clean_time_secs": "whole seconds",
    "kafka_server_replicamanager_failedisrupdates": "whether a request met another one",
    "kafka_controller_controllerstats_controlledshutdown": "no broker stops in order",
    "kafka_controller_controllerstats_autoleaderbalance": "off: it would move leaders at any time",
}


def test_nearly_every_figure_was_above_0_on_both_sides(pair):
    """So that a figure that falls to 0 is noticed: what may be 0 is listed, and is 0."""
    largest: dict[str, list[float]] = {}
    for looks in pair.seen.values():
        for look in looks.values():
            for one in look.ours.keys() & look.kafka.keys():
                found = largest.setdefault(one.partition("{")[0], [0.0, 0.0])
                found[0] = max(found[0], look.kafka[one])
                found[1] = max(found[1], look.ours[one])
    zero = {name: values for name, values in largest.items() if not all(values)}
    listed = {name for name in zero if name.startswith(tuple(MAY_BE_ZERO))}
    assert not zero.keys() - listed, told({name: zero[name] for name in zero.keys() - listed})
    unknown = [begin for begin in MAY_BE_ZERO if not any(n.startswith(begin) for n in largest)]
    assert not unknown, "no such figure: take it out of MAY_BE_ZERO"
    print(f"{len(largest)} figures, {len(zero)} of them 0 on a side")
    assert len(largest) - len(zero) > 100
