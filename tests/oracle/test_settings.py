"""What Kafka 3.9.1 makes of settings, and what we make of them: taken or refused, and the values.

A slice runs with all tests; `OTTLA_SETTINGS=all scripts/run pytest tests/oracle/test_settings.py`
compares everything. Each difference that is meant is in `DIFFERENT`, and in docs/COMPATIBILITY.md.
"""

import logging
import os
import random

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from oracle import settings_cases as cases
from ottla.broker.configs.config_entries import DYNAMIC_KEYS
from ottla.broker.configs.dynamic_configs import (
    CLEANER_THREADS,
    THREAD_COUNTS,
    UNSERVED,
    DynamicConfigs,
)
from ottla.broker.configs.unsupported_configs import CLASSES, refuse_unsupported_configs
from ottla.broker.process import load_config
from ottla.model.config import BrokerConfig
from ottla.model.config_keys import protocol_version
from ottla.model.errors import OttlaError
from ottla.model.properties import as_properties, load_properties
from ottla.security.sasl.settings import sasl_listeners
from support import kafka_tools
from support.kafka39 import Kafka39Cluster

ALL = os.environ.get("OTTLA_SETTINGS") == "all"
SEED = 20261128
pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]

LISTENERS_MECHANISMS = "listener.name.sasl_plaintext.sasl.enabled.mechanisms"

# Kept and never obeyed, or invalid with another setting that Kafka compares at the next start only.
DYNAMICALLY_REFUSED = {
    *UNSERVED,
    *THREAD_COUNTS,
    CLEANER_THREADS,
    "log.flush.interval.ms",
    "log.cleaner.min.compaction.lag.ms",
}

LOCAL_RETENTION = {"log.local.retention.ms", "log.local.retention.bytes"}

# Kafka takes these and we do not, with the reason; never the other way round.
DIFFERENT = {
    "inter.broker.protocol.version": (
        lambda s: not (2, 7) <= protocol_version(s["inter.broker.protocol.version"]) < (4,),
        "below 2.7 leaders write the ISR past the controller; 4.0 is not released",
    ),
    "replica.selector.class": (
        lambda s: s["replica.selector.class"] not in CLASSES["replica.selector.class"][0],
        "a Java class; Kafka looks for it when the broker starts",
    ),
    "log.dir": (lambda s: s["log.dir"] == "/a,/a", "Kafka refuses the folders when it starts"),
    "log.dirs": (lambda s: s["log.dirs"] == "/a,/a", "Kafka refuses the folders when it starts"),
    "max.connections": (
        lambda s: int(s["max.connections"]) == 0,
        "nobody could connect; Kafka refuses it dynamically only",
    ),
    "max.connection.creation.rate": (
        lambda s: int(s["max.connection.creation.rate"]) == 0,
        "nobody could connect; Kafka refuses it dynamically only",
    ),
    "max.connections.per.ip": (
        lambda s: int(s["max.connections.per.ip"]) == 0,
        "nobody could connect, for max.connections.per.ip.overrides has no effect",
    ),
    "zookeeper.connect": (
        lambda s: not s["zookeeper.connect"].strip(),
        "Kafka fails when it connects",
    ),
    "sasl.enabled.mechanisms": (
        lambda s: s["sasl.enabled.mechanisms"] in ("", "GSSAPI", "GSSAPI,PLAIN"),
        "Kerberos is not served; without a mechanism nobody could connect",
    ),
    LISTENERS_MECHANISMS: (
        lambda s: s[LISTENERS_MECHANISMS] in ("", "GSSAPI", "GSSAPI,PLAIN"),
        "Kerberos is not served; without a mechanism nobody could connect",
    ),
}


def sample(rng, found, count):
    found = list(found)
    return found if ALL else rng.sample(found, min(count, len(found)))


def judge_ours(make):
    """Return {"values": what `make` returns} or {"error": the line}; all else is a failure."""
    try:
        return {"values": make()}
    except OttlaError as error:
        return {"error": str(error)}


def meant(settings):
    return any(key in settings and applies(settings) for key, (applies, _) in DIFFERENT.items())


def differences(judged, kafkas, ours):
    """Yield (settings, Kafka's word, ours) where the one takes what the other refuses."""
    for settings, theirs, own in zip(judged, kafkas, ours, strict=True):
        assert "\n" not in own.get("error", "")
        if "error" in theirs and "error" not in own:
            yield settings, theirs["error"], "taken"
        elif "error" in own and "error" not in theirs and not meant(settings):
            yield settings, "taken", own["error"]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "server.properties"


@pytest.fixture(autouse=True)
def _no_warnings(caplog):
    caplog.set_level(logging.CRITICAL)


def test_a_broker_starts_with_what_kafka_starts_with(file):
    rng = random.Random(SEED)
    chosen = [*sample(rng, cases.singles(rng), 900), *sample(rng, cases.pairs(), 500)]
    files = [cases.written(settings) for settings in chosen]
    kafkas = cases.judged("broker", files)

    def started():
        config = load_config(str(file), ())
        refuse_unsupported_configs(config)
        sasl_listeners(config)
        return config

    ours = []
    for data in files:
        file.write_bytes(data)
        ours.append(judge_ours(started))
    assert list(differences(chosen, kafkas, ours)) == []
    other = [
        (settings, name, value, config[name])
        for settings, theirs, own in zip(chosen, kafkas, ours, strict=True)
        if (config := own.get("values")) is not None and "values" in theirs
        for name, value in theirs["values"].items()
        if name in settings and name in cases.broker_keys() and not same(config[name], value)
    ]
    assert other == []


def same(mine, kafkas):
    if isinstance(mine, float):
        return mine == float(kafkas) or kafkas == "NaN" != mine
    return mine == kafkas


def dynamic_cases(rng):
    for settings in [*cases.singles(rng), *cases.pairs(), *cases.local_retention()]:
        changed = {k: v for k, v in settings.items() if cases.BASE.get(k) != v}
        if changed:
            yield changed


def dynamic_differences(chosen, kafkas, *, per_broker):
    dynamic = DynamicConfigs(BrokerConfig(dict(cases.BASE)), lambda _: None)
    ours = [judge_ours(lambda s=s: dynamic.check(s, per_broker=per_broker)) for s in chosen]
    found = differences(chosen, kafkas, ours)
    return [row for row in found if row[2] == "taken" or not DYNAMICALLY_REFUSED & row[0].keys()]


@pytest.mark.parametrize("per_broker", [True, False])
def test_a_setting_is_altered_if_kafka_alters_it(per_broker):
    """Without what Kafka's parts of a running broker say, which the next test asks."""
    rng = random.Random(SEED)
    chosen = [
        settings
        for settings in sample(rng, dynamic_cases(rng), 600)
        if not settings.keys() & LOCAL_RETENTION
    ]
    kind = "dynamic-own" if per_broker else "dynamic"
    kafkas = cases.judged(kind, [cases.written(settings) for settings in chosen])
    assert dynamic_differences(chosen, kafkas, per_broker=per_broker) == []


@pytest.mark.skipif(not ALL, reason="by command: OTTLA_SETTINGS=all")
def test_a_setting_is_altered_if_a_running_kafka_alters_it(tmp_path):
    chosen = [
        settings
        for settings in dynamic_cases(random.Random(SEED))
        if settings.keys() <= DYNAMIC_KEYS
    ]
    with Kafka39Cluster(tmp_path, 1) as cluster:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{cluster.ports[0]}"})

        def asked(settings):
            entries = [
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                for key, value in settings.items()
            ]
            own = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=entries)
            error = admin.incremental_alter_configs([own], validate_only=True)[own].exception(20)
            return {} if error is None else {"error": str(error)}

        kafkas = [asked(settings) for settings in chosen]
    assert len([answer for answer in kafkas if not answer]) > 200
    assert dynamic_differences(chosen, kafkas, per_broker=True) == []


def test_a_topic_has_the_settings_that_kafkas_may_have():
    rng = random.Random(SEED)
    chosen = sample(rng, cases.topic_cases(rng), 500)
    kafkas = cases.judged("topic", [cases.written(settings) for settings in chosen])
    broker = BrokerConfig(dict(cases.BASE))
    ours = [judge_ours(lambda s=s: broker.checked_topic_config(s)) for s in chosen]
    assert list(differences(chosen, kafkas, ours)) == []


def test_files_are_read_as_java_reads_them():
    rng = random.Random(SEED)
    files = [cases.random_file(rng) for _ in range(20_000 if ALL else 1000)]
    kafkas = cases.judged("file", files)
    ours = [judge_ours(lambda data=data: load_properties(data)) for data in files]
    different = [
        (data, theirs, own)
        for data, theirs, own in zip(files, kafkas, ours, strict=True)
        if theirs.get("values") != own.get("values") or ("error" in theirs) != ("error" in own)
    ]
    assert different == []


def test_java_reads_the_lines_that_we_write():
    rng = random.Random(SEED)
    settings = [(cases.random_text(rng), cases.random_text(rng)) for _ in range(300)]
    settings = [(key, value) for key, value in settings if key]
    read = cases.judged("file", [as_properties(dict([pair])).encode("ascii") for pair in settings])
    assert read == [{"values": {key: value}} for key, value in settings]
