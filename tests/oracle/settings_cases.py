# ruff: noqa: E501 - tables of values
"""Settings to compare: boundary and random values of every key, pairs that Kafka compares, files.

Shared by test_settings.py. A case is a dict of a properties file's settings; `written` makes the
file, and `judged` has Kafka's own classes read many of them in one JVM.
"""

import base64
import itertools
import json
import re
import subprocess
from pathlib import Path

from ottla.model.config_keys import broker_keys, topic_keys
from support import kafka_tools

PROGRAM = Path(__file__).parents[1] / "support" / "ConfigJudge.java"
BASE = {
    "broker.id": "0",
    "zookeeper.connect": "127.0.0.1:1",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
}
ODD = (
    "", " ", "x", "-1", "0", "1", "true", "FALSE", " true ", "null", "1,2", "0x10", "1e3", "1_0",
    "+5", "007", "9" * 30, "\uff12", "\xa05", "\x1f5\x0b", "1.0", "-0", "5L", "NaN", "1e999",
)  # fmt: skip
EDGES = {"short": 2**15, "int": 2**31, "long": 2**63}


def _numbers(kind, limits, rng):
    edge = EDGES.get(kind, 2**31)
    near = {0, 1, edge - 1, -edge, edge, -edge - 1}
    for bound in re.findall(r"-?\d+", limits):
        near.add(int(bound or 0))
    wanted = {str(n + d) for n in near for d in (-1, 0, 1)}
    wanted |= {str(rng.randrange(-edge, edge)) for _ in range(2)} | {str(rng.randrange(100000))}
    if kind == "double":
        wanted |= {
            "0.5",
            "1.5",
            "-0.5",
            ".5",
            "5.",
            "1e3",
            "1d",
            "1f",
            "0x1p3",
            "1e-400",
            "Infinity",
        }
    return sorted(wanted)


def _members(name, limits):
    for choice in [] if ".." in limits else limits.split(","):
        yield from (choice, f" {choice} ", choice.lower(), choice.upper(), f"{choice},{choice}",
                    f"{choice},", f"{choice} , x", f"x{choice}")  # fmt: skip
    yield from ("a", "a,a", "a,,b", ",", " a , b ", "*", "0:1", "0:1,0:1", "0:x", "0:1,*", "a:b",
                "0:1:2", ":", "TLSv1.2", "SCRAM-SHA-256", "GSSAPI")  # fmt: skip


def values_of(name, key, rng):
    """Return values for a key: boundaries, members, and what is wrong for every type."""
    found = list(ODD)
    if key.type in (*EDGES, "double"):
        found += _numbers(key.type, key.limits, rng)
    elif key.type == "list" or key.limits:
        found += _members(name, key.limits)
    if key.default:
        found += [key.default, f"  {key.default}\t", f"{key.default}x"]
    return list(dict.fromkeys([*found, *SPECIAL.get(name, ())]))


VERSIONS = (
    "0.7", "0.8.0", "0.8", "0.9.0.1", "0.10", "0.10.0", "0.10.2-IV0", "0.11.0", "1.0", "1", "2.0",
    "2.0-IV1", "2.0-IV9", "2.1", "2.7", "2.8", "3.0", "3.0-IV1", "3.9", "3.9-IV0", "3.9-IV1", "3.9.1",
    "3.9.1-IV0", "4.0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.1", "9.9", "3.9-", "3.9-iv0", "3.9.x",
    "2.7.0-IV2", "2.7-IV9.9", "0.10.0.1", "0.8.2.2", "0.10.3", "3.3-IV4", "2.0.0-IV0.x",
)  # fmt: skip
MAPS = (
    "", "A:PLAINTEXT", "A:PLAINTEXT,PLAINTEXT:PLAINTEXT", "PLAINTEXT:PLAINTEXT,A", "PLAINTEXT",
    "PLAINTEXT:TLS", "PLAINTEXT:plaintext", "plaintext:PLAINTEXT", "PLAINTEXT : PLAINTEXT , B : SSL",
    "PLAINTEXT:PLAINTEXT,", ",PLAINTEXT:PLAINTEXT", "PLAINTEXT:PLAINTEXT,B:", "PLAINTEXT:PLAINTEXT,:SSL",
    "PLAINTEXT:PLAINTEXT,PLAINTEXT:SSL", "PLAINTEXT:PLAINTEXT,B:X:SSL", "PLAINTEXT:PLAINTEXT;B:SSL",
    "PLAINTEXT:SSL,PLAINTEXT:PLAINTEXT", "PLAINTEXT:PLAINTEXT,,B:SSL",
)  # fmt: skip
ADDRESSES = (
    "", " ", ",", "PLAINTEXT://:9092", "PLAINTEXT://", "PLAINTEXT://h", "PLAINTEXT://h:", "h:9092",
    "PLAINTEXT://h:0", "PLAINTEXT://h:65535", "plaintext://h:1", "PLAINTEXT://0.0.0.0:9092",
    "PLAINTEXT://[::]:9092", "PLAINTEXT://[::1]:9092", "PLAINTEXT://::1:9092", "PLAINTEXT://h_x:9092",
    "PLAINTEXT://h x:9092", "PLAINTEXT://h:9092,PLAINTEXT://h:9093", "PLAINTEXT://h:9092,",
    "PLAINTEXT://h:9092,SSL://h:9092", "PLAINTEXT://h:9092 , SSL://h:9093", ",PLAINTEXT://h:9092",
    "PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092", "PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.2:9092",
    "FOO://h:9092", "PLAINTEXT://h:9092/x", "PLAINTEXT:/h:9092", "PLAINTEXT://h:x", "://h:1",
    "PLAINTEXT://ü:1", "PLAINTEXT://h:9092,SSL://:9093", "PLAINTEXT://a:1:2",
    "PLAINTEXT://h:9092,,SSL://h:9093", "PLAINTEXT://*:9092", "PLAINTEXT://h%1:9092",
    "PLAINTEXT://h:9092,SSL://0.0.0.0:9093", "PLAINTEXT://h:99999999999", "SSL://h:9093",
)  # fmt: skip
SPECIAL = {
    "message.format.version": VERSIONS,
    "log.message.format.version": VERSIONS,
    "inter.broker.protocol.version": VERSIONS,
    "listener.security.protocol.map": MAPS,
    "listeners": ADDRESSES,
    "advertised.listeners": ADDRESSES,
    "max.connections.per.ip.overrides": (
        "a:1", "a:0", "a:-1", "a:x", "a", "a:1,b:2", " a : 1 , b : 2 ", "127.0.0.1:5", "::1:5", "a b:1",
        "a:1,", ":1", "a!:1", "[::1]:2", "a:99999999999", "a:1,a:2", "h_1:3", "h:+3",
    ),
    "log.dirs": ("/a,/a", "/a,/b", "/a,", " /a , /b ", "/a,/a/", "relative"),
    "log.dir": ("/a,/a", "/a,/b"),
    "metrics.recording.level": ("INFO", "DEBUG", "TRACE", "info", "WARN"),
    "ssl.principal.mapping.rules": ("RULE:^CN=(.*?)$/$1/", "RULE:^CN=(.*?)$/$1/L,DEFAULT", "RULE:x"),
    "sasl.kerberos.principal.to.local.rules": ("RULE:[1:$1]", "RULE:x"),
    "ssl.endpoint.identification.algorithm": ("HTTPS", "https", "none"),
    "sasl.mechanism.inter.broker.protocol": ("PLAIN", "SCRAM-SHA-512"),
    "zookeeper.connect": ("a:1", "a:1,b:2/c", "a", "a:b", "a:1/", "a:1//b", "/c", "a:1/c/../d"),
    "broker.id": ("1000", "1001", "-2", "2147483647"),
    "offsets.topic.compression.codec": ("2", "3", "4", "5", "6"),
    "offsets.commit.required.acks": ("-2", "2", "3", "4"),
    "log.retention.hours": ("-2", "2562047788015", "2147483647"),
    "inter.broker.listener.name": ("PLAINTEXT", "plaintext", "SSL"),
    "control.plane.listener.name": ("PLAINTEXT", "SSL"),
}  # fmt: skip


def singles(rng):
    for name, key in broker_keys().items():
        for value in values_of(name, key, rng):
            yield {**BASE, name: value}


def topic_cases(rng):
    for name, key in topic_keys().items():
        for value in values_of(name, key, rng):
            yield {name: value}
    lags = ("0", "1", "9", "10", "11", "9223372036854775807")
    for low, high in itertools.product(lags, lags):
        yield {"min.compaction.lag.ms": low, "max.compaction.lag.ms": high}
    for kept in ("-2", "-1", "0", "5", "10", "11"):
        for own in ("-2", "-1", "0", "10", "11"):
            for unit in ("ms", "bytes"):
                yield {f"retention.{unit}": own, f"local.retention.{unit}": kept}
                yield {
                    f"retention.{unit}": own,
                    f"local.retention.{unit}": kept,
                    "remote.storage.enable": "true",
                }
    for policy in ("compact", "delete", "compact,delete"):
        yield {"remote.storage.enable": "true", "cleanup.policy": policy}
    for flag in (
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    ):
        yield {flag: "true"}
        yield {flag: "false"}
    yield {"unknown.key": "1"}
    yield {"max.message.bytes": "10", "segment.bytes": "14"}


GRID = {
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"): ("-1", "0", "499", "500", "501", "40000"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"): ("-1", "0", "499", "500", "501", "40000"),
    ("queued.max.request.bytes", "socket.request.max.bytes"): (
        "-1", "0", "1", "999", "1000", "1001", "67108864", "104857600", "104857599",
    ),
    ("connection.failed.authentication.delay.ms", "connections.max.idle.ms"): (
        "-2", "-1", "0", "99", "100", "101", "600000", "600001",
    ),
    ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"): (
        "0", "1", "2", "64", "127", "128", "129", "1048576", "1048577", "2097153", "2097154", "134217728",
    ),
    ("offsets.commit.required.acks", "offsets.topic.replication.factor"): ("-2", "-1", "0", "1", "3", "4"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"): ("0", "1", "10", "11"),
    ("log.retention.ms", "log.retention.minutes"): ("-2", "-1", "0", "1"),
    ("log.retention.minutes", "log.retention.hours"): ("-2", "-1", "0", "1", "2147483647"),
    ("log.roll.ms", "log.roll.hours"): ("-1", "0", "1"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"): ("-1", "0", "1"),
    ("log.segment.bytes", "message.max.bytes"): ("0", "14", "100", "1048588"),
    ("broker.id", "reserved.broker.max.id"): ("-2", "-1", "0", "1", "1000", "1001"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"): ("-1", "0", "10", "11"),
    ("zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms"): ("-1", "0", "1"),
    ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"): ("-1", "0", "5", "6"),
    ("transaction.state.log.min.isr", "transaction.state.log.replication.factor"): ("1", "2", "3"),
    ("min.insync.replicas", "default.replication.factor"): ("0", "1", "2"),
    ("delegation.token.max.lifetime.ms", "delegation.token.expiry.time.ms"): ("1", "2"),
    ("inter.broker.protocol.version", "log.message.format.version"): (
        "0.9.0", "0.10.0", "0.11.0", "2.0", "2.7", "3.0", "3.9", "4.0",
    ),
    ("inter.broker.protocol.version", "offsets.topic.compression.codec"): ("2.0", "2.7", "3.9", "4", "0"),
    ("listeners", "advertised.listeners"): ADDRESSES,
    ("node.id", "broker.id"): ("-1", "0", "1", "x", "1001"),
}  # fmt: skip


def pairs():
    for (one, other), values in GRID.items():
        for left, right in itertools.product(values, values):
            yield {**BASE, one: left, other: right}
    for on in ("true", "false"):
        for number in ("-2", "-1", "0", "1000", "1001", "2147483647"):
            yield {**BASE, "broker.id": number, "broker.id.generation.enable": on}
            yield {**without("broker.id"), "node.id": number, "broker.id.generation.enable": on}
        yield {**without("broker.id"), "broker.id.generation.enable": on}
    for overrides in ("", "a:1", "127.0.0.1:0"):
        yield {**BASE, "max.connections.per.ip": "0", "max.connections.per.ip.overrides": overrides}
    two = "PLAINTEXT://h:9092,SASL_PLAINTEXT://h:9093,IN://h:9094"
    for text in MAPS:
        for name in ("PLAINTEXT", "A", "b", ""):
            yield {
                **BASE,
                "listener.security.protocol.map": text,
                "inter.broker.listener.name": name,
            }
            yield {**BASE, "listener.security.protocol.map": text, "listeners": "A://h:1,PLAINTEXT://h:2",
                   "inter.broker.listener.name": name}  # fmt: skip
    for name, control in itertools.product(("", "IN", "in", "PLAINTEXT", "NONE"), repeat=2):
        yield {
            **BASE,
            "listeners": two,
            "listener.security.protocol.map": "IN:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "SASL_PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": name,
            "control.plane.listener.name": control,
        }
    for protocol in ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "", "plaintext"):
        for mechanism, enabled in itertools.product(
            ("PLAIN", "GSSAPI", ""), ("PLAIN", "GSSAPI,PLAIN", "")
        ):
            yield {
                **BASE,
                "listeners": two.replace(",IN://h:9094", ""),
                "security.inter.broker.protocol": protocol,
                "sasl.mechanism.inter.broker.protocol": mechanism,
                "sasl.enabled.mechanisms": enabled,
                **JAAS,
            }
            yield {
                **BASE,
                **JAAS,
                "listeners": two.replace(",IN://h:9094", ""),
                "security.inter.broker.protocol": protocol,
                "sasl.mechanism.inter.broker.protocol": mechanism,
                "listener.name.sasl_plaintext.sasl.enabled.mechanisms": enabled,
            }
    yield {
        **BASE,
        "security.inter.broker.protocol": "PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    yield {**BASE, "controller.listener.names": "X"}
    yield {**BASE, "controller.listener.names": ""}
    yield without("zookeeper.connect")
    yield without("listeners")
    yield {**without("listeners"), "advertised.listeners": "PLAINTEXT://h:1"}
    yield {**without("listeners"), "port": "9999", "host.name": "h"}


def local_retention():
    for kept in ("-1", "1", "10", "100"):
        for own in ("-2", "-1", "0", "10", "11", "200"):
            for unit in ("ms", "bytes"):
                yield {f"log.retention.{unit}": kept, f"log.local.retention.{unit}": own}


FILE_PARTS = (
    "a", "b", "key", "=", ":", " ", "\t", "\f", "\\", "\n", "\r", "\r\n", "#", "!", "\\u00e9",
    "\\u00E", "\\ud83d\\ude00", "\\u", "\x85", "\x0b", "\x1c", "\xa0", "\xe9", "\\n", "\\\n  ", "\0",
    "\\:", "\\ ", "\\\\", "${file:a:b}", "\\\r\n", " = ", "\x1a",
)  # fmt: skip


def random_file(rng):
    """Return the bytes of a properties file that is hard to read."""
    parts = rng.choices(FILE_PARTS, k=rng.randrange(1, 25))
    return "".join(parts).encode("iso-8859-1")


def random_text(rng):
    return "".join(rng.choices("ab =:#!\\\n\r\t\f\x0b\x85é€😀'\"", k=rng.randrange(8)))


JAAS = {
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="b" password="p" user_b="p";'
    )
}


def without(name):
    return {key: value for key, value in BASE.items() if key != name}


def written(settings):
    """Return a properties file of these settings, in ASCII."""

    def escaped(text, first):
        units = text.encode("utf-16-be", "surrogatepass")
        out = "".join(
            c if c.isalnum() and c.isascii() else f"\\u{ord(c):04x}"
            for c in (chr(int.from_bytes(units[i : i + 2], "big")) for i in range(0, len(units), 2))
        )
        return out or first

    return "".join(f"{escaped(k, '')}={escaped(v, '')}\n" for k, v in settings.items()).encode()


def judged(kind, files):
    """Return what Kafka makes of properties files: {"values": {...}} or {"error": text} each."""
    lines = "".join(f"{kind}\t{base64.b64encode(data).decode()}\n" for data in files)
    done = subprocess.run(
        kafka_tools.command(str(PROGRAM)),
        input=lines, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(files), done.stderr[-2000:]
    return answers
