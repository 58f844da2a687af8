"""A real ZooKeeper with SASL on, and brokers of Kafka's that authenticate to it."""

import base64
import hashlib
from pathlib import Path

from kazoo.client import KazooClient

from support import kafka_tools
from support.kafka39 import KAFKA_MAIN, ZOOKEEPER_MAIN, Kafka39Cluster

USER, PASSWORD = "kafka", 'pass"wörd'
SUPER, SUPER_PASSWORD = "super", "super-secret"
PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
MIGRATOR = "kafka.admin.ZkSecurityMigrator"
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


def jaas_file(folder: Path, password: str = PASSWORD, name: str = "jaas.conf") -> Path:
    """Write a file with a section for the server and one for clients."""
    quoted = password.replace('"', '\\"')
    file = folder / name
    file.write_text(
        f"/* as Kafka has it */\nServer {{\n  {MODULE} required\n"
        f'  user_{USER}="{PASSWORD.replace(chr(34), chr(92) + chr(34))}" user_eve="e";\n}};\n'
        f'Client {{\n  {MODULE} required // of brokers\n  username="{USER}"\n'
        f'  password="{quoted}";\n}};\n'
    )
    return file


class SecuredKafka(Kafka39Cluster):
    """Kafka's brokers, or only a ZooKeeper; `super` may read all of its tree."""

    def __init__(self, folder: Path, jaas: Path, *, only_zookeeper: bool = False, **more) -> None:
        super().__init__(folder, **more)
        self.jaas = jaas
        if only_zookeeper:
            self.ids = []

    def start_zookeeper(self, port):
        return self.start_kafkas_zookeeper(port)  # with options for Java

    def java(self, log, jvm, main, *arguments):
        more = [f"-Djava.security.auth.login.config={self.jaas}", "-Dfile.encoding=UTF-8"]
        if main == ZOOKEEPER_MAIN:
            digest = hashlib.sha1(f"{SUPER}:{SUPER_PASSWORD}".encode()).digest()
            super_digest = f"{SUPER}:{base64.b64encode(digest).decode()}"
            more += [
                f"-Dzookeeper.authProvider.sasl={PROVIDER}",
                f"-Dzookeeper.DigestAuthenticationProvider.superDigest={super_digest}",
            ]
        assert main in (ZOOKEEPER_MAIN, KAFKA_MAIN)
        return super().java(log, (*jvm, *more), main, *arguments)


def migrate(jaas: Path, zookeeper: str, acl: str) -> None:
    """Run Kafka's zookeeper-security-migration: `acl` is secure or unsecure."""
    arguments = (f"--zookeeper.acl={acl}", f"--zookeeper.connect={zookeeper}")
    kafka_tools.run(MIGRATOR, *arguments, jvm=(f"-Djava.security.auth.login.config={jaas}",))


def acls(zookeeper: str, root: str) -> dict[str, tuple[str, ...]]:
    """Return the ACLs of all znodes below a root by path, as `super` sees them."""
    client = KazooClient(zookeeper, auth_data=[("digest", f"{SUPER}:{SUPER_PASSWORD}")])
    client.start(20)
    found = {}
    try:
        left = [root]
        while left:
            path = left.pop()
            entries, _ = client.get_acls(path)
            texts = (f"{a.id.scheme}:{a.id.id}:{a.perms}" for a in entries)
            found[path.removeprefix(root)] = tuple(sorted(texts))
            left += [f"{path}/{name}" for name in client.get_children(path)]
    finally:
        client.stop()
        client.close()
    return found
