"""Clusters with SASL: a mix-in for brokers of ours and of Kafka's, and what their clients need.

Each broker has a PLAINTEXT listener, by which a test sees when it has started, and one with SASL,
which brokers use among each other.
"""

import base64
import json
import time
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from support.cluster import BrokerProcesses, OttlaCluster, free_ports
from support.kafka39 import Kafka39Cluster

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
BROKER, BROKER_PASSWORD = "broker", "broker-secret"
USERS = {"alice": "alice-secret", "bob": "b,o=b secret"}
PREFIX = "listener.name.sasl_plaintext"


def plain_jaas(**more: str) -> str:
    """Return the users of PLAIN as a broker has them; `more`: names and passwords."""
    known = {BROKER: BROKER_PASSWORD, **USERS, **more}
    users = "".join(f' user_{n}="{p}"' for n, p in known.items())
    return f'{PLAIN} required username="{BROKER}" password="{BROKER_PASSWORD}"{users};'


def sasl_settings(between_brokers: str = "PLAIN", mechanisms: str = "") -> dict[str, str]:
    """Return the settings of a SASL listener with PLAIN and both SCRAMs (and more)."""
    scram = f'{SCRAM} required username="{BROKER}" password="{BROKER_PASSWORD}";'
    return {
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": between_brokers,
        "sasl.enabled.mechanisms": mechanisms or "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{PREFIX}.plain.sasl.jaas.config": plain_jaas(),
        f"{PREFIX}.scram-sha-256.sasl.jaas.config": scram,
        f"{PREFIX}.scram-sha-512.sasl.jaas.config": scram,
    }


class WithSasl(BrokerProcesses):
    """Two listeners for each broker; `sasl`: the settings of the second."""

    sasl: dict[str, str]

    def __init__(self, *arguments, sasl=None, **more):
        super().__init__(*arguments, **more)
        self.sasl = sasl_settings() if sasl is None else sasl
        self.sasl_ports = dict(zip(self.ids, free_ports(len(self.ids)), strict=True))

    def properties(self, broker: int) -> dict[str, str]:
        secured = f"SASL_PLAINTEXT://{self.sasl_address(broker)}"
        found = super().properties(broker)
        return {**found, "listeners": f"{found['listeners']},{secured}", **self.sasl}

    def sasl_address(self, broker: int) -> str:
        return f"{self.host(broker)}:{self.sasl_ports[broker]}"

    @property
    def sasl_bootstrap(self) -> str:
        return ",".join(map(self.sasl_address, self.ids))


class SaslOttla(WithSasl, OttlaCluster):
    pass


class SaslKafka(WithSasl, Kafka39Cluster):
    pass


def java_client(folder: Path, mechanism: str, name: str, password: str, **options: str) -> Path:
    """Write a client.properties and return its path."""
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    more = "".join(f' {k}="{v}"' for k, v in options.items())
    path = folder / f"client-{mechanism}-{abs(hash((name, password)))}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="{name}" password="{password}"{more};\n'
    )
    return path


class Issuer:
    """Signs tokens, and publishes its keys in a file."""

    def __init__(self, folder: Path) -> None:
        self.keys = {
            "rsa": (rsa.generate_private_key(public_exponent=65537, key_size=2048), "RS256"),
            "ec": (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        }
        self.path = folder / "jwks.json"
        self.path.write_text(json.dumps({"keys": [self.jwk(kid) for kid in self.keys]}))

    def jwk(self, kid: str) -> dict[str, object]:
        key, algorithm = self.keys[kid]
        make = jwt.algorithms.RSAAlgorithm if kid == "rsa" else jwt.algorithms.ECAlgorithm
        found = make.to_jwk(key.public_key(), as_dict=True)
        return {k: v for k, v in found.items() if k != "key_ops"} | {
            "kid": kid, "alg": algorithm, "use": "sig",
        }  # fmt: skip

    def token(self, kid: str = "rsa", **claims: object) -> str:
        now = time.time()
        said = {"sub": "alice", "iat": now, "exp": now + 600, "aud": "kafka", "iss": "tests"}
        key, algorithm = self.keys[kid]
        wanted = {k: v for k, v in (said | claims).items() if v is not None}
        return jwt.encode(wanted, key, algorithm, headers={"kid": kid})

    def settings(self) -> dict[str, str]:
        return {
            f"{PREFIX}.oauthbearer.sasl.jaas.config": f"{BEARER} required;",
            "sasl.oauthbearer.jwks.endpoint.url": self.path.as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.expected.issuer": "tests",
        }


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()
