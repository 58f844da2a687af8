"""SCRAM users: who has credentials, and how they are set, with any Kafka, ours or of the JVM.

Invariants: a password never leaves this process: a broker gets the salted password, as from Kafka's
AdminClient. Kafka: the SCRAM half of `ConfigCommand` (KIP-554).
"""

import secrets
from collections.abc import Collection

import msgspec

from ottla.client.client import CONTROLLER, Client
from ottla.client.error_texts import reason
from ottla.model.errors import OttlaError
from ottla.security.sasl.scram import BY_NUMBER, SALT_BYTES, ScramMechanism
from ottla.wire.messages.security import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)


class User(msgspec.Struct, frozen=True):
    """A user, and the iterations of each of its credentials by the name of the mechanism."""

    name: str = msgspec.field(name="user")
    credentials: dict[str, int]


async def describe(
    client: Client, names: Collection[str] = (), problems: list[str] | None = None
) -> list[User]:
    """Return these users, or all.

    A user without credentials becomes a line of `problems`; OttlaError for None.
    """
    request = DescribeUserScramCredentialsRequest(
        users=[DescribeUserScramCredentialsRequest.UserName(name=n) for n in names] or None
    )
    response = await client.call(request)
    if response.error_code:
        raise OttlaError(f"users: {reason(response.error_code, response.error_message)}")
    found = []
    for result in response.results:
        if result.error_code:
            problem = f"user {result.user}: {reason(result.error_code, result.error_message)}"
            if problems is None:
                raise OttlaError(problem)
            problems.append(problem)
            continue
        infos = {
            BY_NUMBER[i.mechanism].sasl_name: i.iterations
            for i in result.credential_infos
            if i.mechanism in BY_NUMBER
        }
        found.append(User(result.user, infos))
    return sorted(found, key=lambda user: user.name)


async def put(
    client: Client,
    name: str,
    password: str,
    mechanisms: Collection[ScramMechanism],
    iterations: int,
) -> None:
    """Give a user a password for these mechanisms; OttlaError."""
    r = AlterUserScramCredentialsRequest
    upsertions = []
    for mechanism in mechanisms:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = mechanism.salted_password(password, salt, iterations)
        upsertions.append(
            r.ScramCredentialUpsertion(
                name=name,
                mechanism=mechanism.number,
                iterations=iterations,
                salt=salt,
                salted_password=salted,
            )
        )
    await _alter(client, r(upsertions=upsertions))


async def remove(client: Client, name: str, mechanisms: Collection[ScramMechanism]) -> None:
    """Take a user's credentials of these mechanisms away; OttlaError."""
    r = AlterUserScramCredentialsRequest
    deletions = [r.ScramCredentialDeletion(name=name, mechanism=m.number) for m in mechanisms]
    await _alter(client, r(deletions=deletions))


async def _alter(client: Client, request: AlterUserScramCredentialsRequest) -> None:
    response = await client.call(request, CONTROLLER)
    for result in response.results:
        if result.error_code:
            raise OttlaError(
                f"user {result.user}: {reason(result.error_code, result.error_message)}"
            )
