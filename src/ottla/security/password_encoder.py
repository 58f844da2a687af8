"""Password encoder: how passwords of dynamic settings stand in ZooKeeper, as Kafka writes them.

Invariants: what was encoded by a JVM broker with the same secret is decoded here, and the reverse;
no password and no secret is in an error or in a text form. Kafka: `EncryptingPasswordEncoder`,
`PasswordEncoderConfigs`, and `Csv` for `name:value,name:value`.
"""

import base64
import binascii
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError

SECRET, OLD_SECRET = "password.encoder.secret", "password.encoder.old.secret"
CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
KEY_FACTORIES = {
    f"PBKDF2WithHmac{name}": name.lower()
    for name in ("SHA1", "SHA224", "SHA256", "SHA384", "SHA512")
}
"""Java's names, and hashlib's."""
DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"
KEY_LENGTHS = (128, 192, 256)
"""Bits, of AES."""
SALT_BYTES, BLOCK_BYTES, GCM_IV_BYTES, GCM_TAG_BITS = 256, 16, 12, 128
MOST_ITERATIONS = 1_000_000
"""About half a second. A znode that asks for more would hold up everything else."""
MOST_CHARACTERS = 1_048_576
NOT_DECODED = "Password could not be decoded"


@dataclass(frozen=True, slots=True)
class PasswordEncoder:
    """Encodes by its settings; decodes whatever the same secret was used for."""

    secret: str = field(repr=False)
    key_factory: str = DEFAULT_KEY_FACTORY
    cipher: str = CBC
    key_length: int = 128
    iterations: int = 4096

    def encode(self, password: str, random: Callable[[int], bytes] = os.urandom) -> str:
        """Return the text for a znode; `random` gives so many unpredictable bytes."""
        salt = random(SALT_BYTES)
        key = self._key(self.key_factory, salt, self.iterations, self.key_length)
        values = {
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher,
            "keyLength": str(self.key_length),
            "salt": _base64(salt),
            "iterations": str(self.iterations),
            "passwordLength": str(_java_length(password)),
        }
        if self.cipher == GCM:
            values["authenticationTagLength"] = str(GCM_TAG_BITS)
        iv = random(GCM_IV_BYTES if self.cipher == GCM else BLOCK_BYTES)
        encrypted = _encrypted(self.cipher, key, iv, password.encode())
        values |= {"initializationVector": _base64(iv), "encryptedPassword": _base64(encrypted)}
        return ",".join(f"{name}:{value}" for name, value in values.items())

    def decode(self, text: str) -> str:
        """Return the password; ConfigError if the secret is another one, or the text damaged."""
        try:
            return self._decoded(text)
        except (KeyError, ValueError, binascii.Error):  # never the cause: it may have the password
            raise ConfigError(NOT_DECODED) from None

    def _decoded(self, text: str) -> str:
        if len(text) > MOST_CHARACTERS:
            raise ValueError("too long")
        pairs = (part.rpartition(":") for part in text.split(","))
        values = {name.strip(): value.strip() for name, _, value in pairs}
        iterations = int(values["iterations"])
        if not 0 < iterations <= MOST_ITERATIONS:
            raise ValueError("iterations")
        salt, iv, encrypted = (
            base64.b64decode(values[name], validate=True)
            for name in ("salt", "initializationVector", "encryptedPassword")
        )
        factory, length = values["keyFactoryAlgorithm"], int(values["keyLength"])
        key = self._key(factory, salt, iterations, length)
        cipher = values["cipherAlgorithm"]
        if cipher == GCM and int(values["authenticationTagLength"]) != GCM_TAG_BITS:
            raise ValueError("authenticationTagLength")
        password = _decrypted(cipher, key, iv, encrypted).decode()
        if _java_length(password) != int(values["passwordLength"]):
            raise ValueError("passwordLength")
        return password

    def _key(self, factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
        if bits not in KEY_LENGTHS:
            raise ValueError("keyLength")
        name = KEY_FACTORIES[factory]
        return hashlib.pbkdf2_hmac(name, self.secret.encode(), salt, iterations, bits // 8)


def password_encoder(config: BrokerConfig, key: str = SECRET) -> PasswordEncoder | None:
    """Return what settings say, None without that secret; ConfigError for what is not served."""
    secret = config.text(key)
    if not secret:
        return None
    factory = config.text("password.encoder.keyfactory.algorithm") or DEFAULT_KEY_FACTORY
    cipher = config.text("password.encoder.cipher.algorithm")
    length = config.integer("password.encoder.key.length")
    for name, value, served in (
        ("password.encoder.keyfactory.algorithm", factory, KEY_FACTORIES),
        ("password.encoder.cipher.algorithm", cipher, (CBC, GCM)),
        ("password.encoder.key.length", length, KEY_LENGTHS),
    ):
        if value not in served:
            listed = ", ".join(map(str, served))
            raise ConfigError(f"{name}={value} is not served here; write one of {listed}")
    iterations = config.integer("password.encoder.iterations")
    if iterations > MOST_ITERATIONS:
        raise ConfigError(
            f"password.encoder.iterations={iterations}: at most {MOST_ITERATIONS:,} here"
        )
    return PasswordEncoder(secret, factory, cipher, length, iterations)


def _java_length(text: str) -> int:
    """Return the length of a Java string: in units of UTF-16."""
    return len(text.encode("utf-16-le")) // 2


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _encrypted(cipher: str, key: bytes, iv: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if cipher == GCM:
        return AESGCM(key).encrypt(iv, data, None)
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC as CHAINED

    missing = BLOCK_BYTES - len(data) % BLOCK_BYTES  # PKCS#5
    made = Cipher(AES(key), CHAINED(iv)).encryptor()
    return made.update(data + bytes([missing]) * missing) + made.finalize()


def _decrypted(cipher: str, key: bytes, iv: bytes, data: bytes) -> bytes:
    """Return what was encrypted; ValueError if that cannot be."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if cipher == GCM:
        try:
            return AESGCM(key).decrypt(iv, data, None)
        except InvalidTag:
            raise ValueError("authentication tag") from None
    if cipher != CBC:
        raise ValueError("cipherAlgorithm")
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC as CHAINED

    made = Cipher(AES(key), CHAINED(iv)).decryptor()
    padded = made.update(data) + made.finalize()
    missing = padded[-1] if padded else 0
    if not 1 <= missing <= BLOCK_BYTES or padded[-missing:] != bytes([missing]) * missing:
        raise ValueError("padding")
    return padded[:-missing]
