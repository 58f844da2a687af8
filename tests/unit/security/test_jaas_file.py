"""JAAS files as Java reads them, and what is refused in one line without a secret."""

import pytest

from ottla.model.errors import ConfigError
from ottla.security.sasl.jaas import client_of, parse_jaas_file, users_of

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
FILE = f"""
/* Of ZooKeeper's guide { {"{"} } */
Server {{
  {DIGEST} required   // a comment with a "quotation mark
  user_super="adminsecret"
  user_bob="b{{o}}b // secret";
}};
Client{{ {DIGEST} required username=bob password="b\\"s"; }};
KafkaServer {{
  com.sun.security.auth.module.Krb5LoginModule required keyTab="/a/b" useKeyTab=true;
}};
"""


def test_sections():
    assert set(parse_jaas_file("f", FILE)) == {"Server", "Client", "KafkaServer"}
    assert users_of("f", FILE, "Server") == {"super": "adminsecret", "bob": "b{o}b // secret"}
    assert client_of("f", FILE, "Client") == ("bob", 'b"s')


@pytest.mark.parametrize(
    ("text", "section", "words"),
    [
        (FILE, "Klient", "no section Klient; there are: Client, KafkaServer, Server"),
        (FILE, "KafkaServer", "Kerberos is not served"),
        (FILE.replace("password", "pw"), "Client", "lacks username or password"),
        (FILE.replace("};\nClient", "}; }\nClient"), "Client", "was not opened"),
        (FILE.replace("KafkaServer", "Client"), "Client", "stands twice"),
        (FILE.rstrip().removesuffix("};"), "Client", "write each section"),
        (FILE.replace("bob password", '"${user}" password'), "Client", "is not replaced"),
        (FILE + '"', "Client", "not closed"),
        (FILE + "/* ", "Client", "not closed"),
        ("{ };", "Client", "write each section"),
        ("", "Client", "there are: none"),
        (FILE + "/" * 70_000, "Client", "no JAAS file"),
    ],
)
def test_what_is_refused(text, section, words):
    with pytest.raises(ConfigError) as raised:
        client_of("/etc/jaas.conf", text, section)
    assert words in str(raised.value)
    assert str(raised.value).startswith("/etc/jaas.conf")
    assert "secret" not in str(raised.value)


def test_a_server_without_users():
    with pytest.raises(ConfigError, match="names no user"):
        users_of("f", FILE, "Client")
