"""Settings: a listener's SASL mechanisms, and a client's, from Kafka's keys.

Invariants: a listener that could not authenticate, or would authenticate less than its settings
say, is refused before anything starts, with one line that names the key (fault F40); no secret is
in a text of ours. Kafka: `SaslConfigs`, `BrokerSecurityConfigs`, `JaasContext` and
`OAuthBearerLoginModule`.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError, ServerRefusedError
from ottla.security.sasl.authentication import SaslPolicy
from ottla.security.sasl.exchange import (
    ClientExchange,
    SaslClient,
    ServerExchange,
)
from ottla.security.sasl.jaas import (
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    JaasModule,
    parse_jaas,
)
from ottla.security.sasl.oauthbearer import (
    OAUTHBEARER,
    BearerToken,
    OAuthBearerClient,
    OAuthBearerServer,
    RefusedToken,
)
from ottla.security.sasl.plain import PLAIN, PlainClient, PlainServer
from ottla.security.sasl.scram import BY_NAME, ScramClient, ScramLookup, ScramServer

GSSAPI = "GSSAPI"
SERVED = (PLAIN, *BY_NAME, OAUTHBEARER)
MODULES = {
    PLAIN: PLAIN_MODULE,
    OAUTHBEARER: OAUTHBEARER_MODULE,
    **dict.fromkeys(BY_NAME, SCRAM_MODULE),
}
ENABLED = "sasl.enabled.mechanisms"
BETWEEN_BROKERS = "sasl.mechanism.inter.broker.protocol"
UNSIGNED = "ottla.sasl.oauthbearer.unsigned.tokens.for.tests"
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - a key # nosec B105
VALIDATOR = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
DEADLINE_S = 30.0
UNSIGNED_LIFETIME_S = 3600

Validate = Callable[[str, int], BearerToken | RefusedToken]


@dataclass(frozen=True, slots=True)
class SaslListener:
    """What a listener's settings say, read and checked."""

    listener: str
    modules: Mapping[str, JaasModule]
    """by mechanism, in the order of sasl.enabled.mechanisms"""
    max_reauth_ms: Mapping[str, int]
    max_receive_bytes: int


def uses_sasl(protocol: str) -> bool:
    """Return whether a security protocol authenticates by SASL."""
    return protocol.startswith("SASL_")


def sasl_listeners(config: BrokerConfig) -> dict[str, SaslListener]:
    """Return the listeners with SASL by name; ConfigError for one that is not wholly set."""
    found = {
        endpoint.listener: _listener(config, endpoint.listener)
        for endpoint in config.listeners
        if uses_sasl(endpoint.protocol)
    }
    for name in _broker_listeners(config) & found.keys():
        mechanism = config.listener_text(name, BETWEEN_BROKERS)
        if mechanism not in found[name].modules:
            raise ConfigError(
                f"{BETWEEN_BROKERS}={mechanism} must be among {ENABLED} of listener {name} "
                f"({', '.join(found[name].modules)})"
            )
        client_of_module(_jaas_key(name, mechanism), mechanism, found[name].modules[mechanism],
                         config.properties)  # fmt: skip
    return found


def _broker_listeners(config: BrokerConfig) -> set[str]:
    return {config.inter_broker_listener, config.text("control.plane.listener.name").upper()}


def _listener(config: BrokerConfig, listener: str) -> SaslListener:
    text = config.listener_text
    names = [name for name in config.listener_list(listener, ENABLED) if name]
    if not names:
        raise ConfigError(
            f"{ENABLED} of listener {listener} is empty: no client could connect. "
            f"Write some of {', '.join(SERVED)}"
        )
    modules: dict[str, JaasModule] = {}
    for name in names:
        if name not in SERVED:
            what = "Kerberos is not served here" if name == GSSAPI else "it is not served here"
            raise ConfigError(
                f"{ENABLED} of listener {listener} has {name}: {what}. Use {', '.join(SERVED)}"
            )
        if name in modules:
            raise ConfigError(f"{ENABLED} of listener {listener} has {name} twice")
        modules[name] = _module(config, listener, name)
    receive = text(listener, "sasl.server.max.receive.size") or str(
        config.integer("sasl.server.max.receive.size")
    )
    return SaslListener(
        listener,
        modules,
        {name: _max_reauth_ms(config, listener, name) for name in names},
        _number("sasl.server.max.receive.size", receive, least=1),
    )


def _jaas_key(listener: str, mechanism: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"


def _module(config: BrokerConfig, listener: str, mechanism: str) -> JaasModule:
    """Return the login module of a listener's mechanism."""
    key = _jaas_key(listener, mechanism)
    text = config.properties.get(key, "")
    if not text.strip():
        hint = " (sasl.jaas.config without that prefix is of no effect for listeners)"
        given = "sasl.jaas.config" in config.properties
        raise ConfigError(f"{key} is missing: listener {listener} could not authenticate clients"
                          f"{hint if given else ''}")  # fmt: skip
    module = parse_jaas(key, text)
    _check_module(key, mechanism, module)
    handler_key = f"{mechanism.lower()}.sasl.server.callback.handler.class"
    handler = config.properties.get(
        f"listener.name.{listener.lower()}.{handler_key}", ""
    ) or config.text("sasl.server.callback.handler.class")
    if handler and not (mechanism == OAUTHBEARER and handler.strip() in VALIDATOR):
        raise ConfigError(
            f"sasl.server.callback.handler.class={handler} names a Java class, which cannot run "
            "here; whom it lets in is not known. Remove it"
        )
    if mechanism == PLAIN and not passwords_of(module):
        raise ConfigError(f'{key} names no user: write user_NAME="password"')
    if mechanism == OAUTHBEARER:
        # It says which extra is missing: before anything starts, not with the first token.
        import ottla.security.sasl.jwt_tokens  # noqa: F401 - lazy

        _check_oauthbearer(config, listener)
    return module


def _check_module(key: str, mechanism: str, module: JaasModule) -> None:
    if module.name != MODULES[mechanism]:
        raise ConfigError(f"{key}: the login module of {mechanism} is {MODULES[mechanism]}")


def passwords_of(module: JaasModule) -> dict[str, str]:
    """Return PLAIN's users and passwords."""
    return {k[5:]: v for k, v in module.options.items() if k.startswith("user_") and k != "user_"}


def _check_oauthbearer(config: BrokerConfig, listener: str) -> None:
    unsigned = config.flag(UNSIGNED)
    url = config.listener_text(listener, JWKS_URL)
    if unsigned and url:
        raise ConfigError(f"{UNSIGNED}=true and {JWKS_URL} contradict each other; remove one")
    if unsigned:
        return
    if not url:
        raise ConfigError(
            f"{JWKS_URL} is missing: tokens could not be checked on listener {listener}. Name a "
            "JSON Web Key Set, as in file:///etc/kafka/jwks.json"
        )
    scheme = _scheme(url)
    if scheme not in ("file", "http", "https"):
        raise ConfigError(f"{JWKS_URL}={url} is no file:, https: or http: address")
    allowed = config[ALLOWED_URLS]
    assert isinstance(allowed, list)
    if scheme != "file" and url not in allowed:
        raise ConfigError(f"{JWKS_URL}={url} is not in {ALLOWED_URLS}, so it is not asked")


def _scheme(url: str) -> str:
    """Return the part before the colon. urllib has more to say, and takes a mebibyte for it."""
    return url.partition(":")[0].strip().lower()


def _max_reauth_ms(config: BrokerConfig, listener: str, mechanism: str) -> int:
    key = "connections.max.reauth.ms"
    prefix = f"listener.name.{listener.lower()}."
    for name in (f"{prefix}{mechanism.lower()}.{key}", f"{prefix}{key}"):
        if name in config.properties:
            return _number(name, config.properties[name], least=0)
    return config.integer(key)


def _number(key: str, text: str, *, least: int) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and least <= int(text) < 2**63):
        raise ConfigError(f"{key}={text}: write a whole number of at least {least}")
    return int(text)


def policy_of(listener: SaslListener, lookup: ScramLookup, validate: Validate | None) -> SaslPolicy:
    """Return how a listener authenticates. `validate`: of OAUTHBEARER's tokens."""

    def maker(name: str, module: JaasModule) -> Callable[[], ServerExchange]:
        if name == PLAIN:
            passwords = passwords_of(module)
            return lambda: PlainServer(passwords)
        if name == OAUTHBEARER:
            assert validate is not None
            return lambda: OAuthBearerServer(validate)
        mechanism = BY_NAME[name]
        return lambda: ScramServer(mechanism, lookup, nonce())

    return SaslPolicy(
        exchanges={name: maker(name, module) for name, module in listener.modules.items()},
        max_reauth_ms=listener.max_reauth_ms,
        max_receive_bytes=listener.max_receive_bytes,
        deadline_s=DEADLINE_S,
    )


def nonce() -> str:
    """Return 192 unpredictable bits as SCRAM may send them."""
    return secrets.token_urlsafe(24)


# Clients.


def broker_sasl(config: BrokerConfig, listener: str) -> SaslClient | None:
    """Return how this broker authenticates at others' listener of that name; None: not at all."""
    protocol = next((e.protocol for e in config.listeners if e.listener == listener), "")
    if not uses_sasl(protocol):
        return None
    mechanism = config.listener_text(listener, BETWEEN_BROKERS)
    key = _jaas_key(listener, mechanism)
    module = parse_jaas(key, config.properties.get(key, ""))
    return client_of_module(key, mechanism, module, config.properties)


def tool_sasl(properties: Mapping[str, str]) -> SaslClient:
    """Return how a tool authenticates, from Kafka's client.properties; ConfigError."""
    mechanism = properties.get("sasl.mechanism", GSSAPI).strip()
    if mechanism not in SERVED:
        why = " (Kerberos)" if mechanism == GSSAPI else ""
        raise ConfigError(
            f"sasl.mechanism={mechanism}{why} is not served here; write one of {', '.join(SERVED)}"
        )
    key = "sasl.jaas.config"
    text = properties.get(key, "")
    if not text.strip():
        raise ConfigError(f"{key} is missing: sasl.mechanism={mechanism} needs a login module")
    module = parse_jaas(key, text)
    return client_of_module(key, mechanism, module, properties)


def client_of_module(
    key: str, mechanism: str, module: JaasModule, properties: Mapping[str, str]
) -> SaslClient:
    """Return the client that a login module's options make; ConfigError if they make none."""
    _check_module(key, mechanism, module)
    if mechanism == OAUTHBEARER:
        token = _token_source(key, module, properties)
        return SaslClient(mechanism, lambda: OAuthBearerClient(token()))
    name, password = module.options.get("username"), module.options.get("password")
    if not name or not password:
        raise ConfigError(f"{key} lacks username or password, with which to authenticate")
    if mechanism == PLAIN:
        return SaslClient(mechanism, lambda: PlainClient(name, password))
    token_auth = module.options.get("tokenauth", "").lower() == "true"
    scram = BY_NAME[mechanism]

    def begin() -> ClientExchange:
        return ScramClient(scram, name, password, nonce(), token_auth=token_auth)

    return SaslClient(mechanism, begin)


def _token_source(key: str, module: JaasModule, properties: Mapping[str, str]) -> Callable[[], str]:
    """Return what yields a token: fixed, of a file, or an unsigned one for tests."""
    fixed = module.options.get("token")
    url = properties.get(TOKEN_URL, "").strip()
    subject = module.options.get("unsecuredLoginStringClaim_sub")
    if fixed:
        return lambda: fixed
    if url:
        if _scheme(url) != "file":
            raise ConfigError(f"{TOKEN_URL}={url}: only file: is served, as in file:///run/token")
        return lambda: _token_of_file(url)
    if subject:
        return lambda: _unsigned(subject)
    raise ConfigError(
        f'{key} names no token: write token="...", or {TOKEN_URL}=file:///path of a file with it'
    )


def _token_of_file(url: str) -> str:
    from ottla.security.sasl.jwks import read_url  # lazy: it needs PyJWT

    try:
        return read_url(url).decode("ascii").strip()
    except (OSError, ValueError) as error:
        raise ServerRefusedError(f"{TOKEN_URL}: {error}") from error


def _unsigned(subject: str) -> str:
    from ottla.security.sasl.jwt_tokens import unsigned_token  # lazy: it needs PyJWT

    now_s = time.time()
    return unsigned_token({"sub": subject, "iat": now_s, "exp": now_s + UNSIGNED_LIFETIME_S})
