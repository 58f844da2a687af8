"""Principal: whom a connection was authenticated as.

A plain value. Kafka: `KafkaPrincipal`.
"""

from typing import NamedTuple

USER_TYPE = "User"


class Principal(NamedTuple):
    """`type:name`, as in `User:alice`. The type is case-sensitive and is `User` for clients."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER_TYPE, "ANONYMOUS")
"""A client of a listener without authentication. Kafka: `KafkaPrincipal.ANONYMOUS`."""
