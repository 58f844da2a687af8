"""Users written into ZooKeeper: the first ones of a cluster, before there is a broker.

Invariants: a password never leaves this process: ZooKeeper gets what a broker would write there;
brokers that run are notified. Kafka: `ConfigCommand --zookeeper`.
"""

import secrets
from collections.abc import Collection

from ottla.security.sasl.scram import ScramMechanism, credential_of, credential_text
from ottla.zookeeper.session import Session
from ottla.zookeeper.store import Store
from ottla.zookeeper.znodes import sanitize

SALT_BYTES = 20
USERS = "users"


async def put_in_zookeeper(
    session: Session,
    name: str,
    password: str,
    mechanisms: Collection[ScramMechanism],
    iterations: int,
) -> None:
    """Give a user a password for these mechanisms."""
    store, entity = Store(session), sanitize(name)
    settings = await store.get_entity_configs(USERS, entity)
    for mechanism in mechanisms:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = mechanism.salted_password(password, salt, iterations)
        credential = credential_of(mechanism, salted, salt, iterations)
        settings[mechanism.sasl_name] = credential_text(credential)
    await store.set_or_create_first_entity_configs(USERS, entity, settings)
    await store.create_config_change_notification(f"{USERS}/{entity}")


async def remove_from_zookeeper(session: Session, name: str, mechanism: ScramMechanism) -> None:
    """Take a user's password of a mechanism away."""
    store, entity = Store(session), sanitize(name)
    settings = await store.get_entity_configs(USERS, entity)
    settings.pop(mechanism.sasl_name, None)
    await store.set_or_create_first_entity_configs(USERS, entity, settings)
    await store.create_config_change_notification(f"{USERS}/{entity}")
