"""Passwords as Kafka keeps them in ZooKeeper; that Kafka's class agrees is in tests/oracle."""

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError
from ottla.security.password_encoder import (
    CBC,
    GCM,
    MOST_ITERATIONS,
    OLD_SECRET,
    PasswordEncoder,
    password_encoder,
)

MINIMAL = {"broker.id": "1", "zookeeper.connect": "z:1"}


def values(text):
    return dict(part.rpartition(":")[::2] for part in text.split(","))


def test_the_text_is_what_kafkas_format_says():
    """Decoded by its description: PBKDF2, AES/CBC, PKCS#5, all of it named in the text."""
    found = values(PasswordEncoder("of-the-brokers").encode("key password é\U0001f40d"))
    assert found["keyFactoryAlgorithm"] == "PBKDF2WithHmacSHA512"
    assert (found["cipherAlgorithm"], found["keyLength"]) == (CBC, "128")
    assert (found["iterations"], found["passwordLength"]) == ("4096", "16")
    salt, iv, encrypted = (
        base64.b64decode(found[name])
        for name in ("salt", "initializationVector", "encryptedPassword")
    )
    assert len(salt) == 256
    key = hashlib.pbkdf2_hmac("sha512", b"of-the-brokers", salt, 4096, 16)
    made = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor()
    unpadder = padding.PKCS7(128).unpadder()
    data = unpadder.update(made.update(encrypted) + made.finalize()) + unpadder.finalize()
    assert data.decode() == "key password é\U0001f40d"


@pytest.mark.parametrize("cipher", [CBC, GCM])
@settings(max_examples=20)
@given(password=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_what_is_encoded_is_decoded_and_each_time_another_text(cipher, password):
    encoder = PasswordEncoder("s" * 20, "PBKDF2WithHmacSHA256", cipher, 256, 1)
    first, second = encoder.encode(password), encoder.encode(password)
    assert first != second
    # Other settings, the same secret: the text says what it was encoded by.
    assert PasswordEncoder("s" * 20).decode(first) == password


@pytest.mark.parametrize("cipher", [CBC, GCM])
def test_another_secret_and_damage_are_refused_without_the_password(cipher):
    encoder = PasswordEncoder("right-secret", cipher=cipher, iterations=1)
    text = encoder.encode("planted-password")
    changed = values(text)
    damaged = [
        "", "a", "planted-password", text[:-8], text.replace("iterations:1", "iterations:2"),
        text.replace("iterations:1", "iterations:x"),
        text.replace("iterations:1", f"iterations:{MOST_ITERATIONS + 1}"),
        text.replace("keyLength:128", "keyLength:129"), text.replace("SHA512", "MD5"),
        text.replace("AES", "DES"), text.replace("passwordLength:16", "passwordLength:17"),
        text.replace(changed["salt"], changed["salt"][4:]),
    ]  # fmt: skip
    for other, texts in ((encoder, damaged), (PasswordEncoder("wrong-secret"), [text])):
        for one in texts:
            with pytest.raises(ConfigError, match=r"^Password could not be decoded$") as found:
                other.decode(one)
            assert found.value.__cause__ is None
    assert encoder.decode(text) == "planted-password"
    assert "right-secret" not in repr(encoder)


def test_settings():
    assert password_encoder(BrokerConfig(MINIMAL)) is None
    config = BrokerConfig(
        MINIMAL
        | {
            "password.encoder.secret": "new-secret",
            "password.encoder.old.secret": "old-secret",
            "password.encoder.cipher.algorithm": GCM,
            "password.encoder.key.length": "256",
            "password.encoder.iterations": "2048",
            "password.encoder.keyfactory.algorithm": "PBKDF2WithHmacSHA1",
        }
    )
    wanted = ("PBKDF2WithHmacSHA1", GCM, 256, 2048)
    assert password_encoder(config) == PasswordEncoder("new-secret", *wanted)
    assert password_encoder(config, OLD_SECRET) == PasswordEncoder("old-secret", *wanted)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cipher.algorithm", "DES/CBC/PKCS5Padding"),
        ("keyfactory.algorithm", "PBEWithMD5AndDES"),
        ("key.length", "64"),
        ("iterations", str(MOST_ITERATIONS + 1)),
    ],
)
def test_what_is_not_served_is_refused_at_the_start(key, value):
    named = {f"password.encoder.{key}": value}
    assert password_encoder(BrokerConfig(MINIMAL | named)) is None
    config = BrokerConfig(MINIMAL | named | {"password.encoder.secret": "planted-secret"})
    with pytest.raises(ConfigError, match=rf"password\.encoder\.{key}={value}") as found:
        password_encoder(config)
    assert "planted-secret" not in str(found.value)
