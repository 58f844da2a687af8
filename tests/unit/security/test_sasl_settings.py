"""F40: half-made SASL never starts, and says which key is meant; JAAS texts are read strictly."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.configs.unsupported_configs import refuse_unsupported_configs
from ottla.broker.requests.security.listeners import SaslListeners
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError
from ottla.security.sasl.jaas import parse_jaas
from ottla.security.sasl.settings import broker_sasl, tool_sasl

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OWN = "listener.name.sasl_plaintext"
GOOD = {
    "broker.id": "1",
    "zookeeper.connect": "zk:2181",
    "listeners": "SASL_PLAINTEXT://b1:9092",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    f"{OWN}.plain.sasl.jaas.config": (
        f'{PLAIN} required username="b" password="SeCrEt" user_b="SeCrEt";'
    ),
    f"{OWN}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
}
BEARING = {
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    f"{OWN}.oauthbearer.sasl.jaas.config": f"{BEARER} required;",
}


def started(**changes):
    values = {k: v for k, v in (GOOD | changes).items() if v is not None}
    config = BrokerConfig(values)
    refuse_unsupported_configs(config)
    return SaslListeners(config), config


def test_a_whole_listener_is_accepted():
    listeners, config = started()
    assert listeners.with_scram
    assert listeners.max_receive_bytes("SASL_PLAINTEXT") == 524_288
    assert broker_sasl(config, "SASL_PLAINTEXT").mechanism == "PLAIN"


def test_a_plaintext_broker_needs_nothing():
    listeners, config = started(**{
        **dict.fromkeys(GOOD), "broker.id": "1", "zookeeper.connect": "z:1",
        "listeners": "PLAINTEXT://b:9"})  # fmt: skip
    assert not listeners.with_scram
    assert listeners.max_receive_bytes("PLAINTEXT") is None
    assert broker_sasl(config, "PLAINTEXT") is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({f"{OWN}.plain.sasl.jaas.config": None}, f"{OWN}.plain.sasl.jaas.config is missing"),
        ({f"{OWN}.scram-sha-512.sasl.jaas.config": " "},
         f"{OWN}.scram-sha-512.sasl.jaas.config is missing"),
        ({f"{OWN}.plain.sasl.jaas.config": None, "sasl.jaas.config": f"{PLAIN} required;"},
         "sasl.jaas.config without that prefix is of no effect"),
        ({"sasl.enabled.mechanisms": ""}, "mechanisms of listener SASL_PLAINTEXT is empty"),
        ({f"{OWN}.sasl.enabled.mechanisms": ""}, "is empty"),
        ({"sasl.enabled.mechanisms": None}, "GSSAPI: Kerberos is not served here"),
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "GSSAPI: Kerberos is not served here"),
        ({"sasl.enabled.mechanisms": "PLAIN,CRAM-MD5"}, "CRAM-MD5: it is not served here"),
        ({"sasl.enabled.mechanisms": "PLAIN,PLAIN"}, "PLAIN twice"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-512"},
         "sasl.mechanism.inter.broker.protocol=PLAIN must be among sasl.enabled.mechanisms"),
        ({"sasl.mechanism.inter.broker.protocol": None}, "GSSAPI must be among"),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"},
         f"{OWN}.scram-sha-512.sasl.jaas.config lacks username or password"),
        ({f"{OWN}.plain.sasl.jaas.config": f'{PLAIN} required username="b" password="SeCrEt";'},
         "names no user"),
        ({f"{OWN}.plain.sasl.jaas.config": f'{SCRAM} required user_b="SeCrEt";'},
         f"the login module of PLAIN is {PLAIN}"),
        ({f"{OWN}.plain.sasl.jaas.config": f'{PLAIN} required user_b="SeCrEt"'}, "a semicolon"),
        ({f"{OWN}.plain.sasl.jaas.config": f'{PLAIN} required user_b="SeCrEt;'}, "quotation mark"),
        ({f"{OWN}.sasl.server.max.receive.size": "0"}, "sasl.server.max.receive.size=0"),
        ({f"{OWN}.plain.connections.max.reauth.ms": "x"}, "connections.max.reauth.ms=x"),
        ({"sasl.server.callback.handler.class": "com.example.Mine"}, "names a Java class"),
        ({f"{OWN}.plain.sasl.server.callback.handler.class": "x.Y"}, "names a Java class"),
        ({"principal.builder.class": "com.example.Mine"}, "principal.builder.class"),
        ({"delegation.token.secret.key": ""}, "delegation.token.secret.key is missing or empty"),
        ({"delegation.token.max.lifetime.ms": "5"}, "delegation.token.secret.key is missing"),
        ({"delegation.token.master.key": "SeCrEt", "sasl.enabled.mechanisms": "PLAIN"},
         "no listener has SCRAM"),
        (BEARING, "sasl.oauthbearer.jwks.endpoint.url is missing"),
        (BEARING | {"sasl.oauthbearer.jwks.endpoint.url": "ftp://x/y"}, "is no file:"),
        (BEARING | {"sasl.oauthbearer.jwks.endpoint.url": "https://idp/keys"},
         "is not in org.apache.kafka.sasl.oauthbearer.allowed.urls"),
        (BEARING | {"sasl.oauthbearer.jwks.endpoint.url": "file:///x",
                    "ottla.sasl.oauthbearer.unsigned.tokens.for.tests": "true"}, "contradict"),
    ],
)  # fmt: skip
def test_what_is_half_made_is_refused_in_one_line(changes, said):
    with pytest.raises(ConfigError) as refused:
        started(**changes)
    text = str(refused.value)
    assert said in text
    assert "\n" not in text
    assert "SeCrEt" not in text


def test_an_allowed_address_of_keys_is_accepted():
    url = "https://idp.example/keys"
    allowed = {"org.apache.kafka.sasl.oauthbearer.allowed.urls": f"https://a,{url}"}
    started(**BEARING, **allowed, **{"sasl.oauthbearer.jwks.endpoint.url": url})


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, "sasl.mechanism=GSSAPI (Kerberos) is not served here"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config is missing"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} required;"}, "lacks username"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{BEARER} required;"},
         "names no token"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{BEARER} required;",
          "sasl.oauthbearer.token.endpoint.url": "https://idp"}, "only file: is served"),
    ],
)  # fmt: skip
def test_a_tool_without_credentials_says_what_is_missing(properties, said):
    with pytest.raises(ConfigError) as refused:
        tool_sasl(properties)
    assert said in str(refused.value)


def test_the_client_of_a_tool_shows_no_secret():
    made = tool_sasl({
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="u" password="SeCrEt";',
    })  # fmt: skip
    assert "SeCrEt" not in repr(made)
    assert made.begin().respond(b"") == b"\0u\0SeCrEt"


# JAAS texts.


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a.B required;", {}),
        ("a.B required ;", {}),
        ("a.B REQUIRED x=\"1\" y=2 z='3';", {"x": "1", "y": "2", "z": "3"}),
        ('a.B required x="a;b=c \\"d\\" \\\\";', {"x": 'a;b=c "d" \\'}),
        ('a.B required\n  user_x = "1"\n  user_y="2";\n', {"user_x": "1", "user_y": "2"}),
        ('a.B required x="";', {"x": ""}),
    ],
)
def test_jaas(text, options):
    found = parse_jaas("key", text)
    assert (found.name, dict(found.options)) == ("a.B", options)


@pytest.mark.parametrize(
    "text",
    ["", ";", "a.B;", "a.B required", "a.B wanted;", "a.B required x;", "a.B required x=;",
     "a.B required =x;", 'a.B required x="1" x="2";', "a.B required; c.D required;",
     'a.B required x="1', 'a.B required x "1";', "a.B required x=1 y;"],
)  # fmt: skip
def test_jaas_that_is_not_understood(text):
    with pytest.raises(ConfigError, match=r"^key: "):
        parse_jaas("key", text)


@given(st.text())
def test_no_text_breaks_the_parser(text):
    with suppress(ConfigError):
        parse_jaas("key", text)


def test_a_module_shows_no_values():
    assert "SeCrEt" not in repr(parse_jaas("key", 'a.B required password="SeCrEt";'))
