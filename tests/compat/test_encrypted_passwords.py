"""Passwords of dynamic settings: a broker of each kind keeps them, and reads the other's.

Without a secret both refuse them in the same words. With it each serves the certificate whose
store the password opens; then what the two have in ZooKeeper is exchanged, and both start again.
"""

import json
import socket
import ssl

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from kazoo.client import KazooClient

from ottla.zookeeper.embedded import start_own_zookeeper
from support import kafka_tools
from support.certificates import Authority
from support.command_line import ottla
from support.secret_scan import Secrets, all_leaks
from support.secured import HOST, SecuredCluster, SecuredKafka
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]
OURS, JVM = 0, 10
PREFIX = "listener.name.clients.ssl.keystore"
SECRET, PASSWORD = "planted-encoder-secret", "planted-store-password"


def store(authority, broker):
    """Make another certificate of a broker; return its PKCS#12 file and its serial number."""
    made = authority.issue(f"again-{broker}", common_name=f"broker-{broker}")
    chain = x509.load_pem_x509_certificates(made.chain.read_bytes())
    key = load_pem_private_key(made.key.read_bytes(), None)
    path = authority.folder / f"again-{broker}.p12"
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"broker", key, chain[0], chain[1:], BestAvailableEncryption(PASSWORD.encode())
        )
    )
    return path, chain[0].serial_number


def served(authority, cluster, broker, client):
    """Return the serial number of the certificate that a broker shows to its clients."""
    context = ssl.create_default_context(cafile=str(authority.pem))
    context.load_cert_chain(client.chain, client.key)
    address = (HOST, cluster.tls.mtls_ports[broker])
    with (
        socket.create_connection(address, 10) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as connection,
    ):
        return x509.load_der_x509_certificate(connection.getpeercert(True)).serial_number


def alter(cluster, broker, settings):
    admin = AdminClient({"bootstrap.servers": cluster.address(broker), "log_level": 2})
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=entries)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(30)


def refusal(cluster, broker, settings):
    with pytest.raises(KafkaException) as found:
        alter(cluster, broker, settings)
    error = found.value.args[0]
    return error.code(), error.str().replace(f"'{broker}'", "'BROKER'")


def stored(zookeeper, broker):
    return json.loads(zookeeper.get(f"/config/brokers/{broker}")[0])["config"]


class Small(SecuredCluster):
    def start_zookeeper(self, port):
        return start_own_zookeeper(self.folder / "zookeeper", port)


def test_a_store_and_its_password_change_while_a_broker_runs(tmp_path):
    authority = Authority(tmp_path / "ca")
    alice = authority.issue("alice", common_name="alice")
    secret = {"password.encoder.secret": SECRET}
    with Small(tmp_path / "c", authority, 1, **secret) as cluster:
        path, number = store(authority, OURS)
        file = tmp_path / "settings.properties"
        file.write_text(
            f"{PREFIX}.type=PKCS12\n{PREFIX}.location={path}\n{PREFIX}.password={PASSWORD}\n"
        )
        at = ("-b", cluster.address(OURS))
        broker = ("--broker", str(OURS))
        done = ottla("configs", "alter", *broker, "--set-file", str(file), *at)
        assert done.returncode == 0, done.stderr
        until(
            lambda: served(authority, cluster, OURS, alice) == number,
            20,
            "the certificate of the new store is served",
        )
        for more in ((), ("--output", "json")):
            shown = ottla("configs", "describe", *broker, *more, *at)
            assert f"{PREFIX}.password" in shown.stdout
            assert PASSWORD not in done.stdout + done.stderr + shown.stdout + shown.stderr
        cluster.kill(OURS)
        cluster.start_broker(OURS)
        assert served(authority, cluster, OURS, alice) == number
        secrets = Secrets({"password": PASSWORD, "secret": SECRET})
        assert all_leaks(secrets, cluster.zookeeper, tmp_path, tmp_path.rglob("*.properties")) == []


@pytest.mark.java
@pytest.mark.alone
@pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or "")
def test_each_reads_what_the_other_encrypted(tmp_path):
    authority = Authority(tmp_path / "ca")
    alice = authority.issue("alice", common_name="alice")
    with (
        SecuredCluster(tmp_path / "ours", authority, 1) as ours,
        SecuredKafka(
            tmp_path / "kafka", authority, [JVM], zookeeper=ours.zookeeper, heap_mb=320
        ) as kafka,
    ):
        both = ((ours, OURS), (kafka, JVM))
        made = {broker: store(authority, broker) for _, broker in both}
        settings = {
            broker: {
                f"{PREFIX}.type": "PKCS12",
                f"{PREFIX}.location": str(path),
                f"{PREFIX}.password": PASSWORD,
            }
            for broker, (path, _) in made.items()
        }
        without = [refusal(cluster, b, settings[b]) for cluster, b in both]
        assert without[0] == without[1]
        assert "Password encoder secret not configured" in without[0][1]

        for cluster, broker in both:
            cluster.settings["password.encoder.secret"] = SECRET
            cluster.terminate(broker)
            cluster.start_broker(broker)
        secret_file = tmp_path / "settings.properties"
        secret_file.write_text("".join(f"{k}={v}\n" for k, v in settings[OURS].items()))
        done = ottla(
            "configs", "alter", "--broker", str(OURS), "--set-file", str(secret_file),
            "-b", ours.address(OURS),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout + done.stderr
        assert "(hidden)" in done.stdout
        alter(kafka, JVM, settings[JVM])

        def all_serve():
            return all(
                served(authority, cluster, broker, alice) == made[broker][1]
                for cluster, broker in both
            )

        until(all_serve, 30, "both serve the certificate of the new store")
        for cluster, broker in both:
            shown = ottla("configs", "describe", "--broker", str(broker), "-b",
                          cluster.address(broker))  # fmt: skip
            assert f"{PREFIX}.password" in shown.stdout
            assert PASSWORD not in shown.stdout + shown.stderr

        zookeeper = KazooClient(ours.zookeeper)
        zookeeper.start(20)
        try:
            texts = {b: stored(zookeeper, b)[f"{PREFIX}.password"] for _, b in both}
            assert all(text.count("salt:") == 1 for text in texts.values())
            for cluster, broker in both:
                cluster.terminate(broker)
            for _, broker in both:
                (other,) = set(texts) - {broker}
                config = stored(zookeeper, broker) | {f"{PREFIX}.password": texts[other]}
                data = json.dumps({"version": 1, "config": config}).encode()
                zookeeper.set(f"/config/brokers/{broker}", data)
        finally:
            zookeeper.stop()
            zookeeper.close()
        for cluster, broker in both:
            cluster.start_broker(broker)
        until(all_serve, 30, "both have read what the other encrypted")

        secrets = Secrets({"password": PASSWORD, "secret": SECRET})
        assert all_leaks(secrets, ours.zookeeper, tmp_path, tmp_path.rglob("*.properties")) == []
