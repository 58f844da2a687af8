"""Settings of SASL to ZooKeeper and of znodes' ACLs: what they mean, and what does not start."""

import pytest

from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError
from ottla.zookeeper import jute
from ottla.zookeeper.security import OPEN, ZooKeeperSecurity
from ottla.zookeeper.security_settings import zookeeper_security
from ottla.zookeeper.znode_acls import ANYONE, Identity, entries

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
FILES = {
    "/jaas": f'Client {{ {DIGEST} required username="kafka" password="s3cret"; }};',
    "/own": f'Ours {{ {DIGEST} required username="ottla" password="s3cret"; }};',
    "/krb": "Client { com.sun.security.auth.module.Krb5LoginModule required; };",
}
JAAS, SASL = "java.security.auth.login.config", "zookeeper.sasl.client"


def security(**settings):
    def read_bytes(path):
        if path not in FILES:
            raise FileNotFoundError(2, "No such file or directory", path)
        return FILES[path].encode()

    given = {key.replace("_", "."): value for key, value in settings.items()}
    config = BrokerConfig({"broker.id": "0", "zookeeper.connect": "zk:2181", **given})
    return zookeeper_security(config, read_bytes)


def test_nothing_set_is_nobody_and_open():
    assert security() is OPEN
    assert security(zookeeper_sasl_client="false") is OPEN
    assert OPEN.acl_of("/config/users/u") == jute.OPEN_ACL
    assert OPEN.exchange() is None


def test_a_jaas_file_names_the_user():
    found = security(java_security_auth_login_config="/jaas")
    assert found == ZooKeeperSecurity("kafka", "s3cret")
    assert "s3cret" not in repr(found)
    own = {"java_security_auth_login_config": "/own", "zookeeper_sasl_clientconfig": "Ours"}
    assert security(zookeeper_set_acl="true", **own) == ZooKeeperSecurity("ottla", "s3cret", True)


def test_a_certificate_is_an_identity_as_well():
    tls = {
        "zookeeper_ssl_client_enable": "true",
        "zookeeper_ssl_keystore_location": "/broker.pem",
    }
    assert security(zookeeper_set_acl="true", **tls) == ZooKeeperSecurity(set_acl=True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"zookeeper_set_acl": "true"}, "zookeeper.set.acl=true, but this broker does not"),
        (
            {"zookeeper_set_acl": "true", "zookeeper_ssl_client_enable": "true"},
            "zookeeper.set.acl=true, but this broker does not",
        ),
        (
            {"java_security_auth_login_config": "/jaas", "zookeeper_sasl_client": "false"},
            "zookeeper.sasl.client=false",
        ),
        ({"java_security_auth_login_config": "/nosuch"}, f"{JAAS}=/nosuch cannot be read"),
        ({"java_security_auth_login_config": "/own"}, "has no section Client"),
        ({"java_security_auth_login_config": "/krb"}, "Kerberos is not served"),
    ],
)
def test_f40_what_is_half_made_does_not_start(settings, words):
    with pytest.raises(ConfigError) as raised:
        security(**settings)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_acls_by_path():
    """As `ZkData.defaultAcls`; a test beside a real broker is in tests/compat."""
    secured = ZooKeeperSecurity("kafka", "x", set_acl=True)
    own, everyone = (31, Identity("auth", "")), (1, ANYONE)
    for path in ("/config/users", "/config/users/u", "/config/brokers/1",
                 "/delegation_token/tokens/t"):  # fmt: skip
        assert entries(secured.acl_of(path)) == [own], path
    for path in ("/brokers/ids/1", "/consumers/g", "/config/topics/t", "/kafka-acl/Topic"):
        assert entries(secured.acl_of(path)) == [own, everyone], path
    assert secured.acl_of("/consumers") == jute.OPEN_ACL
