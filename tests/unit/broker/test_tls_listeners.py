"""TLS of a running broker: principals of certificates, files that change, settings that change."""

import contextlib
import ssl

import pytest
import trustme

from ottla.broker.configs.dynamic_configs import BadDynamicConfigError, DynamicConfigs, check_names
from ottla.broker.lifecycle.tls_listeners import BrokerTls
from ottla.log.files import OsFiles
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError
from ottla.net.connection import CloseConnection
from ottla.net.runtime import real_world
from ottla.security.principals import ANONYMOUS, Principal
from support.certificates import tls_properties as properties


class Files:
    """A CA and what it issued, in a folder that tests change."""

    def __init__(self, folder):
        self.folder = folder
        self.ca = trustme.CA()
        self.ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        self.issue("good.pem", "127.0.0.1", "localhost", common_name="broker")

    def issue(self, name, *hosts, **more):
        path = self.folder / name
        made = self.ca.issue_cert(*hosts, **{"organization_unit_name": "t", **more})
        made.private_key_and_cert_chain_pem.write_to_path(str(path))
        path.chmod(0o600)
        return str(path)


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


class Client:
    """What a connection is to `authenticate`."""

    principal = ANONYMOUS


def authenticated(listener, client_context):
    """Shake hands in memory; return whom the listener takes the client for."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    server = listener.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    found = Client()
    listener.authenticate(found, server)
    return found.principal


def context(files, pem=None):
    made = ssl.create_default_context(cafile=str(files.folder / "ca.pem"))
    if pem:
        made.load_cert_chain(pem)
    return made


def tls_of(files, **changes):
    config = BrokerConfig(properties(files.folder, **changes))
    return BrokerTls(config, real_world(OsFiles())), config


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=Alice,OU=team,O=org"),
        ("RULE:^CN=(.*?),.*$/$1/L,DEFAULT", "alice"),
    ],
)
def test_a_clients_certificate_is_its_principal(files, rules, name):
    tls, _ = tls_of(files, ssl_client_auth="requested", ssl_principal_mapping_rules=rules)
    pem = files.issue(
        "a.pem", "x", common_name="Alice", organization_unit_name="team", organization_name="org"
    )
    listener = tls.listeners["SSL"]
    assert authenticated(listener, context(files, pem)) == Principal("User", name)
    assert authenticated(listener, context(files)) == ANONYMOUS


def test_a_name_that_no_rule_has_is_not_let_in(files):
    tls, _ = tls_of(
        files, ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=admin$/admin/"
    )
    pem = files.issue("a.pem", "x", common_name="alice")
    with pytest.raises(CloseConnection, match="no principal: No rules apply to"):
        authenticated(tls.listeners["SSL"], context(files, pem))


def test_a_suite_of_tls_13_that_is_not_listed_is_refused(files):
    """ssl cannot limit those of TLS 1.3: who agreed on another one is closed."""
    tls, _ = tls_of(files, ssl_cipher_suites="TLS_CHACHA20_POLY1305_SHA256")
    with pytest.raises(CloseConnection, match="TLS_AES_256_GCM_SHA384 is not among"):
        authenticated(tls.listeners["SSL"], context(files))
    tls, _ = tls_of(files, ssl_cipher_suites="TLS_AES_256_GCM_SHA384")
    assert authenticated(tls.listeners["SSL"], context(files)) == ANONYMOUS
    assert tls.listeners["SSL"].context.minimum_version == ssl.TLSVersion.TLSv1_3


def test_suites_of_tls_12_alone_are_no_tls_13(files):
    tls, _ = tls_of(files, ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
    made = tls.listeners["SSL"].context
    assert made.maximum_version == ssl.TLSVersion.TLSv1_2
    names = {c["name"] for c in made.get_ciphers() if c["protocol"] == "TLSv1.2"}
    assert names == {"ECDHE-ECDSA-AES128-GCM-SHA256"}


def test_files_that_change_are_read_again_and_bad_ones_change_nothing(files, caplog):
    tls, _ = tls_of(files)
    listener = tls.listeners["SSL"]
    first = listener.context
    tls.reload_changed()
    assert listener.context is first
    files.issue("good.pem", "127.0.0.1", common_name="broker")
    tls.reload_changed()
    second = listener.context
    assert second is not first
    assert tls.client("SSL").context() is not None
    (files.folder / "good.pem").write_bytes(b"")
    for _ in range(5):
        tls.reload_changed()
    assert listener.context is second
    errors = [r for r in caplog.records if "not reloaded" in r.getMessage()]
    assert len(errors) == 2, "one line for each side, however often it is tried"
    files.issue("good.pem", "127.0.0.1", common_name="broker")
    tls.reload_changed()
    assert listener.context is not second


KEY = "listener.name.ssl.ssl.keystore.location"


def test_another_keystore_must_be_the_same_brokers(files):
    tls, config = tls_of(files)
    same = files.issue("same.pem", "127.0.0.1", "localhost", "more.example", common_name="broker")
    other = files.issue("other.pem", "127.0.0.1", "localhost", common_name="someone")
    fewer = files.issue("fewer.pem", "127.0.0.1", common_name="broker")
    tls.check(config.properties | {KEY: same})
    with pytest.raises(ConfigError, match="DistinguishedName does not match"):
        tls.check(config.properties | {KEY: other})
    with pytest.raises(ConfigError, match=r"SubjectAltNames do not match: missing=\['localhost'\]"):
        tls.check(config.properties | {KEY: fewer})
    with pytest.raises(ConfigError, match="No such file"):
        tls.check(config.properties | {KEY: f"{files.folder}/none.pem"})
    tls.check(config.properties | {KEY: other, "ssl.allow.dn.changes": "true"})
    before = tls.listeners["SSL"].context
    assert tls.listeners["SSL"].context is before, "a check changes nothing"


def test_settings_of_a_listener_change_while_the_broker_runs(files):
    tls, config = tls_of(files)
    dynamic = DynamicConfigs(config, lambda _: tls.apply(), tls.check)
    same = files.issue("same.pem", "127.0.0.1", "localhost", common_name="broker")
    before = tls.listeners["SSL"].endpoint.own
    dynamic.check({KEY: same}, per_broker=True)
    dynamic._take({}, {KEY: same})
    now = tls.listeners["SSL"].endpoint.own
    assert now != before
    files.issue("same.pem", "127.0.0.1", "localhost", common_name="broker")
    dynamic._take({}, {KEY: same})  # set again: Kafka's way to say that the file has changed
    assert tls.listeners["SSL"].endpoint.own != now
    dynamic._take({}, {})
    assert tls.listeners["SSL"].endpoint.own == before


@pytest.mark.parametrize(
    ("settings", "per_broker", "words"),
    [
        ({KEY: "/none.pem"}, True, "No such file"),
        ({KEY: "/none.pem"}, False, "Cannot update these configs at default cluster level"),
        ({"listener.name.ssl.ssl.keystore.password": "s3cret"}, True, "PEM has no password"),
        ({"listener.name.ssl.ssl.client.auth": "maybe"}, True, "String must be one of"),
        ({"ssl.keystore.location": "/a"}, True, "only per-listener using the listener prefix"),
        ({"listener.name.ssl.broker.id": "2"}, True, "Cannot update these configs dynamically"),
    ],
)
def test_what_cannot_change_is_refused(files, settings, per_broker, words):
    tls, config = tls_of(files)
    dynamic = DynamicConfigs(config, lambda _: None, tls.check)
    with pytest.raises(BadDynamicConfigError, match=words) as caught:
        dynamic.check(settings, per_broker=per_broker)
    assert "s3cret" not in str(caught.value)


def test_names_of_listeners_that_may_change():
    check_names({"listener.name.any.ssl.truststore.location": "/a"})
