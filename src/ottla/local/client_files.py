"""Files of client settings: how Java, librdkafka and Python connect to a secured cluster.

Invariants: each file is whole (addresses, CA, user, password) and works as it is; it is the owner's
alone.
"""

from collections.abc import Iterator
from pathlib import Path

from ottla.local.folders import replace_file
from ottla.model.properties import as_properties

HEAD = "# Written by `ottla up --secure` for user {user}. It has a password: keep it to yourself."
PROPERTIES, LIBRDKAFKA, PYTHON = ".properties", ".librdkafka.properties", ".py"
MECHANISM = "SCRAM-SHA-512"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PYTHON = """{head}
\"\"\"How Python programs connect as {user}.

    Producer(CONFLUENT_KAFKA), KafkaProducer(**KAFKA_PYTHON), AIOKafkaProducer(**AIOKAFKA)
\"\"\"

import ssl

SERVERS = {servers!r}
USER, PASSWORD = {user!r}, {password!r}
CA = {ca!r}

CONFLUENT_KAFKA = {{
    "bootstrap.servers": ",".join(SERVERS),
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "{mechanism}",
    "sasl.username": USER,
    "sasl.password": PASSWORD,
    "ssl.ca.location": CA,
}}
AIOKAFKA = {{
    "bootstrap_servers": SERVERS,
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "{mechanism}",
    "sasl_plain_username": USER,
    "sasl_plain_password": PASSWORD,
    "ssl_context": ssl.create_default_context(cafile=CA),
}}
KAFKA_PYTHON = AIOKAFKA
"""


def jaas_text(user: str, password: str) -> str:
    """Return the login module of a SCRAM user, as `sasl.jaas.config` has it."""
    quoted = (text.replace("\\", r"\\").replace('"', r"\"") for text in (user, password))
    return '{} required username="{}" password="{}";'.format(MODULE, *quoted)


def write(folder: Path, user: str, password: str, servers: str, ca: Path) -> None:
    """Write a user's files; `servers` are the brokers' addresses."""
    folder.mkdir(mode=0o700, exist_ok=True)
    head = HEAD.format(user=user)
    java = as_properties(
        {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": jaas_text(user, password),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(ca),
        }
    ).splitlines()
    librdkafka = (
        f"bootstrap.servers={servers}",
        "security.protocol=SASL_SSL",
        f"sasl.mechanism={MECHANISM}",
        f"sasl.username={user}",
        f"sasl.password={password}",
        f"ssl.ca.location={ca}",
    )
    python = _PYTHON.format(
        head=head,
        user=user,
        password=password,
        servers=servers.split(","),
        ca=str(ca),
        mechanism=MECHANISM,
    )
    for end, lines in ((PROPERTIES, java), (LIBRDKAFKA, librdkafka)):
        text = "".join(f"{line}\n" for line in (head, *lines))
        replace_file(folder / f"{user}{end}", text.encode(errors="surrogateescape"))
    replace_file(folder / f"{user}{PYTHON}", python.encode())


def described(folder: Path, user: str) -> Iterator[str]:
    """Yield the lines that say which files there are, and for whom."""
    yield f"  {folder / user}{PROPERTIES}   Java, kafka-*.sh and ottla --command-config"
    yield f"  {folder / user}{LIBRDKAFKA}   librdkafka (kcat -F)"
    yield f"  {folder / user}{PYTHON}   confluent-kafka, aiokafka, kafka-python"
