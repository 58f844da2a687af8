"""Writes docs/SETTINGS.md: all settings with type, default and allowed values from the code, and what each does here.

    python docs/list_settings.py

Unit tests keep the committed page equal to what the code says, and demand a sentence for each setting that any module
reads. tests/oracle/test_defaults.py compares types and defaults with those of Kafka 3.9.1's own classes.
"""

from collections.abc import Iterable
from pathlib import Path

from ottla.broker.configs.config_entries import DYNAMIC_KEYS, DYNAMIC_ONLY_KEYS
from ottla.broker.configs.dynamic_configs import (
    CLEANER_THREADS,
    LISTENER_PASSWORDS,
    OF_LISTENERS,
    THREAD_COUNTS,
    UNSERVED,
)
from ottla.broker.configs.unsupported_configs import CLASSES, SWITCHES
from ottla.model.config import OUR_DEFAULTS, TopicConfig
from ottla.model.config_keys import TOPIC_SYNONYMS, ConfigKey, broker_keys, our_keys, topic_keys

REFUSED = [name for name, (built_in, _) in CLASSES.items() if not built_in]
PAGE = Path(__file__).with_name("SETTINGS.md")

TOPIC_TEXTS = """\
cleanup.policy `delete`: old records go by age and size. `compact`: the last record of each key stays. Both at once is possible
compression.type what the broker stores: `producer` keeps what came, a codec packs all batches anew
delete.retention.ms how long a compacted topic keeps the mark that a key was deleted
file.delete.delay.ms how long a deleted segment's files stay before they are removed from the disk
flush.messages force the log to disk after so many records; by default the system decides, and replicas protect the records
flush.ms force the log to disk after so long
follower.replication.throttled.replicas replicas whose copying counts against `follower.replication.throttled.rate`; reassignment sets it
index.interval.bytes an index entry for each so many bytes of the log
leader.replication.throttled.replicas replicas whose copying counts against `leader.replication.throttled.rate`; reassignment sets it
max.compaction.lag.ms a record is compacted at the latest after so long
max.message.bytes the largest batch that is accepted, as it comes (compressed)
message.timestamp.after.max.ms how far ahead of the broker's clock a record's timestamp may be
message.timestamp.before.max.ms how far behind the broker's clock a record's timestamp may be
message.timestamp.type whose clock stamps records: the producer's (CreateTime) or the broker's (LogAppendTime)
min.cleanable.dirty.ratio compact when this share of the log has not been compacted yet
min.compaction.lag.ms a record is not compacted before it is so old
min.insync.replicas with acks=all: refuse records while fewer replicas than this are in sync
retention.bytes delete the oldest segments of a partition beyond this size; -1: no bound
retention.ms delete segments whose newest record is older; -1: never
segment.bytes begin a new segment file at this size
segment.index.bytes the largest index file of a segment
segment.jitter.ms begin segments up to so much earlier, drawn at random, so that not all partitions do it at once
segment.ms begin a new segment after so long, even if it is small
unclean.leader.election.enable let a replica lead that is not in sync when no other lives. Acknowledged records are lost then\
"""

BROKER_TEXTS = """\
advertised.listeners the addresses that clients are told; those of `listeners`, where it is not set
alter.log.dirs.replication.quota.window.num how many windows the rate of moves between log dirs is measured over
alter.log.dirs.replication.quota.window.size.seconds length of such a window
authorizer.class.name who decides what clients may do: `kafka.security.authorizer.AclAuthorizer`, or no one ([security/ACLS.md](security/ACLS.md))
auto.create.topics.enable create a topic when a client asks for it
auto.leader.rebalance.enable the controller gives leaderships back to the first replicas by itself
broker.id this broker's id. -1, or no `broker.id`: the id in meta.properties, or else a generated one
broker.id.generation.enable whether a broker without an id generates one: `reserved.broker.max.id` + 1, 2, … by the version of /brokers/seqid. `false` also allows any `broker.id`
broker.rack where this broker stands: replicas are spread over racks, and consumers may read from their own
connection.failed.authentication.delay.ms a failed authentication is answered, and its connection closed, after so long
connections.max.idle.ms close a connection on which nothing came for so long
connections.max.reauth.ms a SASL session ends after so long, unless its client authenticates again (KIP-368); 0: it does not end. May be set for a listener, and for a listener's mechanism
control.plane.listener.name a listener only for the controller's requests
controlled.shutdown.enable hand leaderships over before stopping
controlled.shutdown.max.retries how often this is tried
controlled.shutdown.retry.backoff.ms pause between two tries
controller.quota.window.num how many windows the rate of topic creations and deletions is measured over
controller.quota.window.size.seconds length of such a window
controller.socket.timeout.ms how long an answer of the controller, or to it, is waited for
default.replication.factor replicas of a topic without a number of its own
delegation.token.expiry.check.interval.ms how often the controller removes expired delegation tokens
delegation.token.expiry.time.ms a delegation token counts for so long until it is renewed
delegation.token.master.key the old name of `delegation.token.secret.key`
delegation.token.max.lifetime.ms the longest life of a delegation token, however often it is renewed
delegation.token.secret.key what delegation tokens are signed with, the same on all brokers; without it there are none
delete.topic.enable whether topics can be deleted
fetch.max.bytes the largest answer to a fetch
group.initial.rebalance.delay.ms a new group waits so long for more members before its first assignment
group.max.session.timeout.ms the longest session timeout that a member may ask for
group.max.size the most members of a group
group.min.session.timeout.ms the shortest session timeout that a member may ask for
inter.broker.listener.name the listener by which brokers speak with each other
inter.broker.protocol.version the protocol that brokers speak with each other, 2.7 to 3.9; lower it for older JVM brokers beside
leader.imbalance.check.interval.seconds how often the controller looks who leads what it should not
leader.imbalance.per.broker.percentage how much of that a broker may have before leaderships are given back
listener.security.protocol.map protocol of each listener's name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
listeners the addresses that the broker listens on
log.cleaner.backoff.ms pause of the compaction when there is nothing to do
log.cleaner.dedupe.buffer.size memory for the keys of one compaction, 200 bytes for each, allocated as they come
log.cleaner.enable compact topics at all
log.cleaner.io.buffer.load.factor how full the table of keys may get
log.cleaner.io.max.bytes.per.second the most that compaction reads and writes
log.dir one folder for the logs, if `log.dirs` is not set
log.dirs folders for the logs, with commas between; partitions are spread over them, one that fails goes offline alone
log.flush.offset.checkpoint.interval.ms how often it is noted up to where the logs are on disk
log.retention.check.interval.ms how often it is looked for segments that are too old or too many
max.connection.creation.rate new connections per second that an address makes before they wait, for 1 s at most; without it 200. Counts from the next start
max.connections connections at most, of all clients together
max.connections.per.ip connections at most from one address
max.incremental.fetch.session.cache.slots fetch sessions that are kept
num.partitions partitions of a topic without a number of its own
num.replica.fetchers fetchers per leader that this broker follows, each with a connection of its own
offset.metadata.max.bytes the longest text that a consumer may commit with an offset
offsets.commit.required.acks replicas that must have an offset before its commit is acknowledged; -1: all in sync
offsets.commit.timeout.ms how long a commit waits for them
offsets.retention.check.interval.ms how often it is looked for offsets that have expired
offsets.retention.minutes offsets of a group without members are kept so long
offsets.topic.compression.codec codec of the records of `__consumer_offsets`, by number
offsets.topic.num.partitions partitions of `__consumer_offsets`; not to be changed once it is there
offsets.topic.replication.factor its replicas
offsets.topic.segment.bytes its `segment.bytes`
password.encoder.cipher.algorithm how passwords of dynamic settings are encrypted in ZooKeeper: `AES/CBC/PKCS5Padding` or `AES/GCM/NoPadding` ([TLS](security/TLS.md#passwords-in-dynamic-settings))
password.encoder.iterations of the key's derivation; at most 1,000,000 here
password.encoder.key.length bits of the key: 128, 192 or 256
password.encoder.keyfactory.algorithm `PBKDF2WithHmacSHA1`, …`SHA224`, …`SHA256`, …`SHA384` or …`SHA512`; nothing: the last
password.encoder.old.secret for a restart with a new secret: what this one has encrypted is encrypted anew
password.encoder.secret encrypts passwords of dynamic settings; without it they are refused
producer.id.expiration.ms an idempotent producer that has sent nothing for so long is forgotten. Counts from the next start
queued.max.request.bytes bytes of requests in memory, counted for frames over 64 KiB; beyond it clients wait
quota.window.num how many windows the rates of clients' quotas are measured over
quota.window.size.seconds length of such a window
replica.fetch.backoff.ms longest pause of a follower after an error; it begins with 50 ms and doubles
replica.fetch.max.bytes most bytes of one partition in an answer to a follower
replica.fetch.min.bytes least bytes that a follower waits for
replica.fetch.response.max.bytes most bytes of an answer to a follower
replica.fetch.wait.max.ms longest wait of a follower's fetch
replica.high.watermark.checkpoint.interval.ms how often high watermarks are written to disk
replica.lag.time.max.ms a follower that has not caught up for so long leaves the ISR
replica.selector.class `org.apache.kafka.common.replica.RackAwareReplicaSelector` lets consumers read from their own rack; nothing else is served
replica.socket.timeout.ms how long a follower waits for its leader's answer
replication.quota.window.num how many windows the throttled rate of replication is measured over
replication.quota.window.size.seconds length of such a window
request.timeout.ms how long a broker's own requests wait for their answers
reserved.broker.max.id the highest `broker.id` that may be set while ids are generated; generated ones are above it
sasl.enabled.mechanisms of `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, by which clients may authenticate; GSSAPI is refused
sasl.jaas.config of effect with a listener and a mechanism before it: `listener.name.NAME.plain.sasl.jaas.config`, a login module with its options
sasl.mechanism.inter.broker.protocol by which brokers authenticate at each other, with `username` and `password` of the same login module
sasl.oauthbearer.clock.skew.seconds how far the clocks of brokers and of the issuer of tokens may differ
sasl.oauthbearer.expected.audience a token must name one of these; not set: it need not
sasl.oauthbearer.expected.issuer a token must name this issuer; not set: it need not
sasl.oauthbearer.jwks.endpoint.refresh.ms the keys that sign tokens are read again after so long
sasl.oauthbearer.jwks.endpoint.url a JSON Web Key Set with these keys: a `file:`, or an address that is in `org.apache.kafka.sasl.oauthbearer.allowed.urls`
sasl.oauthbearer.scope.claim.name the claim with a token's scope
sasl.oauthbearer.sub.claim.name the claim with the user's name
sasl.oauthbearer.token.endpoint.url where a broker, as a client, reads its token: a `file:`
sasl.server.callback.handler.class nothing, or Kafka's own validator of OAUTHBEARER; another Java class is refused
sasl.server.max.receive.size the largest frame before a connection is authenticated
security.inter.broker.protocol where brokers meet: the listener of this protocol. Instead of `inter.broker.listener.name`
socket.connection.setup.timeout.ms how long a connection to another broker may take to open
socket.request.max.bytes the largest request
ssl.allow.dn.changes whether a keystore that is changed while the broker runs may be another's: with another subject
ssl.allow.san.changes whether it may lack host names that the one before had
ssl.cipher.suites only these suites, by Java's names; nothing: those of OpenSSL's default
ssl.client.auth whether clients show a certificate: `none`, `requested` (it is checked if there is one), `required`
ssl.enabled.protocols TLS 1.2 and 1.3, or one of them; older ones are refused
ssl.endpoint.identification.algorithm `https`: brokers check that another broker's certificate has the host they connect to; empty: they do not
ssl.key.password password of the private key, in PEM or JKS
ssl.keystore.certificate.chain the certificate as PEM text, instead of a file; with `ssl.keystore.key`
ssl.keystore.key the private key as PEM text (PKCS#8)
ssl.keystore.location file of key and certificate. It is read again when it changes
ssl.keystore.password password of a store of JKS or PKCS#12
ssl.keystore.type `PEM`, `PKCS12` or `JKS`; the last two are told apart by the file itself
ssl.principal.mapping.rules from a certificate's subject to a user: `RULE:pattern/replacement/[LU]`, `DEFAULT` ([SECURITY](security/TLS.md))
ssl.provider refused: names a part of the JVM
ssl.secure.random.implementation refused: names a part of the JVM
ssl.truststore.certificates CAs as PEM text, instead of a file
ssl.truststore.location file of the CAs that are trusted: of clients, and of other brokers
ssl.truststore.password password of a store of JKS or PKCS#12; JKS needs none
ssl.truststore.type `PEM`, `PKCS12` or `JKS`
transaction.abort.timed.out.transaction.cleanup.interval.ms how often it is looked for transactions that have timed out
transaction.max.timeout.ms the longest timeout that a transaction may have
transaction.partition.verification.enable ask the coordinator whether a transaction is open before its first record is taken (KIP-890)
transaction.remove.expired.transaction.cleanup.interval.ms how often it is looked for transactional ids that have expired
transaction.state.log.min.isr `min.insync.replicas` of `__transaction_state`
transaction.state.log.num.partitions partitions of `__transaction_state`; not to be changed once it is there
transaction.state.log.replication.factor its replicas
transaction.state.log.segment.bytes its `segment.bytes`
transactional.id.expiration.ms a transactional id that was not used for so long is forgotten
zookeeper.connect ZooKeeper's addresses, with commas between, and a folder in it if you like: `host:port,host:port/kafka`
zookeeper.connection.timeout.ms how long the first connection may take; the session timeout, where it is not set
zookeeper.session.timeout.ms how long after its last sign of life a broker counts as dead: failover takes at least that long after a crash
zookeeper.set.acl give znodes the ACLs that Kafka gives them; it needs SASL or a certificate for ZooKeeper ([SECURITY](security/ZOOKEEPER.md))
zookeeper.ssl.cipher.suites only these suites to ZooKeeper, by Java's names
zookeeper.ssl.client.enable speak TLS to ZooKeeper; its host name is checked. `zookeeper.clientCnxnSocket` is not needed here
zookeeper.ssl.crl.enable refused if true: revocation is not checked here
zookeeper.ssl.enabled.protocols TLS 1.2 and 1.3, or one of them
zookeeper.ssl.endpoint.identification.algorithm empty: do not check ZooKeeper's host name
zookeeper.ssl.keystore.location key and certificate for ZooKeeper, if it asks for one
zookeeper.ssl.keystore.password its password; of a PEM file that of the key
zookeeper.ssl.keystore.type `PEM`, `PKCS12`, `JKS`; by the end of the file's name, where it is not set
zookeeper.ssl.ocsp.enable refused if true: revocation is not checked here
zookeeper.ssl.truststore.location the CA of ZooKeeper's certificate
zookeeper.ssl.truststore.password its password
zookeeper.ssl.truststore.type as that of the keystore
leader.replication.throttled.rate bytes per second that a leader sends to throttled replicas
follower.replication.throttled.rate bytes per second that a follower fetches for throttled replicas
replica.alter.log.dirs.io.max.bytes.per.second bytes per second of moves between this broker's log dirs
ottla.replication.throttle.lease topics whose throttles, and this broker's, go 30 s after no reassignment of them is in progress\
 any more; only Ottla has it
ottla.application.logs.file.bytes so large the controller's journal, state-change.log and the log of --log-file may become before they are set aside
ottla.application.logs.retention.bytes so much of each of them is kept, the current file included; the newest one set aside always stays
ottla.application.logs.retention.ms so long files set aside are kept; -1: whatever their age
ottla.application.logs.compression.type `gzip` or `none`, for files set aside
org.apache.kafka.sasl.oauthbearer.allowed.urls addresses that may be asked for keys of tokens; a system property with Kafka
java.security.auth.login.config a JAAS file that names this broker's user at ZooKeeper; a system property with Kafka ([SECURITY](security/ZOOKEEPER.md))
zookeeper.sasl.client authenticate to ZooKeeper where a JAAS file is named; a system property with Kafka
zookeeper.sasl.clientconfig the section of the JAAS file; a system property with Kafka
ottla.sasl.oauthbearer.unsigned.tokens.for.tests take unsigned tokens, which anyone can write: for tests
ottla.crash.detection whose registrations are removed when all their endpoints refuse connections: `own` (brokers of Ottla), `all` (Kafka's too, which do\
 not register anew), `off` (only a session's end counts); [adr/0018](adr/0018-a-refused-connection-is-proof.md)
ottla.produce.max.decompressed.bytes all batches of one produce request may unpack to so much
ottla.produce.max.check.ms checking all batches of one produce request may take so much work
ottla.metrics.detail whether the page /metrics has series of the broker alone, of each `topic` too, or of each `partition` too
ottla.metrics.listener `host:port` where this broker serves /metrics, /healthz and /readyz over HTTP ([METRICS.md](METRICS.md)); empty: nowhere
ottla.metrics.max.series most series of topics and partitions in one page; what is left out is counted
ottla.stray.retention.ms how long a log that is another topic's is kept as a `-stray` folder before it is removed; -1: for ever ([OPERATIONS.md](OPERATIONS.md#stray-replicas))
ottla.slow.request.ms requests that took longer are logged with what they waited for; 0: none ([OPERATIONS.md](OPERATIONS.md#why-a-request-was-slow))
ottla.queued.max.response.bytes answers that clients have not taken yet, in memory; as much again for brokers\
"""

WHY_DIFFERENT = {
    "max.connections": "everything has a bound: one client could take every descriptor",
    "max.connections.per.ip": "the same",
    "queued.max.request.bytes": "requests in memory would have no bound",
}

HEAD = """\
# Settings

Written by `python docs/list_settings.py` from `src/ottla/model/config_keys.py` and what reads it; do not edit.

Names, types, defaults and allowed values are Kafka 3.9's, so that a `server.properties` can be used as it is. All of them were compared
with Kafka 3.9.1's own classes (`tests/oracle/test_defaults.py`): types are the same, and so are all defaults but the three that are marked **differs**.

- Set a broker's: `ottla up --set KEY=VALUE`, or in the `server.properties` of `ottla broker run --config`.
- Change one while brokers run, where *dynamic* says yes: `ottla configs alter --broker 0 --set KEY=VALUE`, or `--broker-defaults` for all.
- Set a topic's: `ottla topics create NAME --config KEY=VALUE`, later `ottla configs alter --topic NAME --set KEY=VALUE`.
- See what is in force, and where it comes from: `ottla configs describe --broker 0`, `--topic NAME`; `--all` shows the defaults, too.

A value that is not allowed is refused in one line, and nothing is changed. An unknown key is named in a warning.
"""

DIFFERENT = """\
## What differs from Kafka

{table}

`ottla up` writes some settings into each broker's `server.properties`, so that a small cluster on one machine is safe and quick. A broker
that you start yourself (`ottla broker run`) has the defaults below instead.

| setting | by `ottla up` | by default | why |
|---|---|---|---|
| `zookeeper.session.timeout.ms` | 6000 | 18000 | a dead broker is noticed after 6 s |
| `default.replication.factor` | 3, or the number of brokers if that is less | 1 | a topic survives a broker |
| `min.insync.replicas` | 2 with three brokers or more | 1 | an acknowledged record is on two of them |
| `offsets.topic.replication.factor`, `transaction.state.log.replication.factor` | as `default.replication.factor` | 3 | they can be created with fewer brokers |
| `controlled.shutdown.retry.backoff.ms` | 500 | 5000 | when a whole cluster stops, its last brokers have no broker to hand over to |
"""

CLIENTS = """\
## Producers and groups

These are set in clients, not here; defaults are those of Kafka 3.9's Java clients, others may differ. What a broker demands of them:

| setting of a client | default | what it does to your records |
|---|---|---|
| `acks` | `all` | `all`: acknowledged when every replica in sync has the record, and at least `min.insync.replicas` of them. `1`: when the leader has it; lost if the leader dies at once. `0`: there is no acknowledgement |
| `enable.idempotence` | `true` | a record that is sent again stands once, in order. Needs `acks=all` and at most 5 requests in flight |
| `max.in.flight.requests.per.connection` | 5 | without idempotence more than 1 may change the order after an error |
| `delivery.timeout.ms` | 120000 | how long the client tries. Must be longer than a failover: session timeout and two seconds |
| `request.timeout.ms` | 30000 | how long it waits for one answer; then it asks another leader |
| `transactional.id`, `transaction.timeout.ms` | none, 60000 | a transaction without news for so long is aborted; at most the brokers' `transaction.max.timeout.ms` |
| `isolation.level` | `read_uncommitted` | `read_committed` leaves out what was aborted or is undecided |
| `group.id`, `group.instance.id` | none | which group a consumer belongs to; a static member keeps its partitions over a restart |
| `session.timeout.ms` | 45000 | a member without a heartbeat for so long is out; between `group.min.session.timeout.ms` and `group.max.session.timeout.ms` of the brokers |
| `max.poll.interval.ms` | 300000 | a member that does not ask for records for so long leaves the group |
| `auto.offset.reset` | `latest` | where to begin without an offset |
| `fetch.max.bytes`, `max.partition.fetch.bytes` | 52428800, 1048576 | size of answers; at most the brokers' `fetch.max.bytes` |
| `client.rack` | none | with `replica.selector.class`: read from a replica in this rack |

Our own commands take Kafka's `client.properties` by `--command-config`; of it they use `bootstrap.servers`, `client.id`,
`request.timeout.ms`, and of security `security.protocol`, the keys `ssl.*` ([TLS](security/TLS.md)), `sasl.mechanism`,
`sasl.jaas.config` and `sasl.oauthbearer.token.endpoint.url` ([SASL](security/SASL.md)).
"""


def texts(table: str) -> dict[str, str]:
    return {name: text for name, _, text in (line.partition(" ") for line in table.split("\n"))}


TOPIC, BROKER = texts(TOPIC_TEXTS), texts(BROKER_TEXTS)


def value(text: str | None) -> str:
    if text is None:
        return "not set"
    return f"`{text}`" if text else "empty"


def allowed(key: ConfigKey) -> str:
    limits = key.limits
    if limits == "throttled":
        return "`*`, or partition:broker, …"
    if limits == "version":
        return "a version of Kafka, `3.9`"
    limits, _, other = limits.partition("|")
    low, dots, high = limits.partition("..")
    if dots:
        span = f"{low} to {high}" if high else f"at least {low}"
        return f"{span}, or {other}" if other else span
    return ", ".join(f"`{choice}`" for choice in limits.split(",")) if limits else ""


def in_force(name: str) -> bool:
    """Say whether a topic's setting is obeyed: those that are not, are no field."""
    return name.replace(".", "_") in TopicConfig.__dataclass_fields__


def topic_rows() -> Iterable[str]:
    for name, key in topic_keys().items():
        if in_force(name):
            behind = ", ".join(f"`{broker}`" for broker, _ in TOPIC_SYNONYMS.get(name, ()))
            yield f"| `{name}` | {key.type} | {value(key.default)} | {allowed(key)} | {behind} | {TOPIC[name]} |"


def changes(name: str) -> str:
    if name in OF_LISTENERS and name not in LISTENER_PASSWORDS:
        return "per listener"
    if name in UNSERVED or (name not in DYNAMIC_KEYS and name not in DYNAMIC_ONLY_KEYS):
        return ""
    return "yes"


def broker_rows(keys: Iterable[ConfigKey]) -> Iterable[str]:
    for key in keys:
        default = value(OUR_DEFAULTS.get(key.name, key.default))
        if key.name in OUR_DEFAULTS:
            default += " **differs**"
        yield f"| `{key.name}` | {key.type} | {default} | {allowed(key)} | {changes(key.name)} | {BROKER[key.name]} |"


def security(name: str) -> bool:
    beginnings = (
        "ssl.", "sasl.", "zookeeper.ssl.", "delegation.token.", "password.encoder.", "security.", "principal.",
        "authorizer.", "connections.max.reauth.", "connection.failed.authentication.", "zookeeper.set.acl",
    )  # fmt: skip
    return name.startswith(beginnings)


def without_effect() -> list[str]:
    """Return the broker settings that are taken, checked and shown, and that nothing here obeys."""
    behind = {
        b for topic, synonyms in TOPIC_SYNONYMS.items() if in_force(topic) for b, _ in synonyms
    }
    served = {*BROKER, *REFUSED, *SWITCHES, *behind}
    return [name for name in broker_keys() if name not in served and not security(name)]


def listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def page() -> str:
    differs = ["| setting | Kafka | here | why |", "|---|---|---|---|"]
    differs += [
        f"| `{name}` | {value(broker_keys()[name].default)} | {value(OUR_DEFAULTS[name])} | {WHY_DIFFERENT[name]} |"
        for name in OUR_DEFAULTS
    ]
    head = [
        "| setting | type | default | allowed | dynamic | what it does |",
        "|---|---|---|---|---|---|",
    ]
    plain = [key for name, key in broker_keys().items() if name in BROKER]
    threads = [
        *(n for n in THREAD_COUNTS if n not in BROKER),
        CLEANER_THREADS,
        "queued.max.requests",
    ]
    refused = {*SWITCHES}
    guards = [n for n in broker_keys() if security(n) and n not in BROKER and n not in refused]
    lines = [
        HEAD,
        DIFFERENT.format(table="\n".join(differs)),
        "## Topics\n",
        "Without a setting of its own a topic takes the first of the broker settings named *from the broker* that is set, else the default.",
        "All of them can be changed at any time.\n",
        "| setting | type | default | allowed | from the broker | what it does |",
        "|---|---|---|---|---|---|",
        *topic_rows(),
        "\n## Brokers\n",
        "What stands behind a topic's setting is in the table above and not repeated here. Each `ssl.*` key may be set for one listener:",
        "`listener.name.<listener>.ssl...`, the listener in small letters; only so does it change while a broker runs.\n",
        *head,
        *broker_rows(plain),
        "\n## Throttles\n",
        "These exist only dynamically; reassignments set and remove them.\n",
        *head,
        *broker_rows(DYNAMIC_ONLY_KEYS.values()),
        "\n## Ottla's own\n",
        "Kafka does not have these; its brokers warn of them and go on.\n",
        *head,
        *broker_rows(our_keys().values()),
        "",
        CLIENTS,
        "## Refused at the start\n",
        "A broker that ignored these would be open, or would break a promise. It does not start, and names the key:\n",
        *(f"- `{name}=true`: {why}" for name, why in SWITCHES.items()),
        *(f"- `{name}`: names a Java class, which cannot run here" for name in REFUSED),
        "- `authorizer.class.name` with any other class than Kafka's AclAuthorizer",
        "- `super.users`, `allow.everyone.if.no.acl.found` without `authorizer.class.name`",
        "- `authorizer.zookeeper.*`: ACLs are read from `zookeeper.connect`",
        "- `principal.builder.class`, `sasl.server.callback.handler.class`: a Java class of your own",
        "- `zookeeper.set.acl=true` without SASL or a certificate for ZooKeeper: [security/ZOOKEEPER.md](security/ZOOKEEPER.md)",
        "- a SASL listener that is half-made: [security/SASL.md](security/SASL.md#what-does-not-start)",
        "- `process.roles`: KRaft is not served\n",
        "## Taken without effect\n",
        "These are known, checked and shown, so that files and tools made for Kafka work; nothing here obeys them.\n",
        f"- threads and queues ([REQUESTS.md](REQUESTS.md#what-the-settings-of-threads-and-queues-mean-here)): {listed(threads)}",
        f"- security, of what is not served: {listed(guards)}",
        f"- of topics: {listed(name for name in topic_keys() if not in_force(name))}",
        f"- all others: {listed(name for name in without_effect() if name not in threads)}",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
