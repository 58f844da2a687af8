"""Half-made TLS never starts (F40): each case names the key and the way out, and no password."""

import stat

import pytest
import trustme

from ottla.broker.configs.config_entries import Layers, broker_entries
from ottla.broker.lifecycle.tls_listeners import BrokerTls
from ottla.log.files import OsFiles
from ottla.model.config import BrokerConfig, shown
from ottla.model.errors import ConfigError
from ottla.net.runtime import real_world
from support.certificates import tls_properties as properties

SECRET = "do-not-print-me"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    ca, other = trustme.CA(), trustme.CA()
    good, foreign = ca.issue_cert("127.0.0.1"), other.issue_cert("127.0.0.1")
    for name, blob in (
        ("good.pem", good.private_key_and_cert_chain_pem),
        ("foreign.pem", foreign.private_key_and_cert_chain_pem),
        ("ca.pem", ca.cert_pem),
        ("only.crt", good.cert_chain_pems[0]),
        ("only.key", good.private_key_pem),
    ):
        blob.write_to_path(str(folder / name))
        (folder / name).chmod(0o600)
    (folder / "mixed.pem").write_bytes(
        foreign.private_key_pem.bytes() + good.cert_chain_pems[0].bytes()
    )
    return folder


def start(found):
    return BrokerTls(BrokerConfig(found), real_world(OsFiles()))


def test_settings_that_work(files):
    tls = start(properties(files))
    assert tls.client("SSL") is not None
    assert tls.client("OTHER") is None


CASES = [
    ({"ssl_keystore_location": None}, "ssl.keystore.location is not set"),
    ({"ssl_keystore_location": "{}/none.pem"}, "none.pem: No such file"),
    ({"ssl_keystore_location": "{}"}, "Is a directory"),
    ({"ssl_keystore_location": "{}/only.crt"}, "only.crt has no private key"),
    ({"ssl_keystore_location": "{}/only.key"}, "only.key has no certificate"),
    ({"ssl_keystore_location": "{}/mixed.pem"}, "does not fit the certificate"),
    ({"ssl_keystore_location": "{}/foreign.pem"}, "would not trust its own certificate"),
    ({"ssl_truststore_location": "{}/none.pem"}, "none.pem: No such file"),
    ({"ssl_truststore_location": "{}/only.key"}, "has no certificate to trust"),
    (
        {"ssl_truststore_location": None, "ssl_client_auth": "required"},
        "ssl.truststore.location is not set: whom public CAs know",
    ),
    ({"ssl_keystore_type": None}, "ssl.keystore.location is set, but ssl.keystore.password is not"),
    (
        {"ssl_keystore_type": None, "ssl_keystore_password": SECRET},
        "good.pem is PEM; set ssl.keystore.type=PEM",
    ),
    ({"ssl_keystore_password": SECRET}, "ssl.keystore.password: PEM has no password of the store"),
    ({"ssl_keystore_type": "BCFKS"}, "ssl.keystore.type=BCFKS: write one of JKS, PKCS12, PEM"),
    (
        {"ssl_keystore_key": SECRET},
        "ssl.keystore.location and ssl.keystore.certificate.chain are both set",
    ),
    ({"ssl_enabled_protocols": "TLSv1.1,TLSv1.2"}, "TLSv1.1 is not spoken here"),
    ({"ssl_enabled_protocols": "SSLv3"}, "SSLv3 is not spoken here"),
    ({"ssl_cipher_suites": "TLS_RSA_WITH_RC4_128_MD5"}, "TLS_RSA_WITH_RC4_128_MD5 is not known"),
    (
        {"ssl_cipher_suites": "TLS_AES_256_GCM_SHA384", "ssl_enabled_protocols": "TLSv1.2"},
        "ssl.cipher.suites has none for ssl.enabled.protocols",
    ),
    ({"ssl_client_auth": "sometimes"}, "ssl.client.auth: String must be one of"),
    ({"ssl_endpoint_identification_algorithm": "ldaps"}, "identification.algorithm=ldaps"),
    ({"ssl_principal_mapping_rules": "RULE:a"}, "ssl.principal.mapping.rules: Invalid rule"),
    ({"ssl_engine_factory_class": "com.example.Factory"}, "names a part of the JVM"),
    ({"ssl_provider": "BCFIPS"}, "ssl.provider=BCFIPS"),
    (
        {"inter_broker_listener_name": "SSL"},
        "Only one of inter.broker.listener.name and security.inter.broker.protocol",
    ),
    ({"security_inter_broker_protocol": "PLAINTEXT"}, "no advertised listener has that name"),
    (
        {"advertised_listeners": "SSL://h:1,PLAINTEXT://h:2"},
        "advertised.listeners: PLAINTEXT is not among listeners (SSL)",
    ),
    (
        {"control_plane_listener_name": "NONE"},
        "control.plane.listener.name=NONE is not an advertised listener",
    ),
    ({"control_plane_listener_name": "SSL"}, "SSL is the inter-broker listener"),
    ({"listener.name.ssl.ssl.client.auth": "maybe"}, "listener.name.ssl.ssl.client.auth"),
    (
        {"listener.name.ssl.ssl.keystore.location": "{}/none.pem"},
        "listener.name.ssl.ssl.keystore.location={}/none.pem: No such file",
    ),
]


@pytest.mark.parametrize(("changes", "words"), CASES, ids=[words[:40] for _, words in CASES])
def test_half_made_settings_do_not_start(files, changes, words):
    with pytest.raises(ConfigError) as caught:
        start(properties(files, **changes))
    text = str(caught.value)
    assert words.replace("{}", str(files)) in text
    assert "\n" not in text
    assert SECRET not in text


def test_a_listener_has_settings_of_its_own(files):
    found = properties(
        files,
        listeners="SSL://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        listener_security_protocol_map="SSL:SSL,CLIENTS:SSL",
    )
    found["listener.name.clients.ssl.client.auth"] = "required"
    found["listener.name.clients.ssl.keystore.location"] = f"{files}/foreign.pem"
    found["listener.name.clients.ssl.endpoint.identification.algorithm"] = ""
    tls = start(found)
    own, other = tls.listeners["CLIENTS"].endpoint, tls.listeners["SSL"].endpoint
    assert (own.settings.client_auth, other.settings.client_auth) == ("required", "none")
    assert own.own != other.own
    assert (own.settings.check_host, other.settings.check_host) == (False, True)
    assert BrokerConfig(found).unknown == []


def test_a_key_that_all_can_read_is_said(files, tmp_path, caplog):
    file = tmp_path / "open.pem"
    file.write_bytes((files / "good.pem").read_bytes())
    file.chmod(0o644)
    start(properties(files, ssl_keystore_location=str(file)))
    assert any("chmod 600" in r.getMessage() for r in caplog.records)
    caplog.clear()
    file.chmod(0o600)
    assert not stat.S_IMODE(file.stat().st_mode) & stat.S_IROTH
    start(properties(files, ssl_keystore_location=str(file)))
    assert not caplog.records


def test_passwords_are_never_shown():
    """In DescribeConfigs they are sensitive, for one listener as for all; in logs hidden."""
    base = {"broker.id": "1", "zookeeper.connect": "127.0.0.1:1"}
    secrets = {
        "ssl.key.password": SECRET,
        "ssl.keystore.key": SECRET,
        "listener.name.x.ssl.keystore.password": SECRET,
        "listener.name.plaintext.ssl.keystore.key": SECRET,
        "plugin.secret": SECRET,
    }
    open_ones = {"listener.name.plaintext.ssl.keystore.location": "/a"}
    config = BrokerConfig(base | secrets | open_ones)
    entries = {e.name: e for e in broker_entries(config)}
    for name in secrets:
        assert entries[name].sensitive, name
        assert entries[name].value is None
        assert all(s.value is None for s in entries[name].synonyms)
    assert entries["listener.name.plaintext.ssl.keystore.location"].value == "/a"
    dynamic = {e.name: e for e in broker_entries(BrokerConfig(base), Layers(secrets, {}))}
    assert SECRET not in repr(dynamic)
    assert SECRET not in repr(shown(secrets | open_ones))
    assert shown(open_ones) == open_ones
