"""A cluster for other projects' suites: three brokers with the settings that those suites want.

    python tests/suites/cluster.py scripts/suites/kafka-python     runs it with the address appended
    python tests/suites/cluster.py --kafka COMMAND ...             the same on Apache Kafka 3.9
With --sasl each broker has a second listener, SASL_PLAINTEXT with SCRAM and PLAIN; the command
finds its addresses in SUITE_SASL_BOOTSTRAP and a user:password in SUITE_SCRAM, in SUITE_PLAIN. With
--secured there are SSL and SASL_SSL, too (SUITE_SSL_BOOTSTRAP, SUITE_SASL_SSL_BOOTSTRAP), and ACLs;
SUITE_CERTIFICATES is a folder with ca.pem, client.crt and client.key.
The command's exit status is returned; everything stops with it. Who may call: `scripts/suites/*`.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.certificates import Authority  # tests are no package
from support.cluster import OttlaCluster, free_ports
from support.command_line import ottla
from support.kafka39 import Kafka39Cluster
from support.sasl_clusters import (
    BROKER,
    PREFIX,
    SaslKafka,
    SaslOttla,
    WithSasl,
    plain_jaas,
    sasl_settings,
)

# Suites expect topics to appear as they are asked for, and more than one partition in each.
SETTINGS = {
    "auto_create_topics_enable": "true",
    "num_partitions": "2",
    "delete_topic_enable": "true",
    "offsets_topic_num_partitions": "5",
    "transaction_state_log_num_partitions": "5",
    "group_initial_rebalance_delay_ms": "0",
}
USER, PASSWORD = "suite", "of-the-suites"
PLAIN_USER = "test"
"""Of PLAIN, its password as well: aiokafka's tests ask for it."""
# Brokers may do everything, others what no ACL forbids. Certificates are asked for on SSL only, and
# who has authenticated by SASL does it again every ten seconds. On SSL there is TLS 1.2 alone: it
# refuses a certificate within the handshake, where librdkafka's test expects it.
SECURED = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": f"User:{BROKER}",
    "allow.everyone.if.no.acl.found": "true",
    "listener.name.ssl.ssl.enabled.protocols": "TLSv1.2",
    "connections.max.reauth.ms": "10000",
}


class WithTls(WithSasl):
    """Four listeners for each broker: PLAINTEXT, SASL_PLAINTEXT, SSL, SASL_SSL; and ACLs."""

    client_auth = "required"

    def __init__(self, folder: Path, *arguments, **more):
        super().__init__(folder, *arguments, **more)
        authority = Authority(folder / "certificates")
        authority.issue("client", common_name="client")
        self.certificates = authority.folder
        by_tls = {
            k.replace(PREFIX, "listener.name.sasl_ssl"): v
            for k, v in sasl_settings().items()
            if k.startswith(PREFIX)
        }
        self.sasl |= SECURED | {"ssl.client.auth": self.client_auth} | by_tls
        self.sasl |= authority.server(authority.issue("broker"))
        ports = free_ports(2 * len(self.ids))
        self.tls_ports = {"SSL": ports[::2], "SASL_SSL": ports[1::2]}

    def tls_addresses(self, protocol: str) -> list[str]:
        ports = zip(self.ids, self.tls_ports[protocol], strict=True)
        return [f"{self.host(broker)}:{port}" for broker, port in ports]

    def properties(self, broker: int) -> dict[str, str]:
        found = super().properties(broker)
        place = self.ids.index(broker)
        more = [f"{p}://{self.tls_addresses(p)[place]}" for p in self.tls_ports]
        return {**found, "listeners": ",".join([found["listeners"], *more])}


class SecuredOttla(WithTls, OttlaCluster):
    pass


class SecuredKafka(WithTls, Kafka39Cluster):
    pass


def sasl_environment(cluster: SaslKafka | SaslOttla) -> dict[str, str]:
    """Make a user with both SCRAMs, and return what the command is told."""
    done = ottla(
        "users", "add", USER, "--password-file", "-", "-b", cluster.bootstrap, stdin=PASSWORD
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    told = {
        "SUITE_SASL_BOOTSTRAP": cluster.sasl_bootstrap,
        "SUITE_SCRAM": f"{USER}:{PASSWORD}",
        "SUITE_PLAIN": f"{PLAIN_USER}:{PLAIN_USER}",
    }
    if isinstance(cluster, WithTls):
        told["SUITE_CERTIFICATES"] = str(cluster.certificates)
        for protocol in cluster.tls_ports:
            told[f"SUITE_{protocol}_BOOTSTRAP"] = ",".join(cluster.tls_addresses(protocol))
    return told


def with_plain_user(kind: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes a cluster of a kind that knows the user of PLAIN, too."""
    jaas = {f"{PREFIX}.plain.sasl.jaas.config": plain_jaas(**{PLAIN_USER: PLAIN_USER})}
    return partial(kind, sasl=sasl_settings() | jaas)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kafka", action="store_true", help="on Apache Kafka 3.9, not on Ottla")
    parser.add_argument("--sasl", action="store_true", help="a second listener, with SCRAM")
    parser.add_argument("--secured", action="store_true", help="four listeners, TLS, SCRAM, ACLs")
    parser.add_argument("--client-auth", default="required", help="ssl.client.auth of --secured")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="more")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for the command")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    replicas = str(min(3, arguments.brokers))
    settings = {
        "offsets_topic_replication_factor": replicas,
        "transaction_state_log_replication_factor": replicas,
        "transaction_state_log_min_isr": "1",
        **SETTINGS,
        **dict(entry.split("=", 1) for entry in arguments.more),
    }
    kind: Callable[..., Any]
    if arguments.secured:
        WithTls.client_auth = arguments.client_auth
        kind = with_plain_user(SecuredKafka if arguments.kafka else SecuredOttla)
    elif arguments.sasl:
        kind = with_plain_user(SaslKafka if arguments.kafka else SaslOttla)
    else:
        kind = Kafka39Cluster if arguments.kafka else OttlaCluster
    with (
        tempfile.TemporaryDirectory(prefix="ottla-suite-") as folder,
        kind(Path(folder), brokers=arguments.brokers, **settings) as cluster,
    ):
        more = sasl_environment(cluster) if isinstance(cluster, WithSasl) else {}
        # A group of its own, so that a suite that takes too long goes with all it started.
        process = subprocess.Popen(
            [*arguments.command, cluster.bootstrap], start_new_session=True, env=os.environ | more
        )
        try:
            return process.wait(arguments.timeout)
        except subprocess.TimeoutExpired:
            print(f"suite: stopped after {arguments.timeout:.0f} s", file=sys.stderr)
            return 124
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)


if __name__ == "__main__":
    sys.exit(main())
