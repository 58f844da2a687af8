"""A secured cluster on this machine: its own CA, TLS everywhere, a certificate for each client.

Who may call: `local.cluster`, and `ottla up`. Invariants: what exists is kept, so that clients that
trust the CA go on trusting it; every client shows a certificate of this CA, for nothing else says
who it is; private keys and the files that name them are the owner's alone.
"""

import socket
from collections.abc import Iterator

from ottla.admin.local.certificates import CertificateFolder
from ottla.admin.local.cluster_dir import (
    ANY_ADDRESS,
    CLIENT_PROPERTIES,
    ClusterDir,
    LocalBroker,
    LocalCluster,
)
from ottla.model.ports import address_text

ADMIN, CLIENT = "admin", "client"
"""The certificates of tools, and of the first client."""


def certificates(folder: ClusterDir) -> CertificateFolder:
    """Return the CA of a cluster, and what it issued."""
    return CertificateFolder(folder.certificates_dir)


def make_certificates(folder: ClusterDir, cluster: LocalCluster) -> None:
    """Make the CA and the certificates that are missing, and tools' way to the cluster."""
    ours = certificates(folder)
    if not ours.ca_pem.exists():
        ours.create_ca(f"Ottla CA of {folder.path.name}")
    known = set(ours.names())
    for broker in cluster.brokers:
        name = f"broker-{broker.id}"
        hosts = _hosts(broker)
        if name in known and not set(hosts) <= set(ours.hosts(name)):
            ours.pem(name).unlink()  # it has other addresses now
            known.remove(name)
        if name not in known:
            ours.issue(name, hosts)
    for name in (ADMIN, CLIENT):
        if name not in known:
            ours.issue(name)
    _write_client_properties(folder, ours)


def broker_settings(folder: ClusterDir, broker: LocalBroker) -> dict[str, str]:
    """Return the settings of a broker's one listener, for brokers and for clients."""
    ours = certificates(folder)
    there = broker.advertised
    return {
        "listeners": f"SSL://{address_text(broker.host, broker.port)}",
        **({"advertised.listeners": f"SSL://{address_text(there, broker.port)}"} if there else {}),
        "security.inter.broker.protocol": "SSL",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(ours.pem(f"broker-{broker.id}")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ours.ca_pem),
    }


def client_settings(folder: ClusterDir, cluster: LocalCluster) -> Iterator[str]:
    """Yield the lines that say how clients connect: Java, librdkafka, Python."""
    ours = certificates(folder)
    pem, ca, servers = ours.pem(CLIENT), ours.ca_pem, cluster.bootstrap
    yield "# Java, kafka-*.sh --command-config, ottla --command-config:"
    yield f"bootstrap.servers={servers}"
    yield from _java(ours, CLIENT)
    yield "# librdkafka, confluent-kafka:"
    yield f"bootstrap.servers={servers}"
    yield "security.protocol=ssl"
    yield f"ssl.ca.location={ca}"
    yield f"ssl.certificate.location={pem}"
    yield f"ssl.key.location={pem}"
    yield "# kafka-python (aiokafka: ssl_context of the same files):"
    yield (
        f"KafkaConsumer(bootstrap_servers={servers.split(',')!r}, security_protocol='SSL', "
        f"ssl_cafile={str(ca)!r}, ssl_certfile={str(pem)!r}, ssl_keyfile={str(pem)!r})"
    )


def _java(ours: CertificateFolder, name: str) -> Iterator[str]:
    yield "security.protocol=SSL"
    yield "ssl.truststore.type=PEM"
    yield f"ssl.truststore.location={ours.ca_pem}"
    yield "ssl.keystore.type=PEM"
    yield f"ssl.keystore.location={ours.pem(name)}"


def _write_client_properties(folder: ClusterDir, ours: CertificateFolder) -> None:
    file = folder.path / CLIENT_PROPERTIES
    head = "# Written by `ottla up --secure`: how tools connect. Clients have one like it.\n"
    file.touch(mode=0o600)
    file.chmod(0o600)
    file.write_text(head + "".join(f"{line}\n" for line in _java(ours, ADMIN)), encoding="utf-8")


def _hosts(broker: LocalBroker) -> list[str]:
    """Return all names under which a broker is reached."""
    names = [broker.advertised, "" if broker.host in ANY_ADDRESS else broker.host]
    names += ["localhost", "127.0.0.1", socket.gethostname()]
    return list(dict.fromkeys(name for name in names if name))
