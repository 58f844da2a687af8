"""A secured cluster on this machine: its own CA, TLS and SCRAM everywhere, users and ACLs.

Invariants: what exists is kept, so that clients that trust the CA, and know a password, go on;
every listener, for clients and for brokers, is SASL_SSL; only the brokers and the administrator may
do what no ACL allows; private keys, passwords and the files that have them are the owner's alone. A
password is 192 random bits and leaves this machine only hashed; it is in no argument, no log line
and no output. Brokers have two names in turn: the new one is in use on all of them before the
former one goes. Users and ACLs are written into ZooKeeper once, since brokers authenticate as one
of the users among each other; what an administrator changed then stays.
"""

import secrets
import socket
from collections.abc import Iterator, Mapping

import msgspec

from ottla.local import client_files
from ottla.local.certificates import CertificateFolder
from ottla.local.cluster_dir import ANY_ADDRESS, ClusterDir, LocalBroker, LocalCluster
from ottla.local.first_users import put_in_zookeeper, remove_from_zookeeper
from ottla.local.folders import replace_file
from ottla.local.zookeeper_session import ZooKeeper, asked
from ottla.model.errors import OttlaError
from ottla.model.ports import address_text
from ottla.security import acls
from ottla.security.acls import ALLOW, LITERAL, WILDCARD, Entry, Pattern
from ottla.security.principals import USER_TYPE, Principal
from ottla.security.sasl.jaas import DIGEST_MODULE
from ottla.security.sasl.scram import BY_NAME
from ottla.zookeeper.access import UNKNOWN_VERSION
from ottla.zookeeper.session import Session
from ottla.zookeeper.store import Store

ADMIN, APPLICATION = "admin", "app"
BROKER_USERS = ("broker-a", "broker-b")
PASSWORD_BYTES = 24


class Passwords(msgspec.Struct):
    """All of passwords.json."""

    users: dict[str, str]
    zookeeper: str
    """Of brokers and of commands here at ZooKeeper."""
    broker_user: str = BROKER_USERS[0]
    """The name of brokers that start from now on."""

    @property
    def former_broker_user(self) -> str | None:
        """Return the name that brokers had before, while it is still in use."""
        other = self.other_broker_user
        return other if other in self.users else None

    @property
    def other_broker_user(self) -> str:
        return BROKER_USERS[1 - BROKER_USERS.index(self.broker_user)]


def new_password() -> str:
    """Return a random password: letters, digits, - and _, which no format has to escape."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def load_passwords(folder: ClusterDir) -> Passwords:
    """Return the passwords of a cluster; new ones if it has none yet."""
    file = folder.passwords_file
    try:
        known = msgspec.json.decode(file.read_bytes(), type=Passwords)
    except FileNotFoundError:
        users = {n: new_password() for n in (ADMIN, APPLICATION, BROKER_USERS[0])}
        made = Passwords(users, new_password())
        save_passwords(folder, made)
        return made
    except msgspec.DecodeError as error:
        raise OttlaError(f"{file} is damaged: {type(error).__name__}") from None
    except OSError as error:
        raise OttlaError(f"cannot read {file}: {error.strerror}") from error
    needed = {ADMIN, APPLICATION, known.broker_user}
    if known.broker_user not in BROKER_USERS or not known.users.keys() >= needed:
        raise OttlaError(f"{file} is damaged: it lacks a user")
    return known


def save_passwords(folder: ClusterDir, passwords: Passwords) -> None:
    """Replace the file."""
    data = msgspec.json.format(msgspec.json.encode(passwords), indent=2) + b"\n"
    replace_file(folder.passwords_file, data)


# --- its files ----------------------------------------------------------------------------------

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
    known = load_passwords(folder)
    write_client_files(folder, cluster, known)
    if not cluster.zookeeper.external:
        write_jaas_file(folder, known)


def write_jaas_file(folder: ClusterDir, known: Passwords) -> None:
    """Write who may use ZooKeeper: the server's section, and that of brokers and commands."""
    secret = known.zookeeper
    text = (
        f"// Written by `ottla up --secure`. It has a password: keep it to yourself.\n"
        f'Server {{\n    {DIGEST_MODULE} required\n    user_{ZOOKEEPER_USER}="{secret}";\n}};\n'
        f'Client {{\n    {DIGEST_MODULE} required\n    username="{ZOOKEEPER_USER}"\n'
        f'    password="{secret}";\n}};\n'
    )
    replace_file(folder.zookeeper_jaas, text.encode())


def write_client_files(folder: ClusterDir, cluster: LocalCluster, known: Passwords) -> None:
    """Write how clients connect, as the administrator and as the application."""
    ca = certificates(folder).ca_pem
    for user in (ADMIN, APPLICATION):
        client_files.write(folder.clients_dir, user, known.users[user], cluster.bootstrap, ca)


def broker_settings(folder: ClusterDir, broker: LocalBroker) -> dict[str, str]:
    """Return the settings of a broker's one listener, for brokers and for clients."""
    ours, known = certificates(folder), load_passwords(folder)
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


# --- its users in ZooKeeper ---------------------------------------------------------------------

_SCRAM = BY_NAME["SCRAM-SHA-512"]
ITERATIONS = 8192
INTERNAL = "__"
"""Topics of Kafka's own begin so."""

RULES = (
    (
        Pattern(acls.TOPIC, WILDCARD, LITERAL),
        ALLOW,
        (acls.READ, acls.WRITE, acls.CREATE, acls.DESCRIBE_CONFIGS),
    ),
    (Pattern(acls.TOPIC, INTERNAL, acls.PREFIXED), acls.DENY, (acls.ALL,)),
    (Pattern(acls.GROUP, WILDCARD, LITERAL), ALLOW, (acls.READ,)),
    (Pattern(acls.TRANSACTIONAL_ID, WILDCARD, LITERAL), ALLOW, (acls.WRITE,)),
    (Pattern(acls.CLUSTER, acls.CLUSTER_NAME, LITERAL), ALLOW, (acls.IDEMPOTENT_WRITE,)),
)
"""What the application may do (docs/SECURITY.md); Read and Write imply Describe."""


def put_passwords(zookeeper: ZooKeeper, passwords: Mapping[str, str]) -> None:
    """Give users these passwords, in ZooKeeper; brokers that run take them over."""

    async def write(session: Session) -> None:
        for name, password in passwords.items():
            await put_in_zookeeper(session, name, password, [_SCRAM], ITERATIONS)

    asked(zookeeper, write)


def remove_password(zookeeper: ZooKeeper, name: str) -> None:
    """Take a user's password away."""
    asked(zookeeper, lambda session: remove_from_zookeeper(session, name, _SCRAM))


def create_users(zookeeper: ZooKeeper, passwords: Mapping[str, str]) -> None:
    """Create users and the application's ACLs; patterns that have ACLs already keep theirs."""

    async def write(session: Session) -> None:
        store = Store(session)
        await store.acls.create_paths()
        principal = str(Principal(USER_TYPE, APPLICATION))
        for pattern, permission, operations in RULES:
            entries = [Entry(principal, WILDCARD, o, permission) for o in operations]
            if await store.acls.set(pattern, entries, UNKNOWN_VERSION):
                await store.acls.notify(pattern)

    asked(zookeeper, write)
    put_passwords(zookeeper, passwords)
