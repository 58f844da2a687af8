"""The request log at DEBUG beside that of Apache Kafka 3.9.1: the same requests, line by line.

Every API that clients use is asked in every version that both serve, with what a request has by
default, and some with content. `requestHeader` and `request` have to be the same; so has `response`
but for what differs from broker to broker (`MASKED`) and for answers that are each broker's own
(`OTHER_ANSWERS`), of which the keys are compared.
"""

import base64
import json
import re
import struct
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from differential_tables import batch, produce
from metrics_load import configs, reading, topic_row
from minimal_client import MinimalClient, body_of, header_of

from ottla.model.errors import ErrorCode
from ottla.wire.apis import APIS
from support import kafka39, kafka_tools
from support.cluster import OttlaCluster
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]

MARK = "Completed request:"
SETTINGS = {
    "auto_create_topics_enable": "false",
    "group_initial_rebalance_delay_ms": "0",
    "offsets_topic_num_partitions": "1",
    "offsets_topic_replication_factor": "1",
    "password_encoder_secret": "encoder-secret",
    "transaction_state_log_num_partitions": "1",
    "transaction_state_log_replication_factor": "1",
}
SECRETS = ("salted-secret", "store-secret", "salt-secret", "unknown-secret")
SECRET_FIELDS = {"hmac", "authBytes"}
LOG4J = "\nlog4j.logger.kafka.request.logger=DEBUG\n"
BETWEEN_BROKERS = {4, 5, 6, 7, 27, 56, 58, 67}
NOT_LOGGED = {17, 36}
"""Kafka's log has nothing of authentication."""
NOT_EMPTY = {
    0: (0, {"acks": 1}),
    9: (8, {"groups": [{"group_id": "nobody", "topics": []}]}),
    24: (4, {"transactions": [{"transactional_id": "nobody", "producer_id": 1, "topics": []}]}),
    29: (0, {"resource_type_filter": 1, "operation": 1, "permission_type": 1}),
}
"""Without these, from a version on, there is no answer."""
PROTOCOLS = [{"name": "range", "metadata": b"\x00\x01"}]
TOPIC = {"max.message.bytes": "100000", "retention.ms": "-1"}
PASSWORD = {"listener.name.plaintext.ssl.keystore.password": "store-secret"}


def with_content():
    """Yield a name, an API, a version and a request with something in it."""
    yield "create", 19, 7, {"topics": [topic_row("t", [[0], [0]], TOPIC)], "timeout_ms": 20_000}
    for version in (3, 9, 11):
        yield f"produce-{version}", 0, version, produce("t", batch(b"v"), acks=-1)
        yield f"nowhere-{version}", 0, version, produce("nope", batch(b"v"))
    yield "fetch", 1, 11, reading("t")
    yield "fetch-unknown", 1, 12, reading("nope")
    yield "metadata", 3, 12, {"topics": [{"name": "t"}, {"name": "no good"}]}
    yield "offsets", 2, 8, {"replica_id": -1, "topics": [
        {"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}  # fmt: skip
    yield "coordinator", 10, 4, {"key_type": 0, "coordinator_keys": ["g"]}
    yield "join", 11, 4, {
        "group_id": "g", "session_timeout_ms": 30_000, "protocol_type": "consumer",
        "rebalance_timeout_ms": 30_000, "protocols": PROTOCOLS,
    }  # fmt: skip
    yield "commit", 8, 8, {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": [
        {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1,
                                      "committed_metadata": "m"}]}]}  # fmt: skip
    yield "committed", 9, 8, {"groups": [{"group_id": "g", "topics": None}]}
    yield "describe", 32, 4, {"resources": [{"resource_type": 2, "resource_name": "t",
        "configuration_keys": ["retention.ms"]}], "include_synonyms": True}  # fmt: skip
    some = configs({"retention.ms": "5000", "no.such.key": "unknown-secret"})
    rows = [{"resource_type": 4, "resource_name": "0", "configs": configs(PASSWORD)},
            {"resource_type": 2, "resource_name": "t", "configs": some}]  # fmt: skip
    yield "alter-old", 33, 2, {"resources": rows, "validate_only": True}
    yield "alter", 44, 1, {"resources": rows, "validate_only": True}
    yield "quota", 49, 1, {"validate_only": True, "entries": [
        {"entity": [{"entity_type": "client-id", "entity_name": "c"}],
         "ops": [{"key": "producer_byte_rate", "value": 1.5, "remove": False}]}]}  # fmt: skip
    yield "scram", 51, 0, {"deletions": [], "upsertions": [
        {"name": "u", "mechanism": 1, "iterations": 4096, "salt": b"salt-secret",
         "salted_password": b"salted-secret"}]}  # fmt: skip
    yield "producer-id", 22, 4, {"transactional_id": None, "transaction_timeout_ms": 1000}
    software = {"client_software_name": "some-client", "client_software_version": "1.0"}
    yield "versions", 18, 3, software
    yield "after-versions", 60, 0, {}


def defaults(served):
    """Yield the same of what a request has by default, in each version that both serve."""
    for key, (low, high) in served.items():
        if key in APIS and key not in BETWEEN_BROKERS | NOT_LOGGED:
            spec = APIS[key]
            for version in range(max(low, spec.min_version), min(high, spec.max_version) + 1):
                first, some = NOT_EMPTY.get(key, (0, {}))
                fields = some if version >= first else {}
                yield f"default-{spec.name}-{version}", key, version, fields


class LoggingOttla(OttlaCluster):
    def command(self, broker, config):
        return [*super().command(broker, config), "--log-level", "debug"]


def served_by(address):
    client = MinimalClient(address)
    found = client.send(18, 3, body_of(18, 3, {"client_software_name": "a",
                                               "client_software_version": "1"}))  # fmt: skip
    client.close()
    return {a["api_key"]: (a["min_version"], a["max_version"]) for a in found.answer["api_keys"]}


def send_all(address, rows):
    """Send all requests; each has a client id of its own."""
    client = MinimalClient(address)
    for name, key, version, fields in rows:
        outcome = client.send(key, version, body_of(key, version, fields), client=name)
        assert outcome.result == "answered", (name, outcome)
        if name == "create":
            until(lambda: leads(address), 30, "t has no leaders")
        if name == "coordinator":
            until(lambda: coordinates(address), 30, "there is no coordinator")
    frames = (
        header_of(0, 9, 1, "acks-0") + body_of(0, 9, produce("t", batch(b"v"), acks=0)),
        header_of(18, 0, 2, "after-acks-0"),
    )
    found = client.send_frame(b"".join(struct.pack(">i", len(f)) + f for f in frames))
    assert found.result == "answered"
    client.close()


def leads(address):
    client = MinimalClient(address)
    answer = client.send(3, 9, body_of(3, 9, {"topics": [{"name": "t"}]}), client=None).answer
    client.close()
    return all(p["leader_id"] >= 0 for t in answer["topics"] for p in t["partitions"])


def coordinates(address):
    """Return whether a group's member would be looked up."""
    client = MinimalClient(address)
    beat = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    answer = client.send(12, 4, body_of(12, 4, beat), client=None).answer
    client.close()
    return answer["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


def lines_of(path, names):
    """Return what a log says of each request, by client id, once all are there."""

    def found():
        said = {}
        for line in path.read_text(errors="replace").splitlines():
            if MARK in line:
                text = line.partition(MARK)[2]
                text = text.removesuffix(" (kafka.request.logger)")
                one = json.loads(text)
                said[one["requestHeader"]["clientId"]] = one
        return said if names <= said.keys() else None

    return until(found, 20, f"{path} has all requests")


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """What both brokers say of each request, by its name; and all of our log."""
    folder = tmp_path_factory.mktemp("request-log")
    kafka = kafka39.Kafka39Cluster(folder / "kafka", 1, **SETTINGS)
    kafka.log4j = kafka39.LOG4J + LOG4J
    with kafka, LoggingOttla(folder / "ours", 1, **SETTINGS) as ottla:
        ours, theirs = served_by(ottla.address(0)), served_by(kafka.address(0))
        both = {
            key: (max(low, theirs[key][0]), min(high, theirs[key][1]))
            for key, (low, high) in ours.items()
            if key in theirs
        }
        rows = [*with_content(), *defaults(both)]
        send_all(kafka.address(0), rows)
        send_all(ottla.address(0), rows)
        names = {name for name, *_ in rows} | {"acks-0"}
        yield (
            lines_of(kafka.log(0), names), lines_of(ottla.log(0), names),
            names, ottla.log(0).read_text(),
        )  # fmt: skip


TIMES = {"totalTimeMs", "requestQueueTimeMs", "localTimeMs", "remoteTimeMs", "responseQueueTimeMs",
         "sendTimeMs"}  # fmt: skip
# Of responses: keys whose values each cluster has for itself, with the reason.
MASKED = {
    "clusterId": "each has its own",
    "port": "likewise",
    "topicId": "drawn by chance",
    "memberId": "likewise",
    "leader": "the id of a member",
    "logDir": "of each broker",
    "usableBytes": "what is free at the moment",
    "totalBytes": "likewise",
}
# Responses that are not the same, with the reason: of these the keys are compared.
OTHER_ANSWERS = {
    "ApiVersions": "ours does not serve what Kafka lists and refuses in this mode",
    "versions": "likewise",
    "create": "the settings of a topic come in another order",
    "ConsumerGroupHeartbeat": "refused with a message of ours",
    "producer-id": "Kafka has to fetch its first block of ids",
}


def differences(theirs, ours, *, values=True, path=""):
    """Yield where two values differ; `values`: not only in their keys and types."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in theirs.keys() | ours.keys():
            if key not in theirs or key not in ours:
                yield f"{path}.{key}: only {'Kafka' if key in theirs else 'ours'}"
            else:
                told = values and key not in MASKED
                yield from differences(theirs[key], ours[key], values=told, path=f"{path}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        if values and len(theirs) != len(ours):
            yield f"{path}: {len(theirs)} and {len(ours)}"
        for one, other in zip(theirs, ours, strict=False):
            yield from differences(one, other, values=values, path=f"{path}[]")
    else:
        alike = type(theirs) is type(ours) or theirs is None or ours is None
        if not alike or (values and theirs != ours):
            yield f"{path}: {theirs!r} and {ours!r}"


def test_requests_and_what_is_known_of_them_are_told_alike(logs):
    kafka, ours, names, _ = logs
    assert len(names) > 200
    wrong = []
    for name in sorted(names):
        theirs, mine = dict(kafka[name]), dict(ours[name])
        assert theirs.keys() == mine.keys(), name
        for key in (*TIMES, "response", "connection"):
            assert type(theirs.pop(key)) is type(mine.pop(key)), (name, key)
        for one in (theirs, mine):
            for secret in SECRET_FIELDS & one["request"].keys():
                one["request"][secret] = bool(one["request"][secret])
            for row in one["request"].get("upsertions", ()):
                assert row.pop("salt"), "Kafka tells it, we do not"
                assert row.pop("saltedPassword")
        wrong += [f"{name} {what}" for what in differences(theirs, mine)]
    assert not wrong, "\n".join(wrong)


def test_responses_are_told_alike(logs):
    kafka, ours, names, _ = logs
    wrong = []
    for name in sorted(names):
        api = name.split("-")[1] if name.startswith("default-") else name
        found = differences(
            kafka[name]["response"], ours[name]["response"], values=api not in OTHER_ANSWERS
        )
        wrong += [f"{name} {what}" for what in found]
    assert not wrong, "\n".join(wrong)
    assert ours["acks-0"]["response"] == ""


def test_a_connection_is_named_by_both_ends_and_its_number(logs):
    kafka, ours, _, _ = logs
    for found in (kafka, ours):
        assert re.fullmatch(r"127\.0\.0\.1:\d+-127\.0\.0\.1:\d+-\d+", found["fetch"]["connection"])


def test_no_secret_is_in_the_log(logs):
    *_, text = logs
    for secret in SECRETS:
        assert secret not in text
        assert base64.b64encode(secret.encode()).decode() not in text
    assert text.count('"value":"[hidden]"') == 4, (
        "a password and what nobody knows, of two requests"
    )
