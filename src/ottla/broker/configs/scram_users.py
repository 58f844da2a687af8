"""SCRAM users: their credentials under /config/users, kept current by change notifications.

Invariants: a credential that cannot be read is left out, said and survived (F41), and is in no log
line. Kafka: `CredentialProvider` and `UserConfigHandler`.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.broker.quotas.quota_settings import USERS
from ottla.security.sasl.scram import BY_NAME, ScramCredential, ScramMechanism, parse_credential
from ottla.zookeeper.znodes import DEFAULT_ENTITY, desanitize

if TYPE_CHECKING:
    from ottla.zookeeper.configs import Configs

logger = logging.getLogger(__name__)


def credentials_of(name: str, settings: Mapping[str, str]) -> dict[ScramMechanism, ScramCredential]:
    """Return the credentials among a user's settings; quotas of users are none."""
    found = {}
    for key, mechanism in BY_NAME.items():
        if key in settings:
            try:
                found[mechanism] = parse_credential(settings[key])
            except ValueError as error:
                logger.warning(
                    "credential ignored entity=users/%s key=%s error=%s", name, key, error
                )
    return found


class ScramUsers:
    """Credentials by mechanism and user."""

    def __init__(self) -> None:
        self._users: dict[str, dict[ScramMechanism, ScramCredential]] = {}

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self._users.get(user, {}).get(mechanism)

    async def load(self, stored: "Configs") -> None:
        """Read all users through a new session."""
        names = await stored.get_names(USERS)
        found = await stored.get_many(USERS, names)
        self._users = {}
        for name, settings in found.items():
            self._take(name, settings)

    async def refresh(self, stored: "Configs", name: str) -> None:
        """Read one user again: a change was notified. `name`: as in the path."""
        if "/" not in name:
            self._take(name, await stored.get(USERS, name))

    def _take(self, name: str, settings: Mapping[str, str]) -> None:
        if name == DEFAULT_ENTITY:
            return
        found = credentials_of(name, settings)
        if found:
            self._users[desanitize(name)] = found
        else:
            self._users.pop(desanitize(name), None)
