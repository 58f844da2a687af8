"""Names of certificates and of mapping rules, compared with Java's and Kafka's own."""

import base64
import datetime as dt
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from ottla.model.errors import OttlaError
from ottla.security.distinguished_names import subject_text
from ottla.security.principal_mapping import PrincipalMapping
from support import kafka_tools

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(kafka_tools.why_not() is not None, reason=str(kafka_tools.why_not())),
]
PROGRAM = Path(__file__).parents[1] / "support" / "TlsNames.java"

ORG, OU, CN = NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COMMON_NAME
NAMES = [
    [[(CN, "alice")]],
    [[(NameOID.COUNTRY_NAME, "DE")], [(ORG, "Ottla")], [(OU, "x")], [(CN, "alice")]],
    [[(ORG, 'a,b+c"d\\e<f>g;h=i#j')], [(CN, "  two spaces  ")]],
    [[(CN, "#hash")], [(OU, " ")]],
    [[(CN, "Zoë 日本 \U0001f40d")], [(NameOID.LOCALITY_NAME, "Zürich")]],
    [[(NameOID.DOMAIN_COMPONENT, "com")], [(NameOID.DOMAIN_COMPONENT, "example")], [(CN, "x")]],
    [[(NameOID.USER_ID, "u1")], [(NameOID.STREET_ADDRESS, "Main St. 1")], [(CN, "y")]],
    [[(NameOID.STATE_OR_PROVINCE_NAME, "Bavaria")], [(NameOID.EMAIL_ADDRESS, "a@b.c")]],
    [[(NameOID.TITLE, "Dr")], [(NameOID.SERIAL_NUMBER, "42")], [(NameOID.GIVEN_NAME, "Ann")]],
    [[(CN, "multi"), (OU, "valued"), (NameOID.EMAIL_ADDRESS, "m@v")]],
    [[(CN, "new\nline\ttab\x01")]],
]
TYPED = [
    x509.NameAttribute(CN, "bmp ä", _type=_ASN1Type.BMPString),
    x509.NameAttribute(CN, "universal 日", _type=_ASN1Type.UniversalString),
    x509.NameAttribute(CN, "printable", _type=_ASN1Type.PrintableString),
    x509.NameAttribute(CN, "ia5@x", _type=_ASN1Type.IA5String),
]


def certificate(name: x509.Name) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name([x509.NameAttribute(CN, "somebody else")]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.DER)


def b64(text: bytes | str) -> str:
    data = text if isinstance(text, bytes) else text.encode()
    return base64.b64encode(data).decode()


def by_java(lines: list[str]) -> list[str | None]:
    done = subprocess.run(
        kafka_tools.command(str(PROGRAM)),
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return [
        None if line == "error" else base64.b64decode(line[1:]).decode()
        for line in done.stdout.splitlines()
    ]


def test_distinguished_names_like_java():
    names = [
        x509.Name(
            [x509.RelativeDistinguishedName([x509.NameAttribute(*a) for a in rdn]) for rdn in name]
        )
        for name in NAMES
    ]
    names += [x509.Name([attribute]) for attribute in TYPED]
    made = [certificate(name) for name in names]
    java = by_java([f"dn {b64(der)}" for der in made])
    assert len(java) == len(made)
    for der, expected in zip(made, java, strict=True):
        assert expected is not None
        assert subject_text(der) == expected


RULES = [
    "DEFAULT",
    "",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/U",
    "RULE:.*/x/",
    "RULE:CN=(\\w+).*/user-$1-$2-$0/,DEFAULT",
    "RULE:CN=(\\w+),(.*)/$12/",
    "RULE:CN=(\\w+)/$1\\$2\\/x/",
    "RULE:CN=\\w+/$1/",
    "RULE:CN=(\\w+).*/$2$1$3$123/",
    "RULE:CN=(\\w+).*/$1\\\\$1/",
    "RULE:CN=(\\p{Alpha}+)/$1/U,RULE:(?<n>.*)/$1!/",
    "RULE:CN=([\\p{Lower}x]+)(,.*)?/$1$2/",
    "RULE:(CN)=(?:a|b)++(.*)/$1$2/",
    "RULE:CN=(.)(.*)/$/",
    "RULE:a|CN=alice/m/",
    "RULE:(a)|(CN)=alice/[$1$2]/",
]
SUBJECTS = [
    "CN=alice",
    "CN=Alice,OU=ServiceUsers,O=Org",
    "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
    "CN=ab,O=c",
    "CN=Zoë",
    "",
]


def ours(rules: str, name: str) -> str | None:
    try:
        return PrincipalMapping(rules).name(name)
    except OttlaError:
        return None


def test_mapping_rules_like_kafka():
    pairs = [(rules, name) for rules in RULES for name in SUBJECTS]
    kafka = by_java([f"map {b64(rules)} {b64(name)}" for rules, name in pairs])
    differ = {
        pair: (ours(*pair), expected)
        for pair, expected in zip(pairs, kafka, strict=True)
        if ours(*pair) != expected
    }
    assert not differ
    assert sum(name is not None for name in kafka) > 20
