"""TLS settings: what Kafka's `ssl.*` keys say for one listener or one client.

Pure. Invariant: settings that contradict each other, or that would be kept and not obeyed, are a
ConfigError that names the key as it was written, with its listener. Kafka: `SslConfigs`,
`DefaultSslEngineFactory`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError

PEM, JKS, PKCS12 = "PEM", "JKS", "PKCS12"
STORE_TYPES = (JKS, PKCS12, PEM)
NONE, REQUESTED, REQUIRED = "none", "requested", "required"
TLS12, TLS13 = "TLSv1.2", "TLSv1.3"

KEYSTORE = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
)
TRUSTSTORE = (
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
)

JAVA_CLASSES = (
    "ssl.engine.factory.class",
    "ssl.provider",
    "ssl.secure.random.implementation",
)
"""They name something of the JVM, which does not run here."""


TLS13_SUITES = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)

_EXCHANGES = ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA")
_CIPHERS = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
}

OPENSSL_NAMES = {
    f"TLS_{exchange}_WITH_{cipher}": f"{exchange.replace('_', '-')}-{name}"
    for exchange in _EXCHANGES
    for cipher, name in _CIPHERS.items()
    if exchange != "DHE_RSA" or cipher != "AES_256_CBC_SHA384"
} | {"TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256"}


def openssl_name(name: str) -> str | None:
    """Return OpenSSL's name of a suite of TLS 1.2, None for one that is not offered here."""
    return OPENSSL_NAMES.get(name)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A keystore or a truststore. `where` names its keys in messages."""

    where: str
    type: str = JKS
    location: str = ""
    password: str | None = None
    key_password: str | None = None
    certificates: str = ""
    key: str = ""
    """certificates and the key as PEM text, instead of a file"""

    @property
    def given(self) -> bool:
        return bool(self.location or self.certificates or self.key)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How one listener, or a client of it, speaks TLS."""

    keystore: StoreSettings
    truststore: StoreSettings
    client_auth: str = NONE
    protocols: tuple[str, ...] = (TLS12, TLS13)
    tls12_ciphers: tuple[str, ...] = ()
    """OpenSSL's names; none: the usual ones"""
    tls13_ciphers: tuple[str, ...] = ()
    check_host: bool = True
    mapping_rules: str = "DEFAULT"
    where: str = ""
    """what stands before each key: `listener.name.x.` or nothing"""


def listener_settings(config: BrokerConfig, listener: str) -> TlsSettings:
    """Return a listener's settings; ConfigError for what cannot be obeyed."""
    prefix = f"listener.name.{listener.lower()}."
    sasl = config.protocol_of(listener) == "SASL_SSL"
    of_listener = any(key.startswith(f"{prefix}ssl.") for key in config.properties)

    def text(key: str) -> str:
        own = config.properties.get(f"{prefix}{key}")
        value = config[key]
        if own is None and isinstance(value, list):
            return ",".join(value)
        if key == "ssl.client.auth" and own is None and sasl:
            return NONE  # Kafka: with SASL certificates are asked for only where a listener says so
        return config.listener_text(listener, key)

    return tls_settings(text, prefix if of_listener else "")


def tls_settings(text: Callable[[str], str], where: str = "") -> TlsSettings:
    """Return settings read by `text`, which returns "" for what is not set."""
    for key in JAVA_CLASSES:
        if text(key):
            raise ConfigError(f"{where}{key}={text(key)} names a part of the JVM; remove it")
    protocols = _listed(text("ssl.enabled.protocols")) or (TLS12, TLS13)
    for protocol in protocols:
        if protocol not in (TLS12, TLS13):
            raise ConfigError(
                f"{where}ssl.enabled.protocols: {protocol} is not spoken here; "
                f"name {TLS12} and {TLS13}"
            )
    tls12, tls13 = _ciphers(_listed(text("ssl.cipher.suites")), where)
    if tls12 or tls13:
        allowed = ((TLS12, tls12), (TLS13, tls13))
        protocols = tuple(p for p, ciphers in allowed if ciphers and p in protocols)
        if not protocols:
            raise ConfigError(f"{where}ssl.cipher.suites has none for ssl.enabled.protocols")
    client_auth = text("ssl.client.auth") or NONE
    if client_auth not in (NONE, REQUESTED, REQUIRED):
        raise ConfigError(f"{where}ssl.client.auth={client_auth}: write none, requested, required")
    algorithm = text("ssl.endpoint.identification.algorithm").strip()
    if algorithm and algorithm.lower() != "https":
        raise ConfigError(
            f"{where}ssl.endpoint.identification.algorithm={algorithm}: write https, or nothing "
            "for no check of the host name"
        )
    return TlsSettings(
        _store(text, KEYSTORE, where),
        _store(text, TRUSTSTORE, where),
        client_auth,
        protocols,
        tls12,
        tls13,
        bool(algorithm),
        text("ssl.principal.mapping.rules") or "DEFAULT",
        where,
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _ciphers(names: tuple[str, ...], where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the suites of TLS 1.2 in OpenSSL's names, and those of 1.3."""
    tls13 = tuple(name for name in names if name in TLS13_SUITES)
    tls12 = []
    for name in names:
        if name not in tls13:
            known = openssl_name(name)
            if known is None:
                raise ConfigError(f"{where}ssl.cipher.suites: {name} is not known or not safe here")
            tls12.append(known)
    return tuple(tls12), tls13


def _store(text: Callable[[str], str], keys: tuple[str, ...], where: str) -> StoreSettings:
    """Read a store's keys, with Kafka's rules of which go together."""
    of_keys = keys is KEYSTORE
    type_key, location_key, password_key, inline_key = (f"{where}{key}" for key in keys[:4])
    kind = (text(keys[0]) or JKS).upper()
    location, password = text(keys[1]), text(keys[2]) or None
    certificates, key = text(keys[3]), text(keys[4]) if of_keys else ""
    if kind not in STORE_TYPES:
        raise ConfigError(f"{type_key}={kind}: write one of {', '.join(STORE_TYPES)}")
    if (certificates or key) and kind != PEM:
        raise ConfigError(f"{inline_key} is PEM; set {type_key}=PEM")
    if (certificates or key) and location:
        raise ConfigError(f"{location_key} and {inline_key} are both set; remove one")
    if of_keys and bool(certificates) != bool(key):
        here, there = (inline_key, f"{where}{keys[4]}")[:: 1 if certificates else -1]
        raise ConfigError(f"{here} is set, but {there} is not; set both")
    if kind == PEM and password:
        other = "; a key's password is ssl.key.password" if of_keys else ""
        raise ConfigError(f"{password_key}: PEM has no password of the store{other}; remove it")
    if password and not location:
        raise ConfigError(f"{password_key} is set, but {location_key} is not; set both")
    if of_keys and location and kind != PEM and not password:
        raise ConfigError(f"{location_key} is set, but {password_key} is not; set both")
    key_password = text("ssl.key.password") or None if of_keys else None
    prefix = type_key.removesuffix("type")
    return StoreSettings(prefix, kind, location, password, key_password, certificates, key)
