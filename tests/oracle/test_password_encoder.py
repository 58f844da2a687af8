"""Passwords of dynamic settings, both ways between Kafka's `EncryptingPasswordEncoder` and ours."""

import base64
import subprocess
from pathlib import Path

import pytest

from ottla.model.errors import ConfigError
from ottla.security.password_encoder import (
    CBC,
    DEFAULT_KEY_FACTORY,
    GCM,
    KEY_FACTORIES,
    PasswordEncoder,
)
from support import kafka_tools

pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(120),
    pytest.mark.skipif(kafka_tools.why_not() is not None, reason=str(kafka_tools.why_not())),
]
PROGRAM = Path(__file__).parents[1] / "support" / "PasswordTexts.java"
SECRET = "secret of the brokers é"
PASSWORDS = ["x", "key password", "Zoë 日本 \U0001f40d", 'a:b,c="d";\n\t', "p" * 1000]
ENCODERS = [
    *(PasswordEncoder(SECRET, name, CBC, 128, 1024) for name in KEY_FACTORIES),
    *(
        PasswordEncoder(SECRET, DEFAULT_KEY_FACTORY, cipher, bits, 4096)
        for cipher in (CBC, GCM)
        for bits in (128, 192, 256)
    ),
]


def by_java(asked):
    """Return what Kafka answers to (verb, encoder, text) triples; None: an exception."""
    lines = [
        f"{verb} ={b64(e.secret)} {e.key_factory} {e.cipher} {e.key_length} {e.iterations} "
        f"={b64(text)}\n"
        for verb, e, text in asked
    ]
    done = subprocess.run(
        [kafka_tools.java() or "java", "-Xmx128m", "-cp", f"{kafka_tools.libs()}/*", str(PROGRAM)],
        input="".join(lines), capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    found = done.stdout.splitlines()
    assert len(found) == len(lines)
    return [None if one == "error" else base64.b64decode(one[1:]).decode() for one in found]


def b64(text):
    return base64.b64encode(text.encode()).decode()


def test_each_decodes_what_the_other_encoded_and_both_refuse_the_same():
    pairs = [(encoder, password) for encoder in ENCODERS for password in PASSWORDS]
    ours = [encoder.encode(password) for encoder, password in pairs]
    other = PasswordEncoder("another secret", DEFAULT_KEY_FACTORY, CBC, 128, 1024)
    text = ours[0]
    damaged = [
        text.replace("iterations:1024", "iterations:1025"),
        text.replace("passwordLength:1", "passwordLength:2"),
        text.replace("keyLength:128", "keyLength:256"),
        text.replace("initializationVector", "vector"),
        "x",
    ]
    asked = [
        *(("encode", encoder, password) for encoder, password in pairs),
        *(("decode", encoder, one) for (encoder, _), one in zip(pairs, ours, strict=True)),
        ("decode", other, text),
        *(("decode", ENCODERS[0], one) for one in damaged),
    ]
    found = by_java(asked)
    theirs, back, refused = (
        found[: len(pairs)], found[len(pairs) : 2 * len(pairs)], found[2 * len(pairs) :]
    )  # fmt: skip
    assert back == [password for _, password in pairs]
    assert [e.decode(one) for (e, _), one in zip(pairs, theirs, strict=True)] == back
    # The names and the order-free form are the same, too.
    names = [
        sorted(part.rpartition(":")[0] for part in one.split(",")) for one in (text, theirs[0])
    ]
    assert names[0] == names[1]
    assert refused == [None] * (1 + len(damaged))
    for encoder, one in ((other, text), *((ENCODERS[0], one) for one in damaged)):
        with pytest.raises(ConfigError):
            encoder.decode(one)
