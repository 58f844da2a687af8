"""Brokers of ours and of Kafka's in one SASL cluster: users, tokens and tools are shared."""

import json
import re

import pytest

from ottla.zookeeper.embedded import start_zookeeper
from support import kafka_tools
from support.cluster import free_ports
from support.command_line import ottla
from support.kafka_tools import CONFIGS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOPICS
from support.sasl_clusters import (
    BROKER,
    BROKER_PASSWORD,
    USERS,
    SaslKafka,
    SaslOttla,
    java_client,
    sasl_settings,
)
from support.waiting import until
from support.zookeeper_log import writes

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(500),
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
MECHANISM = "SCRAM-SHA-256"


class Mixed:
    def __init__(self, ours, kafkas, folder, jvm):
        self.ours, self.kafkas, self.folder, self.jvm = ours, kafkas, folder, jvm
        self.sides = {"ours": ours.sasl_bootstrap, "kafka": kafkas.sasl_bootstrap}
        self.brokers = {
            side: [cluster.sasl_address(b) for b in cluster.ids]
            for side, cluster in (("ours", ours), ("kafka", kafkas))
        }

    def call(self, tool, side, config, *arguments, ok=True, option="--command-config"):
        code, out = self.jvm.call(
            tool, "--bootstrap-server", self.sides[side], option, str(config), *arguments
        )
        assert (code == 0 and "Exception" not in out) is ok, out
        return out

    def may(self, side, name, password, mechanism=MECHANISM, **options):
        """Return whether every broker of a side lets somebody in: each hears of it by itself."""
        return all(self._asked(side, name, password, mechanism, options))

    def may_not(self, side, name, password, mechanism=MECHANISM, **options):
        """Return whether none does."""
        return not any(self._asked(side, name, password, mechanism, options))

    def _asked(self, side, name, password, mechanism, options):
        config = java_client(self.folder, mechanism, name, password, **options)
        for broker in self.brokers[side]:
            listed = ottla("topics", "list", "-b", broker, "--command-config", str(config))
            refused = "Authentication failed" in listed.stderr
            assert listed.returncode == 0 or refused, listed.stderr
            yield listed.returncode == 0


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Two brokers of ours, one of Kafka's, which authenticate by SCRAM among each other.

    The user of the brokers is written by Kafka's own tool, before there is a broker.
    """
    folder = tmp_path_factory.mktemp("mixed")
    port = free_ports(1)[0]
    zookeeper = start_zookeeper(folder / "zookeeper", port, heap_mb=256)
    address = f"127.0.0.1:{port}"
    settings = sasl_settings(MECHANISM) | {
        "delegation.token.secret.key": "token-key-of-tests",
        "delegation.token.expiry.check.interval.ms": "1000",
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": "3",
    }
    try:
        with kafka_tools.OneJvm() as jvm:
            code, out = jvm.call(
                CONFIGS, "--zookeeper", address, "--alter", "--entity-type", "users",
                "--entity-name", BROKER, "--add-config",
                f"{MECHANISM}=[iterations=4096,password={BROKER_PASSWORD}]",
            )  # fmt: skip
            assert code == 0, out
            with (
                SaslOttla(folder / "ours", 2, zookeeper=address, sasl=settings) as ours,
                SaslKafka(
                    folder / "kafka", ids=[7], zookeeper=address, sasl=settings, heap_mb=320
                ) as kafkas,
            ):
                yield Mixed(ours, kafkas, folder, jvm)
    finally:
        zookeeper.stop()


@pytest.fixture(scope="module")
def alice(mixed):
    """alice's client.properties; Kafka's tool made her, through our controller's broker."""
    admin = java_client(mixed.folder, MECHANISM, BROKER, BROKER_PASSWORD)
    for mechanism in (MECHANISM, "SCRAM-SHA-512"):
        mixed.call(CONFIGS, "ours", admin, "--alter", "--entity-type", "users", "--entity-name",
                   "alice", "--add-config",
                   f"{mechanism}=[iterations=8192,password={USERS['alice']}]")  # fmt: skip
    for side in mixed.sides:
        until(lambda side=side: mixed.may(side, "alice", USERS["alice"]), 60, f"alice at {side}")
    return java_client(mixed.folder, MECHANISM, "alice", USERS["alice"])


def test_users_made_by_either_authenticate_at_both(mixed, alice):
    put = ottla("users", "add", "bob", "--password-file", "-", "-b", mixed.sides["kafka"],
                "--command-config", str(alice), stdin="bobs-password")  # fmt: skip
    assert put.returncode == 0, put.stderr
    for side in mixed.sides:
        until(lambda side=side: mixed.may(side, "bob", "bobs-password"), 60, f"bob at {side}")
        assert mixed.may_not(side, "bob", "wrong")
        assert mixed.may_not(side, "nobody", "wrong")
    said = {
        side: mixed.call(CONFIGS, side, alice, "--describe", "--entity-type", "users")
        for side in mixed.sides
    }
    lines = {
        side: sorted(re.findall(r"^SCRAM.*", text, re.MULTILINE)) for side, text in said.items()
    }
    assert lines["ours"] == lines["kafka"]
    assert len(lines["ours"]) == 3, said
    mixed.call(CONFIGS, "kafka", alice, "--alter", "--entity-type", "users", "--entity-name",
               "bob", "--delete-config", MECHANISM)  # fmt: skip
    for side in mixed.sides:
        until(lambda side=side: mixed.may_not(side, "bob", "bobs-password"), 60, f"not at {side}")
        assert mixed.may(side, "bob", "bobs-password", "SCRAM-SHA-512")


def test_kafkas_console_tools_over_sasl(mixed, alice):
    create = ("--create", "--topic", "shared", "--partitions", "3", "--replication-factor", "3")
    mixed.call(TOPICS, "ours", alice, *create)
    sent = [f"value-{n}" for n in range(100)]
    kafka_tools.run(
        CONSOLE_PRODUCER, "--bootstrap-server", mixed.sides["ours"], "--topic", "shared",
        "--producer.config", str(alice), "--request-required-acks", "all",
        stdin="\n".join(sent) + "\n",
    )  # fmt: skip
    for side in mixed.sides:
        # A group that it names itself is one of 100,000: the second may go on from the first's.
        out = mixed.call(CONSOLE_CONSUMER, side, alice, "--topic", "shared", "--from-beginning",
                         "--group", f"console-{side}", "--max-messages", "100",
                         "--timeout-ms", "30000", option="--consumer.config")  # fmt: skip
        assert sorted(re.findall(r"value-\d+", out)) == sorted(sent)


def tokens(text):
    """Return (id, hmac) of the tokens that Kafka's tool printed."""
    return re.findall(r"^([\w-]{22})\s+(\S{88})\s", text, re.MULTILINE)


@pytest.mark.parametrize(("made_at", "used_at"), [("ours", "kafka"), ("kafka", "ours")])
def test_a_token_of_one_counts_at_the_other(mixed, alice, made_at, used_at):
    out = mixed.call(TOKENS, made_at, alice, "--create", "--max-life-time-period", "600000",
                     "--renewer-principal", "User:renewer")  # fmt: skip
    ((token_id, hmac),) = tokens(out)
    for side in (made_at, used_at):
        until(
            lambda side=side: mixed.may(side, token_id, hmac, tokenauth="true"),
            60, f"the token of {made_at} counts at {side}",
        )  # fmt: skip
        assert mixed.may_not(side, token_id, hmac[::-1], tokenauth="true")
        assert mixed.may_not(side, token_id, hmac)  # a token is no user
    with_token = java_client(mixed.folder, MECHANISM, token_id, hmac, tokenauth="true")
    refused = mixed.call(TOKENS, used_at, with_token, "--create", "--max-life-time-period", "-1",
                         ok=False)  # fmt: skip
    assert "Delegation Token requests are not allowed" in refused
    described = {
        side: tokens(
            mixed.call(TOKENS, side, alice, "--describe", "--owner-principal", "User:alice")
        )
        for side in mixed.sides
    }
    assert described["ours"] == described["kafka"]
    assert (token_id, hmac) in described["ours"]
    renewed = mixed.call(TOKENS, used_at, alice, "--renew", "--hmac", hmac,
                         "--renew-time-period", "300000")  # fmt: skip
    assert "Completed renew operation" in renewed
    expired = mixed.call(TOKENS, used_at, alice, "--expire", "--hmac", hmac,
                         "--expiry-time-period", "-1")  # fmt: skip
    assert "Completed expire operation" in expired
    for side in mixed.sides:
        until(
            lambda side=side: mixed.may_not(side, token_id, hmac, tokenauth="true"),
            60, f"the token counts no more at {side}",
        )  # fmt: skip
    again = mixed.call(TOKENS, used_at, alice, "--renew", "--hmac", hmac,
                       "--renew-time-period", "-1", ok=False)  # fmt: skip
    assert "Delegation Token is not found" in again


def test_expired_tokens_are_removed(mixed, alice):
    out = mixed.call(TOKENS, "ours", alice, "--create", "--max-life-time-period", "1500")
    ((token_id, _),) = tokens(out)

    def there():
        found = ottla("znode", "ls", "/delegation_token/tokens", "--zookeeper",
                      mixed.ours.zookeeper, "--output", "json")  # fmt: skip
        assert found.returncode == 0, found.stderr
        return token_id in {z["path"].rpartition("/")[2] for z in json.loads(found.stdout)}

    until(lambda: not there(), 60, "the controller removed the expired token")
    # It lives for a moment: it may be gone before anybody looks. ZooKeeper's own log has it.
    path = f"/delegation_token/tokens/{token_id}"
    written = [w.what for w in writes(mixed.folder / "zookeeper") if w.path == path]
    assert (written[0], written[-1]) == ("create", "delete")


def test_a_token_needs_an_authenticated_connection(mixed):
    plain = mixed.folder / "plaintext.properties"
    plain.write_text("security.protocol=PLAINTEXT\n")
    said = {}
    for side, cluster in (("ours", mixed.ours), ("kafka", mixed.kafkas)):
        code, said[side] = mixed.jvm.call(
            TOKENS, "--bootstrap-server", cluster.bootstrap, "--command-config", str(plain),
            "--create", "--max-life-time-period", "-1",
        )  # fmt: skip
        assert code != 0 or "Exception" in said[side]
        assert "Delegation Token requests are not allowed" in said[side]


def test_kill_of_brokers_in_the_mixed_cluster(mixed, alice):
    """Whoever is the controller, whoever leads: all three are in sync again."""

    def whole():
        found = ottla("topics", "describe", "shared", "-b", mixed.sides["kafka"],
                      "--command-config", str(alice), "--output", "json")  # fmt: skip
        return found.returncode == 0 and all(
            len(p["isr"]) == 3 and p["leader"] is not None
            for topic in json.loads(found.stdout)
            for p in topic["partitions"]
        )

    until(whole, 60, "all are in sync")
    mixed.ours.kill(0)
    until(lambda: not whole(), 30, "the death was noticed")
    mixed.ours.start_broker(0)
    until(whole, 90, "all are in sync after ours")
    mixed.kafkas.kill(7)
    # Kafka's does not start while its former session is there.
    until(lambda: 7 not in mixed.ours.known_to(1), 30, "Kafka's session ended")
    mixed.kafkas.start_broker(7)
    until(whole, 120, "all are in sync after Kafka's")
