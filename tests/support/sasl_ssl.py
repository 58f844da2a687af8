"""A cluster with all of it: SASL over TLS for clients and among brokers, ACLs, users of PLAIN."""

import json

from support.cluster import OttlaCluster, free_ports
from support.command_line import ottla
from support.sasl_clusters import BROKER, PLAIN, SCRAM, USERS
from support.secret_scan import Secrets, all_leaks
from support.waiting import until

HOST, LISTENER, OPERATOR = "127.0.0.1", "SASL_SSL", "operator"
PREFIX = "listener.name.sasl_ssl"
ONE_BROKER = {
    "default_replication_factor": "1",
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "2",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "2",
}
"""Settings of a cluster of one."""
ADMIN_PASSWORD, BROKER_PASSWORD = "admin-secret", "broker-secret"


class SaslSslOttla(OttlaCluster):
    """Brokers that meet, and serve clients, over SASL_SSL; one listener in the clear is ours.

    `users`: names and passwords of PLAIN; the operator and the brokers may do everything.
    """

    def __init__(self, folder, authority, brokers=3, users=None, **settings):
        super().__init__(folder, brokers, **settings)
        self.authority = authority
        self.secure_ports = dict(zip(self.ids, free_ports(brokers), strict=True))
        self.passwords = {
            BROKER: BROKER_PASSWORD,
            OPERATOR: ADMIN_PASSWORD,
            **(USERS if users is None else users),
        }
        self.identities = {b: authority.issue(f"broker-{b}") for b in self.ids}

    def properties(self, broker):
        secure = f"{LISTENER}://{HOST}:{self.secure_ports[broker]}"
        options = "".join(f' user_{name}="{text}"' for name, text in self.passwords.items())
        own = f'username="{BROKER}" password="{self.passwords[BROKER]}"'
        found = super().properties(broker)
        return {
            **found,
            "listeners": f"{found['listeners']},{secure}",
            "inter.broker.listener.name": LISTENER,
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            f"{PREFIX}.plain.sasl.jaas.config": f"{PLAIN} required {own}{options};",
            f"{PREFIX}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{BROKER};User:{OPERATOR}",
            **self.authority.server(self.identities[broker]),
        }

    @property
    def secure_bootstrap(self):
        return ",".join(f"{HOST}:{port}" for port in self.secure_ports.values())

    def client(self, name, password=None, mechanism="PLAIN", **more):
        """Return librdkafka's settings."""
        return {
            "bootstrap.servers": self.secure_bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.pem),
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": self.passwords[name] if password is None else password,
            "log_level": 2,
            **more,
        }

    def client_properties(self, name=OPERATOR, password=None):
        """Write a user's client.properties; return its path."""
        config = self.folder / f"{name}.properties"
        password = self.passwords[name] if password is None else password
        config.touch(mode=0o600)
        config.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.authority.pem}\n"
            f'sasl.jaas.config={PLAIN} required username="{name}" password="{password}";\n'
        )
        return config

    def tool(self, *arguments, stdin="", name=OPERATOR, password=None):
        """Run our command line as a user."""
        config = self.client_properties(name, password)
        at = ("-b", self.secure_bootstrap, "--command-config", str(config))
        return ottla(*arguments, *at, stdin=stdin)

    def allow(self, name, *rules):
        """Give a user rights: pairs of an operation and options of `ottla acls add`.

        The broker that is told obeys at once, the others once they have heard: that is waited for.
        """
        for operation, *resource in rules:
            added = self.tool("acls", "add", f"User:{name}", "--operation", operation, *resource)
            assert added.returncode == 0, added.stderr
        if len(self.ids) == 1:
            return
        wanted = {(operation, resource[1]) for operation, *resource in rules}
        for broker in self.ids:
            until(
                lambda broker=broker: wanted <= self._rights(name, broker),
                60,
                f"broker {broker} knows what {name} may do",
            )

    def _rights(self, name, broker):
        """Return what a broker knows of a user's rights: pairs of an operation and a name."""
        at = ("-b", f"{HOST}:{self.secure_ports[broker]}", "--output", "json")
        config = ("--command-config", str(self.client_properties()))
        listed = ottla("acls", "list", "--principal", f"User:{name}", *at, *config)
        assert listed.returncode == 0, listed.stderr
        return {(acl["operation"], acl["name"]) for acl in json.loads(listed.stdout)}

    def secrets(self):
        """Return all that may stand only in `where_secrets_belong`."""
        found = Secrets({f"password of {name}": text for name, text in self.passwords.items()})
        for identity in self.identities.values():
            found.add_private_key(identity.key)
        return found

    def where_secrets_belong(self):
        """Return the files that have them: brokers' settings, clients' settings, keys."""
        keys = [path for one in self.identities.values() for path in (one.key, one.pem)]
        return [*self.folder.glob("*.properties"), *keys]

    def leaks(self, secrets=None, folder=None):
        """Return where secrets stand that may not: files, znodes, arguments of processes."""
        secrets = self.secrets() if secrets is None else secrets
        folder = folder or self.folder
        return all_leaks(secrets, self.zookeeper, folder, self.where_secrets_belong())
