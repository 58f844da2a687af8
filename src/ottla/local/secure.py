"""A secured cluster on this machine: its own CA, TLS and SCRAM everywhere, and access rules.

Invariants: what exists is kept, so that clients that trust the CA, and know a password, go on;
every listener, for clients and for brokers, is SASL_SSL; only the brokers and the administrator may
do what no ACL allows; private keys, passwords and the files that have them are the owner's alone.
"""

import socket
from collections.abc import Iterator

from ottla.local import client_files, passwords
from ottla.local.certificates import CertificateFolder
from ottla.local.cluster_dir import ANY_ADDRESS, ClusterDir, LocalBroker, LocalCluster
from ottla.local.passwords import ADMIN, APPLICATION, BROKER_USERS
from ottla.local.private_files import replace_file
from ottla.model.ports import address_text
from ottla.security.sasl.jaas_file import DIGEST_MODULE

LISTENER = "SASL_SSL"
ZOOKEEPER_USER = "kafka"


def certificates(folder: ClusterDir) -> CertificateFolder:
    """Return the CA of a cluster, and what it issued."""
    return CertificateFolder(folder.certificates_dir)


def prepare(folder: ClusterDir, cluster: LocalCluster) -> None:
    """Make the certificates and passwords that are missing, and the files of client settings."""
    ours = certificates(folder)
    if not ours.ca_pem.exists():
        ours.create_ca(f"Ottla CA of {folder.path.name}")
    issued = set(ours.names())
    for broker in cluster.brokers:
        name = f"broker-{broker.id}"
        hosts = _hosts(broker)
        if name in issued and not set(hosts) <= set(ours.hosts(name)):
            ours.pem(name).unlink()  # it has other addresses now
            issued.remove(name)
        if name not in issued:
            ours.issue(name, hosts)
    known = passwords.load_or_make(folder)
    write_client_files(folder, cluster, known)
    if not cluster.zookeeper.external:
        write_jaas_file(folder, known)


def write_jaas_file(folder: ClusterDir, known: passwords.Passwords) -> None:
    """Write who may use ZooKeeper: the server's section, and that of brokers and commands."""
    secret = known.zookeeper
    text = (
        f"// Written by `ottla up --secure`. It has a password: keep it to yourself.\n"
        f'Server {{\n    {DIGEST_MODULE} required\n    user_{ZOOKEEPER_USER}="{secret}";\n}};\n'
        f'Client {{\n    {DIGEST_MODULE} required\n    username="{ZOOKEEPER_USER}"\n'
        f'    password="{secret}";\n}};\n'
    )
    replace_file(folder.zookeeper_jaas, text.encode())


def write_client_files(
    folder: ClusterDir, cluster: LocalCluster, known: passwords.Passwords
) -> None:
    """Write how clients connect, as the administrator and as the application."""
    ca = certificates(folder).ca_pem
    for user in (ADMIN, APPLICATION):
        client_files.write(folder.clients_dir, user, known.users[user], cluster.bootstrap, ca)


def broker_settings(folder: ClusterDir, broker: LocalBroker) -> dict[str, str]:
    """Return the settings of a broker's one listener, for brokers and for clients."""
    ours, known = certificates(folder), passwords.load_or_make(folder)
    there, user = broker.advertised, known.broker_user
    jaas = client_files.jaas_text(user, known.users[user])
    mechanism = client_files.MECHANISM
    super_users = ";".join(f"User:{name}" for name in (ADMIN, *BROKER_USERS))
    return {
        "listeners": f"{LISTENER}://{address_text(broker.host, broker.port)}",
        **(
            {"advertised.listeners": f"{LISTENER}://{address_text(there, broker.port)}"}
            if there
            else {}
        ),
        "security.inter.broker.protocol": LISTENER,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(ours.pem(f"broker-{broker.id}")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ours.ca_pem),
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"listener.name.{LISTENER.lower()}.{mechanism.lower()}.sasl.jaas.config": jaas,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": super_users,
        **folder.zookeeper_settings(),
    }


def client_settings(folder: ClusterDir, cluster: LocalCluster) -> Iterator[str]:
    """Yield the lines that say where the settings of clients are."""
    if cluster.zookeeper.external:
        yield (
            f"ZooKeeper {cluster.zookeeper.address} is not secured by this command: who reaches it "
            "may be able to change users and ACLs"
        )
    yield f"settings for applications, as user {APPLICATION}:"
    yield from client_files.described(folder.clients_dir, APPLICATION)
    yield f"settings for the administrator, as user {ADMIN}, which ottla commands here use:"
    yield from client_files.described(folder.clients_dir, ADMIN)


def _hosts(broker: LocalBroker) -> list[str]:
    """Return all names under which a broker is reached."""
    names = [broker.advertised, "" if broker.host in ANY_ADDRESS else broker.host]
    names += ["localhost", "127.0.0.1", socket.gethostname()]
    return list(dict.fromkeys(name for name in names if name))
