"""A mixed cluster with all of it: SCRAM over TLS for clients and among brokers, and ACLs.

Brokers have a listener in the clear besides, by which a test sees that they have started. Who
comes by it is User:ANONYMOUS, who may do nothing.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla.model.errors import OttlaError
from ottla.security.client_properties import client_security
from ottla.wire.messages.cluster import MetadataRequest
from ottla.zookeeper.embedded import start_zookeeper
from support import kafka_tools
from support.certificates import Authority
from support.cluster import BrokerProcesses, OttlaCluster, free_ports
from support.kafka39 import LOG4J, Kafka39Cluster
from support.mixed import MixedCluster
from support.sasl_clusters import SCRAM
from support.seen import ask
from support.waiting import until

BROKER, OPERATOR = "broker", "operator"
LISTENER, MECHANISM, HOST = "SASL_SSL", "SCRAM-SHA-512", "127.0.0.1"
ITERATIONS = 4096
DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED
# Ours and Kafka's, each in its log.
DENIALS = re.compile(
    r"denied principal=User:(?P<ours>\S+) .*|Principal = User:(?P<theirs>\S+) is Denied .*"
)


def password_of(user: str) -> str:
    return f"{user}-secret"


class _Secured(BrokerProcesses):
    """Brokers that meet, and serve clients, by SASL_SSL, the users being ZooKeeper's."""

    def __init__(self, *arguments: Any, authority: Authority, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.authority = authority
        self.secure_ports = dict(zip(self.ids, free_ports(len(self.ids)), strict=True))
        self.identities = {b: authority.issue(f"broker-{b}") for b in self.ids}

    def secure_address(self, broker: int) -> str:
        return f"{HOST}:{self.secure_ports[broker]}"

    def properties(self, broker: int) -> dict[str, str]:
        found = super().properties(broker)
        own = f'username="{BROKER}" password="{password_of(BROKER)}"'
        prefix = f"listener.name.{LISTENER.lower()}.{MECHANISM.lower()}"
        return {
            **found,
            "listeners": f"{found['listeners']},{LISTENER}://{self.secure_address(broker)}",
            "inter.broker.listener.name": LISTENER,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "sasl.enabled.mechanisms": MECHANISM,
            f"{prefix}.sasl.jaas.config": f"{SCRAM} required {own};",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{BROKER};User:{OPERATOR}",
            **self.authority.server(self.identities[broker]),
        }


class SecuredOttla(_Secured, OttlaCluster):
    """Brokers of ours."""


class SecuredKafka(_Secured, Kafka39Cluster):
    """Kafka's, which log whom they deny something."""

    log4j = f"{LOG4J}log4j.logger.kafka.authorizer.logger=INFO\n"


class SecuredMixed(MixedCluster):
    """Brokers of both kinds. Users have the password that `password_of` says."""

    def __init__(self, folder: Path, ours: int, theirs: int, **more: str) -> None:
        self.authority = Authority(folder / "certificates")
        kinds = tuple(partial(k, authority=self.authority) for k in (SecuredOttla, SecuredKafka))
        super().__init__(folder, ours, theirs, kinds=kinds, **more)
        self._where = folder

    def __enter__(self) -> Self:
        """Start ZooKeeper, have Kafka's tool write the first users, start the brokers."""
        port = free_ports(1)[0]
        self._zookeeper = start_zookeeper(self._where / "zookeeper", port, heap_mb=256)
        try:
            address = self.ours.zookeeper = f"{HOST}:{port}"
            with kafka_tools.OneJvm() as jvm:
                for user in (BROKER, OPERATOR):
                    credential = f"[iterations={ITERATIONS},password={password_of(user)}]"
                    code, said = jvm.call(
                        kafka_tools.CONFIGS, "--zookeeper", address, "--alter",
                        "--entity-type", "users", "--entity-name", user,
                        "--add-config", f"{MECHANISM}={credential}",
                    )  # fmt: skip
                    assert code == 0, said
            super().__enter__()
        except BaseException:
            self._zookeeper.stop()
            raise
        self.admin = AdminClient(self.client(OPERATOR))
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._zookeeper.stop()

    def secure_bootstrap(self, *brokers: int) -> str:
        """Return the addresses of some, or of all."""
        return ",".join(self.kind(b).secure_address(b) for b in brokers or self.ids)

    def security(self, user: str) -> dict[str, Any]:
        """Return librdkafka's settings for a user, without addresses."""
        return {
            "security.protocol": LISTENER,
            "ssl.ca.location": str(self.authority.pem),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password_of(user),
        }

    def client(self, user: str, *brokers: int) -> dict[str, Any]:
        """Return librdkafka's settings for a user who knows some brokers, or all."""
        known = self.secure_bootstrap(*brokers)
        return {"bootstrap.servers": known, "log_level": 0, **self.security(user)}

    def kafka_python(self, user: str) -> dict[str, Any]:
        """Return the same for kafka-python, without addresses."""
        return {
            "security_protocol": LISTENER,
            "ssl_cafile": str(self.authority.pem),
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": user,
            "sasl_plain_password": password_of(user),
        }

    def add_users(self, topic: str, operations: Mapping[str, AclOperation | None]) -> None:
        """Make users, each with one operation on a topic or none; wait until all brokers know."""
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
        made = self.admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(user, credential, password_of(user).encode())
                for user in operations
            ]
        )
        bindings = [
            AclBinding(
                ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*",
                operation, AclPermissionType.ALLOW,
            )
            for user, operation in operations.items() if operation is not None
        ]  # fmt: skip
        for future in (*made.values(), *self.admin.create_acls(bindings).values()):
            future.result(30)
        for user, operation in operations.items():
            wanted = DENIED if operation is None else 0
            for broker in self.ids:
                until(
                    lambda u=user, b=broker, w=wanted: self.told_of(topic, u, b) == w,
                    30,
                    f"broker {broker} gives {user} {wanted}",
                    despite=(OSError, OttlaError),
                )

    def told_of(self, topic: str, user: str, broker: int) -> int:
        """Return the error that one broker's Metadata has of a topic for a user, 0 for none."""
        named = MetadataRequest.MetadataRequestTopic(name=topic)
        request = MetadataRequest(topics=[named], allow_auto_topic_creation=False)
        address = self.kind(broker).secure_address(broker)
        security = client_security(
            {
                "security.protocol": LISTENER,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority.pem),
                "sasl.mechanism": MECHANISM,
                "sasl.jaas.config": f'{SCRAM} required username="{user}" '
                f'password="{password_of(user)}";',
            }
        )
        return ask(address, request, 9, security).topics[0].error_code

    def refused_write(self, topic: str, user: str, partition: int) -> int | None:
        """Return the error of a write by a user to a partition's leader.

        By a producer of its own: one refused write has librdkafka fail all others of the topic.
        """
        found: list[KafkaError | None] = []
        producer = Producer(self.client(user) | {"acks": "all", "message.timeout.ms": 20_000})
        producer.produce(
            topic, b"0", partition=partition, on_delivery=lambda error, _: found.append(error)
        )
        assert producer.flush(30) == 0
        return found[0].code() if found[0] else None

    def denials(self) -> list[tuple[str, str]]:
        """Return who was denied something since the start, with the line of the broker's log."""
        return [
            (match["ours"] or match["theirs"], match.group())
            for kind in (self.ours, self.theirs)
            for path in sorted(kind.folder.glob("broker-*.out"))
            for match in DENIALS.finditer(path.read_text(errors="replace"))
        ]
