"""SASL to a real ZooKeeper, and the ACLs of znodes: brokers of ours beside Kafka's."""

import re

import pytest
from confluent_kafka.admin import NewTopic, ScramCredentialInfo, ScramMechanism
from confluent_kafka.admin import UserScramCredentialUpsertion as Upsertion

from ottla.zookeeper.embedded import start_own_zookeeper
from support import kafka_tools
from support.clients import admin_client, create_topics, produce
from support.cluster import OttlaCluster
from support.guarded import ACCESS
from support.secured_zookeeper import USER, SecuredKafka, acls, jaas_file, migrate
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.alone,
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]

SECURE = {**ACCESS, "zookeeper_set_acl": "true", "super_users": "User:ANONYMOUS"}
READ, ALL = 1, 31
OPEN, OWNED = f"world:anyone:{ALL}", f"sasl:{USER}:{ALL}"


@pytest.fixture(scope="module")
def jaas(tmp_path_factory):
    return jaas_file(tmp_path_factory.mktemp("jaas"))


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory, jaas):
    with SecuredKafka(tmp_path_factory.mktemp("zookeeper"), jaas, only_zookeeper=True) as running:
        yield running.zookeeper


def ours(folder, zookeeper, jaas, **more):
    settings = {**SECURE, "java_security_auth_login_config": str(jaas), **more}
    return OttlaCluster(folder, 1, zookeeper=zookeeper, **settings)


def use(cluster, user="u"):
    """Have znodes made as an administrator can: of topics, their settings, users."""
    admin = admin_client(cluster.bootstrap)
    create_topics(admin, NewTopic(f"topic-{user}", 2, 1))
    (future,) = admin.alter_user_scram_credentials(
        [Upsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret")]
    ).values()
    future.result(20)


def kinds(found):
    """Return ACLs by path, numbers in paths being one."""
    return {re.sub(r"\d+", "N", path): acl for path, acl in found.items()}


def test_znodes_have_the_acls_that_kafka_gives_them(tmp_path, zookeeper, jaas):
    """Those that are made at once, and those that Kafka's tool changes later."""
    with SecuredKafka(tmp_path / "jvm", jaas, zookeeper=f"{zookeeper}/jvm", **SECURE) as kafka:
        use(kafka)
        theirs = kinds(acls(zookeeper, "/jvm"))
    with ours(tmp_path / "ours", f"{zookeeper}/ours", jaas) as cluster:
        use(cluster)
        found = kinds(acls(zookeeper, "/ours"))
    assert {path: found.get(path) for path in theirs} == theirs
    more = {path: acl for path, acl in found.items() if path not in theirs}
    assert all(path.startswith("/ottla") for path in more)
    assert set(more.values()) == {(OWNED, f"world:anyone:{READ}")}
    assert found["/config/users/u"] == found["/config/brokers"] == (OWNED,)
    assert found["/consumers"] == (OPEN,)

    with ours(tmp_path / "later", f"{zookeeper}/later", jaas, zookeeper_set_acl="false") as cluster:
        use(cluster)
        assert set(acls(zookeeper, "/later").values()) == {(OPEN,)}
        migrate(jaas, f"{zookeeper}/later", "secure")
        later = kinds(acls(zookeeper, "/later"))
        assert {path: later.get(path) for path in theirs if path} == {
            path: acl for path, acl in theirs.items() if path
        }
        cluster.settings["zookeeper.set.acl"] = "true"
        cluster.terminate(0)
        cluster.start_broker(0)
        use(cluster, "u2")


def test_brokers_of_both_kinds_share_our_zookeeper_server(tmp_path, jaas):
    """One that serves nobody who did not authenticate; a leader of each kind is killed."""
    server = start_own_zookeeper(tmp_path / "zookeeper", jaas_file=jaas)
    try:
        with (
            ours(tmp_path / "ours", server.connect_string, jaas) as cluster,
            SecuredKafka(
                tmp_path / "jvm", jaas, ids=[1], zookeeper=server.connect_string, **SECURE
            ),
        ):
            until(lambda: cluster.known_to(0) == {0, 1}, 30, "both are known")
            admin = admin_client(cluster.bootstrap)
            create_topics(admin, NewTopic("t", 2, 2))
            produce(cluster.bootstrap, "t", [b"%d" % n for n in range(100)], 2)
            server.kill()
            server = start_own_zookeeper(tmp_path / "zookeeper", server.port, jaas_file=jaas)
            use(cluster)
            assert cluster.known_to(0) == {0, 1}, "sessions went on, authenticated again"
    finally:
        server.stop()
