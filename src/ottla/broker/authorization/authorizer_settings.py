"""Authorizer settings: which authorizer, who is a super user; half of it never starts (F40).

Who may call: `broker.Broker`. Invariants: what would leave the broker open, against what its
settings say, is refused with the key's name. Kafka: `AclAuthorizer.configure`.
"""

from ottla.model.config import BrokerConfig
from ottla.model.config_keys import AUTHORIZER_KEYS
from ottla.model.errors import ConfigError
from ottla.security.acls import parse_principal
from ottla.security.authorizer import AclAuthorizer
from ottla.security.principals import Principal

AUTHORIZER = "authorizer.class.name"
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
SUPER_USERS, ALLOW_IF_NO_ACL = AUTHORIZER_KEYS


def configured_authorizer(config: BrokerConfig) -> AclAuthorizer | None:
    """Return the authorizer that the settings ask for, without ACLs yet; None: all is allowed.

    ConfigError for one that is not served, and for settings that promise what is not kept.
    """
    name = config.text(AUTHORIZER).strip()
    properties = config.properties
    if not name:
        for key in AUTHORIZER_KEYS:
            if properties.get(key, "").strip():
                raise ConfigError(
                    f"{key} is set, but {AUTHORIZER} is not: everyone may do everything. Set "
                    f"{AUTHORIZER}={ACL_AUTHORIZER} or remove {key}"
                )
        return None
    if name != ACL_AUTHORIZER:
        raise ConfigError(
            f"{AUTHORIZER}={name} is not served: the one authorizer here is {ACL_AUTHORIZER}. Any "
            "other class cannot run here; what it forbids would be allowed"
        )
    for key in properties:
        if key.startswith("authorizer.zookeeper.") and properties[key].strip():
            raise ConfigError(
                f"{key} is not served: ACLs are read from zookeeper.connect. Remove the key"
            )
    return AclAuthorizer(_super_users(properties), allow_if_no_acl=_flag(properties))


def _super_users(properties: dict[str, str]) -> set[Principal]:
    found = set()
    for text in filter(None, (t.strip() for t in properties.get(SUPER_USERS, "").split(";"))):
        principal = parse_principal(text)
        if principal is None:
            raise ConfigError(
                f"{SUPER_USERS}: {text} is no principal; write type:name, as in User:admin, "
                "several with ; between them"
            )
        found.add(principal)
    return found


def _flag(properties: dict[str, str]) -> bool:
    text = properties.get(ALLOW_IF_NO_ACL, "false").strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{ALLOW_IF_NO_ACL}={text} must be true or false")
    return text == "true"
